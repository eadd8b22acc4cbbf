// SPDX-License-Identifier: GPL-2.0
//! A socket as `smcss` prints it.

use super::smcss::Options;
use crate::diag::connection::Cursor;
use crate::diag::{End, Mode, Socket, State};

/// The most that is shown of an address with its port.
pub const ADDRESS: usize = 23;

/// A socket's cells. A row ends where there is no more to say in its state or mode.
pub fn row(options: &Options, socket: &Socket) -> Vec<String> {
    let end = |end| match options.wide {
        true => wide(end),
        false => cut(end),
    };
    let mut cells = vec![
        state(socket.state),
        format!("{:05}", socket.uid),
        format!("{:07}", socket.inode),
    ];
    if socket.state == State::INIT {
        return cells;
    }
    cells.push(end(socket.local));
    if socket.state == State::LISTEN {
        return cells;
    }
    cells.push(end(socket.remote));
    cells.push(format!("{:04x}", socket.interface));
    if socket.state == State::CLOSED {
        return cells;
    }
    cells.push(mode(socket));
    if socket.mode == Mode::Tcp {
        return cells;
    }
    if options.debug {
        cells.push(
            match (socket.no_receive, socket.no_send) {
                (false, false) => " <->",
                (true, false) => " R->",
                (false, true) => " <-W",
                (true, true) => " R-W",
            }
            .into(),
        );
        cells.extend(debug(socket));
    }
    if let Some(link) = socket.link.as_ref().filter(|_| options.smcr) {
        cells.extend([
            if link.is_server { "SERV" } else { "CLNT" }.into(),
            link.device.clone(),
            format!("{:02x}", link.port),
            format!("{:02x}", link.id),
            link.gid.clone(),
            link.peer_gid.clone(),
        ]);
    }
    if let Some(dmb) = socket.dmb.filter(|_| options.smcd) {
        let [peer_gid, gid, token, peer_token] = dmb.numbers;
        cells.extend([
            format!("{gid:016x}"),
            format!("{token:016x}"),
            format!("{peer_gid:016x}"),
            format!("{peer_token:016x}"),
            format!("{:08x}", dmb.link_id),
        ]);
    }
    cells
}

/// An end without brackets, as the tool prints it.
fn wide(end: End) -> String {
    format!("{}:{}", end.address, end.port)
}

/// The same, of which the address gives way if there is not enough room. The port stays.
fn cut(end: End) -> String {
    let whole = wide(end);
    if whole.len() <= ADDRESS {
        return whole;
    }
    let (address, tail) = (end.address.to_string(), format!("..:{}", end.port));
    let room = ADDRESS.saturating_sub(tail.len());
    format!("{}{tail}", address.get(..room).unwrap_or(&address))
}

/// A state. The tool numbers one of which there is no second.
fn state(state: State) -> String {
    match state.to_string() {
        name if name == "APPFINCLOSEWAIT" => format!("{name}1"),
        name => name,
    }
}

fn mode(socket: &Socket) -> String {
    match (socket.mode, socket.fallback) {
        (Mode::SmcR | Mode::Undecided, _) => "SMCR".into(),
        (Mode::SmcD, _) => "SMCD".into(),
        (Mode::Tcp, Some(reasons)) if reasons.peer != 0 => {
            format!("TCP 0x{:08x}/0x{:08x}", reasons.reason, reasons.peer)
        }
        (Mode::Tcp, Some(reasons)) => format!("TCP 0x{:08x}", reasons.reason),
        (Mode::Tcp, None) | (Mode::TcpFirst, _) => "TCP".into(),
        (Mode::Other(number), _) => format!("{number}"),
    }
}

fn debug(socket: &Socket) -> Vec<String> {
    let Some(connection) = socket.connection else {
        return vec!["-".into(); 13];
    };
    let cursor = |cursor: Cursor| format!("{:04x}:{:08x}", cursor.wrap, cursor.count);
    let [rx, rx_state, tx, tx_state] = connection.flags;
    vec![
        format!("{:08x}", connection.token),
        format!("{:08x}", connection.send_buffer),
        format!("{:08x}", connection.receive_buffer),
        format!("{:08x}", connection.peer_buffer),
        cursor(connection.rx_produced),
        cursor(connection.rx_consumed),
        format!("{rx:02x}:{rx_state:02x}"),
        cursor(connection.tx_produced),
        cursor(connection.tx_consumed),
        format!("{tx:02x}:{tx_state:02x}"),
        cursor(connection.prepared),
        cursor(connection.sent),
        cursor(connection.finished),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::sockets;

    #[test]
    fn rows_end_where_nothing_more_is_known() {
        let mut socket = sockets().remove(1);
        socket.interface = 26;
        let debug = Options {
            debug: true,
            ..Options::default()
        };
        let cells = row(&debug, &socket);
        assert_eq!(cells.len(), 7);
        assert_eq!(cells[5], "001a");
        for (state, length) in [(State::CLOSED, 6), (State::LISTEN, 4), (State::INIT, 3)] {
            socket.state = state;
            assert_eq!(row(&debug, &socket).len(), length, "{state}");
        }
        socket.state = State(24);
        assert_eq!(row(&debug, &socket)[0], "APPFINCLOSEWAIT1");
    }

    #[test]
    fn long_addresses_are_cut() {
        let mut socket = sockets().remove(1);
        socket.local.address = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        let cells = row(&Options::default(), &socket);
        assert_eq!(cells[3], "2001:db8:1111:22..:6379");
        let options = Options {
            wide: true,
            ..Options::default()
        };
        assert!(row(&options, &socket)[3].ends_with(":6666:6379"));
        // What just fits.
        socket.local.address = "2001:db8:1111:2222::1".parse().unwrap();
        socket.local.port = 1;
        assert_eq!(
            row(&Options::default(), &socket)[3],
            "2001:db8:1111:2222::1:1"
        );
    }
}
