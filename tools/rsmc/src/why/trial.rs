// SPDX-License-Identifier: GPL-2.0
//! A test connection.

use crate::diag::{Mode, Socket};
use crate::error::Result;
use crate::probe;
use crate::reason::{self, Told};
use serde::Serialize;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time limit for a service to answer a test connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// A test connection, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    address: SocketAddr,
    mode: String,
    /// `null` unless the mode is TCP.
    fallback: Option<Told>,
    /// The peer's own reason, `null` if it gave none.
    peer: Option<Told>,
    advice: &'static str,
}

impl Probe {
    /// Makes one to a service.
    ///
    /// # Errors
    /// See [`probe::connect`].
    pub fn of(peer: IpAddr, port: u16) -> Result<Self> {
        let address = SocketAddr::new(peer, port);
        Ok(Self::new(address, &probe::connect(address, PATIENCE)?))
    }

    fn new(address: SocketAddr, socket: &Socket) -> Self {
        let fallback = socket.fallback.filter(|_| socket.mode == Mode::Tcp);
        // What the peer said is what there is to cure, if it said something.
        let cause = fallback.map_or(0, |fallback| match fallback.peer {
            0 => fallback.reason,
            peer => peer,
        });
        Self {
            address,
            mode: match socket.mode {
                Mode::SmcR => "SMC-R".into(),
                Mode::SmcD => "SMC-D".into(),
                Mode::TcpFirst => "TCP first".into(),
                _ => "TCP".into(),
            },
            fallback: fallback.map(|fallback| Told::new(fallback.reason)),
            peer: fallback
                .filter(|fallback| fallback.peer != 0)
                .map(|fallback| Told::new(fallback.peer)),
            advice: reason::advice(cause),
        }
    }

    /// True if it was not SMC.
    pub fn became_tcp(&self) -> bool {
        self.fallback.is_some()
    }

    /// Says what it became.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn tell(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "\nTest connection to {}: {}", self.address, self.mode)?;
        let Some(own) = &self.fallback else {
            return Ok(());
        };
        writeln!(out, "  Here: {} {}.", own.name, own.text)?;
        if let Some(peer) = &self.peer {
            writeln!(out, "  Peer: {} {}.", peer.name, peer.text)?;
        }
        if !self.advice.is_empty() {
            writeln!(out, "  What to do: {}", self.advice)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(probe: &Probe) -> String {
        let mut out = Vec::new();
        probe.tell(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn test_connections() {
        let address: SocketAddr = "10.0.0.2:80".parse().unwrap();
        let sockets = crate::ss::tests::sockets();
        let declined = Probe::new(address, &sockets[1]);
        assert!(declined.advice.contains("rdma link"), "{declined:?}");
        let told = text(&declined);
        assert!(
            told.contains("  Here: PEERDECL The peer declined")
                && told.contains("  Peer: NOSMCDEV No device"),
            "{told}"
        );
        let smc = Probe::new(address, &sockets[2]);
        assert!(smc.fallback.is_none());
        assert_eq!(text(&smc), "\nTest connection to 10.0.0.2:80: SMC-R\n");
    }
}
