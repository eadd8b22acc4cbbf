// SPDX-License-Identifier: GPL-2.0
//! Picture that `rsmc top` shows, made from two looks at the kernel.

use crate::cli::TopSort;
use crate::link::Group;
use crate::promotion::Ends;
use crate::ss::entry::{Bytes, Entry};
use crate::stats::rates::Rates;
use crate::stats::Statistics;
use crate::table::{self, Colour, Table};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One look at the kernel.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// All sockets.
    pub sockets: Vec<Entry>,
    /// Counters, where the module has them.
    pub statistics: Option<Statistics>,
    /// Link groups, where the module has them.
    pub groups: Option<Vec<Group>>,
}

/// State kept from one look to the next.
#[derive(Debug)]
pub struct View {
    last: Sample,
    seen: HashMap<u64, Instant>,
    /// Sort key.
    pub sort: TopSort,
    /// Codes, not words.
    pub numeric: bool,
}

/// A connection with its rates in bytes per second.
pub(super) struct Line<'a> {
    pub(super) entry: &'a Entry,
    pub(super) received: f64,
    pub(super) sent: f64,
    pub(super) waiting: u64,
    /// Since it was seen first.
    pub(super) seen: Duration,
}

impl View {
    /// From the first look, which alone says nothing of rates.
    pub fn new(first: Sample, sort: TopSort, numeric: bool) -> Self {
        let seen = first.sockets.iter().map(|entry| (entry.cookie, first.at));
        Self {
            seen: seen.collect(),
            last: first,
            sort,
            numeric,
        }
    }

    /// The picture of what happened since the last look, with at most this number of connections.
    pub fn picture(&mut self, now: Sample, most: usize) -> String {
        let mut text = head(&now);
        text.push_str(&self.words(&now));
        text.push('\n');
        text.push_str(&self.table(&self.lines(&now), most));
        self.remember(now);
        text
    }

    /// Takes a look as the one that the next is compared with.
    pub(super) fn remember(&mut self, now: Sample) {
        let known: HashMap<u64, Instant> = now
            .sockets
            .iter()
            .map(|entry| {
                let cookie = entry.cookie;
                (cookie, self.seen.get(&cookie).copied().unwrap_or(now.at))
            })
            .collect();
        self.seen = known;
        self.last = now;
    }

    /// The time since the last look.
    pub(super) fn elapsed(&self, now: &Sample) -> Duration {
        now.at.duration_since(self.last.at)
    }

    /// The connections with their rates, in order.
    pub(super) fn lines<'a>(&self, now: &'a Sample) -> Vec<Line<'a>> {
        let seconds = self.elapsed(now).as_secs_f64().max(1e-6);
        let before: HashMap<u64, Bytes> = self
            .last
            .sockets
            .iter()
            .filter_map(|entry| Some((entry.cookie, entry.bytes?)))
            .collect();
        let mut lines: Vec<Line<'_>> = Vec::new();
        for entry in now.sockets.iter().filter(|entry| entry.mode.is_some()) {
            let bytes = entry.bytes;
            let zero = (0, 0);
            let more = bytes.map_or(zero, |bytes| match before.get(&entry.cookie) {
                Some(before) => bytes.since(before),
                // A connection that is new: all of its bytes are.
                None => (bytes.received, bytes.sent),
            });
            let first = self.seen.get(&entry.cookie).copied().unwrap_or(now.at);
            lines.push(Line {
                entry,
                received: more.0 as f64 / seconds,
                sent: more.1 as f64 / seconds,
                waiting: bytes.map_or(0, |bytes| {
                    bytes.receive_queue.saturating_add(bytes.send_queue)
                }),
                seen: now.at.duration_since(first),
            });
        }
        self.arrange(&mut lines);
        lines
    }

    fn arrange(&self, lines: &mut [Line<'_>]) {
        lines.sort_by_key(|line| {
            let key = match self.sort {
                TopSort::Bytes => (line.received + line.sent) as u64,
                TopSort::Received => line.received as u64,
                TopSort::Sent => line.sent as u64,
                TopSort::Queue => line.waiting,
                TopSort::Time => u64::MAX - line.seen.as_millis() as u64,
            };
            (Reverse(key), line.entry.cookie)
        });
    }

    fn table(&self, lines: &[Line<'_>], most: usize) -> String {
        let head = [
            "Mode", "Local", "Peer", "Recv/s", "Sent/s", "Waiting", "Seen", "Process", "Why TCP",
        ];
        let mut table = Table::new(&head).coloured(|column, cell| match (column, cell) {
            (0, "TCP" | "TCP first" | "promoting") => Some(Colour::Yellow),
            (0, _) => Some(Colour::Green),
            _ => None,
        });
        for line in lines.iter().take(most) {
            let rate = |rate: f64| match line.entry.bytes {
                Some(_) => table::size(rate as u64),
                None => "-".into(),
            };
            table.row(vec![
                line.entry.carrier(),
                line.entry.local.shown.clone(),
                line.entry.peer(),
                rate(line.received),
                rate(line.sent),
                table::size(line.waiting),
                duration(line.seen),
                line.entry.holders(),
                line.entry.why(self.numeric),
            ]);
        }
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = table.print(&mut out);
        let mut text = String::from_utf8_lossy(&out).into_owned();
        if let hidden @ 1.. = lines.len().saturating_sub(most) {
            text.push_str(&format!("... and {hidden} more\n"));
        }
        text
    }

    /// Rates of the namespace, where the module has counters.
    pub(super) fn rates(&self, now: &Sample) -> Option<Rates> {
        let (before, statistics) = (self.last.statistics.as_ref()?, now.statistics.as_ref()?);
        let elapsed = self.elapsed(now);
        Some(Rates::new(&before.flat(), &statistics.flat(), elapsed))
    }

    /// Promotions of connections that began as TCP, if there were any.
    fn promotions(&self, rates: &Rates, statistics: &Statistics) -> String {
        let Some(shown) = &statistics.began_as_tcp else {
            return String::new();
        };
        let all = |of: fn(&Ends) -> u64| of(&shown.client).saturating_add(of(&shown.server));
        let (begun, done) = (all(|ends| ends.begun), all(|ends| ends.done));
        let refused = all(|ends| ends.refused);
        if begun | refused == 0 {
            return String::new();
        }
        let rate = |name: &str| {
            let both = ["client", "server"].map(|role| format!("began_as_tcp.{role}.{name}"));
            rates.sum(&both.each_ref().map(String::as_str))
        };
        let took = match rate("ns") / rate("done") {
            nanos if nanos.is_finite() => format!(" in {} on average", table::time(nanos as u64)),
            _ => String::new(),
        };
        format!(
            "promotions: {begun} begun ({}/s), {done} done ({}/s){took}, {} failed, {refused} times not begun\n",
            table::count(rate("begun")),
            table::count(rate("done")),
            all(|ends| ends.failed),
        )
    }

    /// Rates of the namespace in words, and its fallback reasons with theirs.
    fn words(&self, now: &Sample) -> String {
        let (Some(rates), Some(statistics)) = (self.rates(now), &now.statistics) else {
            return "The module has no counters.\n".into();
        };
        let count = |endings: &[&str]| table::count(rates.sum(endings));
        let size = |endings: &[&str]| table::size(rates.sum(endings) as u64);
        let mut text = format!(
            "per second: {} SMC, {} TCP, {} errors; {} received, {} sent; {} buffers full\n",
            count(&[".client_v1", ".client_v2", ".server_v1", ".server_v2"]),
            count(&["fallback.client", "fallback.server"]),
            count(&["handshake_errors"]),
            size(&[".rx_bytes"]),
            size(&[".tx_bytes"]),
            count(&["_buffers.full", "_buffers.peer_full"]),
        );
        let mut reasons: Vec<_> = statistics.fallback.reasons.iter().collect();
        reasons.sort_by_key(|reason| Reverse(reason.count));
        let reasons: Vec<String> = reasons
            .iter()
            .take(4)
            .map(|entry| {
                let name = match self.numeric {
                    true => &entry.reason.code,
                    false => entry.reason.name,
                };
                let rate = count(&[&format!(".reasons.{}.{}", entry.role, entry.reason.code)]);
                format!("{} {name} as {} ({rate}/s)", entry.count, entry.role)
            })
            .collect();
        let reasons = match reasons.is_empty() {
            true => "none".into(),
            false => reasons.join(", "),
        };
        text.push_str(&format!("fallbacks: {reasons}\n"));
        text.push_str(&self.promotions(&rates, statistics));
        text
    }
}

/// Returns the line with the numbers of connections of each mode, and of link groups.
fn head(now: &Sample) -> String {
    let of = |mode: &str| {
        let sockets = now.sockets.iter();
        sockets
            .filter(|entry| entry.mode.as_deref() == Some(mode))
            .count()
    };
    let listeners = now.sockets.iter().filter(|entry| entry.state == "LISTEN");
    let mut text = format!(
        "{} SMC-R, {} SMC-D, {} TCP connections; {} listeners",
        of("SMC-R"),
        of("SMC-D"),
        of("TCP"),
        listeners.count()
    );
    if let first @ 1.. = of("TCP first") {
        let promoting = now
            .sockets
            .iter()
            .filter_map(|entry| entry.began_as_tcp.as_ref());
        let promoting = promoting.filter(|began| began.promoting).count();
        text.push_str(&format!("; {first} TCP first, {promoting} being promoted"));
    }
    if let Some(groups) = &now.groups {
        let size = table::size(memory(groups));
        text.push_str(&format!("; {} link groups, {size} buffers", groups.len()));
    }
    text.push('\n');
    text
}

/// The buffers of link groups in bytes.
pub(super) fn memory(groups: &[Group]) -> u64 {
    let sizes = groups
        .iter()
        .flat_map(|group| [group.send_bytes, group.receive_bytes]);
    sizes.flatten().fold(0, u64::saturating_add)
}

/// A duration in at most four characters.
fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..360_000 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::diag;
    use crate::ss::tests::sockets;
    use crate::stats::tests::sample as statistics;
    use crate::tcp::Tcp;

    pub(in super::super) fn sample(at: Instant, sent: u64) -> Sample {
        let tcp = Tcp {
            sent,
            received: 100,
            ..Tcp::default()
        };
        let entry =
            |socket: &diag::Socket| Entry::new(socket, Vec::new(), &HashMap::new(), Some(tcp));
        let mut sockets = sockets();
        // Each its own number, as from the kernel.
        for (number, socket) in sockets.iter_mut().enumerate() {
            socket.cookie = number as u64;
        }
        Sample {
            at,
            sockets: sockets.iter().map(entry).collect(),
            statistics: Some(statistics()),
            groups: Some(Vec::new()),
        }
    }

    #[test]
    fn a_picture() {
        let start = Instant::now();
        let mut view = View::new(sample(start, 0), TopSort::Bytes, false);
        let mut second = sample(start + Duration::from_secs(2), 4096);
        second.statistics.as_mut().unwrap().fallback.reasons[0].count = 5;
        let before = view.last.statistics.as_mut().unwrap();
        let before = &mut before.began_as_tcp.as_mut().unwrap().client;
        (before.begun, before.done, before.ns) = (3, 2, 7_000_000);
        let text = view.picture(second, 10);
        assert!(
            text.starts_with("1 SMC-R, 1 SMC-D, 1 TCP connections; 1 listeners; 0 link groups"),
            "{text}"
        );
        assert!(
            text.contains("fallbacks: 5 PEERNOSMC as client (2/s)"),
            "{text}"
        );
        assert!(
            text.contains(
                "promotions: 5 begun (1/s), 3 done (0.5/s) in 2.0 ms on average, 2 failed"
            ),
            "{text}"
        );
        let rows: Vec<&str> = text.lines().skip(5).collect();
        assert_eq!(rows.len(), 4, "{text}");
        assert!(
            rows[1].starts_with("TCP ") && rows[1].contains("  2.0K  "),
            "{text}"
        );
        assert!(
            rows[1].contains(" 2s ") && rows[1].contains("declined"),
            "{text}"
        );
        let text = view.picture(sample(start + Duration::from_secs(4), 4096), 1);
        assert!(text.ends_with("... and 2 more\n"), "{text}");
    }

    #[test]
    fn orders() {
        let start = Instant::now();
        let mut first = sample(start, 0);
        let newest = first.sockets.pop().unwrap();
        let mut view = View::new(first, TopSort::Time, true);
        let text = view.picture(sample(start + Duration::from_secs(1), 9), 10);
        let row = text.lines().nth(6).unwrap();
        assert!(row.contains(&newest.local.shown), "{text}");
        assert!(text.contains("0x05000000 (peer: 0x03030000)"), "{text}");
        view.sort = TopSort::Queue;
        let text = view.picture(sample(start + Duration::from_secs(2), 9), 10);
        assert!(text.lines().nth(6).unwrap().starts_with("SMC-R"), "{text}");
    }

    #[test]
    fn durations() {
        for (seconds, text) in [
            (0, "0s"),
            (99, "99s"),
            (100, "1m"),
            (7200, "2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
