// SPDX-License-Identifier: GPL-2.0
//! `smc_chk`: a live test of a service, a server to test against, an interface's PNET id.

use super::{finish, parse};
use crate::diag::{Mode, Socket};
use crate::error::{Error, Result};
use crate::{dev, pnet, probe, reason};
use clap::{Command, CommandFactory, Parser};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, sockopt, SocketFlags};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Time limit for a service's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Test for SMC (with the options of smc_chk)
#[derive(Debug, Parser)]
#[command(name = "smc_chk", version, disable_version_flag = true)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["connect", "server", "pnetid"]))]
struct Options {
    /// Connect to a service at this address, or host of this name, and tell whether SMC is used
    #[arg(short = 'C', long, value_name = "IP")]
    connect: Option<String>,
    /// Serve such tests until interrupted
    #[arg(short = 'S', long)]
    server: bool,
    /// Print the PNET id of this interface, with * if a user has set it
    #[arg(short = 'i', long, value_name = "INTERFACE")]
    pnetid: Option<String>,
    /// Port of the service, or of the server; the latter takes the next one that is free
    #[arg(short, long, default_value = "37373")]
    port: u16,
    /// IPv6: of the server, or of a host that has both; addresses tell it themselves
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Say more
    #[arg(short, long)]
    debug: bool,
    /// Only the live test, which is the default
    #[arg(short, long, hide = true)]
    live_test: bool,
    /// Show the version
    #[arg(short, long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// The options, for the manual.
pub fn command() -> Command {
    Options::command()
}

/// `smc_chk`. Succeeds if the test used SMC.
pub fn main(arguments: &[OsString], out: &mut dyn Write) -> u8 {
    let options = match parse::<Options>(arguments, 1) {
        Ok(options) => options,
        Err(code) => return code,
    };
    if let Some(host) = &options.connect {
        let address = resolve(host, options.port, options.ipv6);
        return match address.and_then(|address| test(address, options.debug, out)) {
            Ok(true) => 0,
            Ok(false) => 1,
            other => finish("smc_chk", other.map(|_| ()), 1),
        };
    }
    let done = match &options.pnetid {
        Some(interface) => pnet_id(interface).and_then(|id| Ok(writeln!(out, "{id}")?)),
        None => serve(&options, out),
    };
    finish("smc_chk", done, 1)
}

/// The address of a host: of IPv4 if it has one, unless IPv6 is wanted.
fn resolve(host: &str, port: u16, ipv6: bool) -> Result<SocketAddr> {
    if let Ok(address) = host.parse() {
        return Ok(SocketAddr::new(address, port));
    }
    let known: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| Error::Usage(format!("{host}: {error}")))?
        .collect();
    let wanted = known.iter().find(|address| address.is_ipv6() == ipv6);
    let found = match ipv6 {
        true => wanted,
        false => wanted.or(known.first()),
    };
    let none = || Error::Usage(format!("{host} has no address of IPv6"));
    found.copied().ok_or_else(none)
}

fn test(address: SocketAddr, debug: bool, out: &mut dyn Write) -> Result<bool> {
    writeln!(out, "Live test with {address}")?;
    out.flush()?;
    let socket = match probe::connect(address, PATIENCE) {
        Err(Error::Io(error)) => {
            writeln!(out, "    Failed, could not connect: {error}")?;
            return Ok(false);
        }
        other => other?,
    };
    if debug {
        writeln!(out, "    {socket:?}")?;
    }
    verdict(&socket, out)
}

fn verdict(socket: &Socket, out: &mut dyn Write) -> Result<bool> {
    let name = match socket.mode {
        Mode::SmcR => "SMC-R",
        Mode::SmcD => "SMC-D",
        _ => {
            writeln!(out, "    Failed (TCP fallback), reasons:")?;
            if let Some(fallback) = socket.fallback {
                let words = |code: u32| format!("{} {}", reason::hex(code), reason::text(code));
                writeln!(out, "       Client: {}", words(fallback.reason))?;
                if fallback.peer != 0 {
                    writeln!(out, "       Server: {}", words(fallback.peer))?;
                }
            }
            return Ok(false);
        }
    };
    writeln!(out, "    Success, using {name}")?;
    Ok(true)
}

/// Accepts connections and tells what each became; closes it when its client does.
fn serve(options: &Options, out: &mut dyn Write) -> Result<()> {
    let any: IpAddr = match options.ipv6 {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    let (listener, port) = listener(any, options.port)?;
    writeln!(out, "Server started on port {port}")?;
    out.flush()?;
    loop {
        let connection = match net::accept(&listener) {
            Ok(connection) => connection,
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let socket = probe::listed(&connection)?;
        let mode = match (socket.mode, socket.fallback) {
            (Mode::SmcR, _) => "SMC-R".to_string(),
            (Mode::SmcD, _) => "SMC-D".to_string(),
            (Mode::TcpFirst, _) => "TCP first".to_string(),
            (_, Some(reasons)) => format!("TCP, {}", reason::text(reasons.reason)),
            _ => "TCP".to_string(),
        };
        // None of a client that has gone again.
        let peer = net::getpeername(&connection).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        let peer = peer.map_or_else(|| "unknown".into(), |peer| peer.to_string());
        writeln!(out, "{peer}: {mode}")?;
        out.flush()?;
        // Until its end; what the client sends goes back to it.
        std::thread::spawn(move || echo(&connection));
    }
}

fn echo(connection: &OwnedFd) {
    let mut buffer = [0u8; 4096];
    while let Ok(length @ 1..) = rustix::io::read(connection, &mut buffer) {
        let mut rest = buffer.get(..length).unwrap_or(&[]);
        while let Ok(written @ 1..) = rustix::io::write(connection, rest) {
            rest = rest.get(written..).unwrap_or(&[]);
        }
    }
}

/// A listener on this port or, if it is taken, the next one that is free.
fn listener(address: IpAddr, port: u16) -> Result<(OwnedFd, u16)> {
    for port in port..=u16::MAX {
        let address = SocketAddr::new(address, port);
        let fd = probe::socket(&address, SocketFlags::empty())?;
        sockopt::set_socket_reuseaddr(&fd, true).map_err(io::Error::from)?;
        match net::bind(&fd, &address).and_then(|()| net::listen(&fd, 16)) {
            Ok(()) => return Ok((fd, port)),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    Err(io::Error::from(Errno::ADDRINUSE).into())
}

/// The interface's physical network: what a user has set, or what its RDMA port says.
fn pnet_id(interface: &str) -> Result<String> {
    let table = pnet::collect(None)?;
    let set = table
        .iter()
        .find(|entry| entry.interface.as_deref() == Some(interface));
    if let Some(entry) = set {
        return Ok(format!("{}*", entry.id));
    }
    let ports = dev::collect()?;
    let port = ports
        .iter()
        .find(|port| port.ifindex != 0 && crate::system::interface(port.ifindex) == interface);
    let id = port.and_then(|port| port.pnet_id.clone());
    Ok(id.unwrap_or_else(|| "n/a".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::sockets;

    #[test]
    fn verdicts() {
        let told = |index: usize| {
            let mut out = Vec::new();
            let verdict = verdict(&sockets()[index], &mut out).unwrap();
            (verdict, String::from_utf8(out).unwrap())
        };
        assert_eq!(told(2), (true, "    Success, using SMC-R\n".into()));
        assert_eq!(told(4).1, "    Success, using SMC-D\n");
        let (success, text) = told(1);
        assert!(
            !success && text.contains("Client: 0x05000000 The peer declined"),
            "{text}"
        );
        assert!(text.contains("Server: 0x03030000 No device"), "{text}");
    }

    #[test]
    fn hosts() {
        let found = |host: &str, ipv6| resolve(host, 9, ipv6).map(|address| address.to_string());
        assert_eq!(found("10.0.0.1", true).unwrap(), "10.0.0.1:9");
        assert_eq!(found("fd00::1", false).unwrap(), "[fd00::1]:9");
        // Where there are names at all.
        if let Ok(localhost) = found("localhost", false) {
            assert!(
                ["127.0.0.1:9", "[::1]:9"].contains(&&*localhost),
                "{localhost}"
            );
        }
        assert!(matches!(found("no host", false), Err(Error::Usage(_))));
    }

    #[test]
    fn one_thing_at_a_time() {
        let parsed = |line: &str| Options::try_parse_from(line.split_whitespace());
        assert_eq!(parsed("smc_chk -C ::1 -6 -p 23").unwrap().port, 23);
        for wrong in ["smc_chk", "smc_chk -S -i eth0", "smc_chk -S -p x"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
