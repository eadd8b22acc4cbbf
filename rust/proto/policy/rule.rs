// SPDX-License-Identifier: GPL-2.0

//! A rule, and what is known about a socket.

use super::pattern::{cost, glob, is_below, Network, Range};

/// Longest path of a program that is known, in bytes.
const PATH: usize = 255;
/// Longest name of a thread.
const NAME: usize = 15;

/// What a rule says about the sockets that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are SMC's.
    Allow,
    /// They are TCP's.
    Deny,
    /// They are SMC's where connections live long enough, and move enough, to pay.
    Auto,
    /// This part of their connections is SMC's, in percent.
    Share(u8),
}

impl Verdict {
    /// Tells whether sockets may be SMC's by it.
    pub const fn allows(self) -> bool {
        !matches!(self, Verdict::Deny | Verdict::Share(0))
    }
}

/// A rule: conditions, all of which must hold, and a verdict. `S` is a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<S> {
    /// What it says.
    pub verdict: Verdict,
    /// Path of the program's file, as the process's root directory shows it; a pattern for [`glob`].
    pub exe: Option<S>,
    /// Name of the thread; a pattern for [`glob`].
    pub comm: Option<S>,
    /// Path of a cgroup (version 2), which stands for itself and those below.
    pub cgroup: Option<S>,
    /// Effective user of the thread.
    pub uid: Option<u32>,
    /// Port of the socket itself.
    pub port: Option<Range>,
    /// Address of the peer.
    pub peer: Option<Network>,
    /// Port of the peer.
    pub peer_port: Option<Range>,
    /// True for sockets that ask for MPTCP, false for those that ask for TCP.
    pub mptcp: bool,
}

/// What is known about a socket. What a process cannot be asked for is empty, and matches no condition.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Path of the program's file.
    pub exe: &'a [u8],
    /// Name of the thread.
    pub comm: &'a [u8],
    /// Path of the cgroup.
    pub cgroup: &'a [u8],
    /// Effective user.
    pub uid: u32,
    /// Whether it asks for MPTCP; `None` when that does not matter any more.
    pub mptcp: Option<bool>,
    /// Port of the socket; `None` while it has none.
    pub port: Option<u16>,
    /// Address and port of the peer; `None` while there is none.
    pub peer: Option<([u8; 16], u16)>,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All conditions hold.
    Yes,
    /// One does not.
    No,
    /// None is broken, but some cannot be judged yet.
    Open,
}

impl<S: AsRef<[u8]>> Rule<S> {
    /// A rule without conditions.
    pub const fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            exe: None,
            comm: None,
            cgroup: None,
            uid: None,
            port: None,
            peer: None,
            peer_port: None,
            mptcp: false,
        }
    }

    /// Returns the most steps that its patterns take.
    pub fn cost(&self) -> usize {
        let of = |text: &Option<S>, len| text.as_ref().map_or(0, |text| cost(text.as_ref(), len));
        of(&self.exe, PATH).saturating_add(of(&self.comm, NAME))
    }

    /// Compares the conditions with what is known.
    pub fn judge(&self, facts: &Facts<'_>) -> Match {
        let text = |want: &Option<S>, have: &[u8], is: fn(&[u8], &[u8]) -> bool| match want {
            Some(want) => !have.is_empty() && is(want.as_ref(), have),
            None => true,
        };
        let process = facts.mptcp.is_none_or(|mptcp| mptcp == self.mptcp)
            && self.uid.is_none_or(|uid| uid == facts.uid)
            && text(&self.comm, facts.comm, glob)
            && text(&self.cgroup, facts.cgroup, is_below)
            && text(&self.exe, facts.exe, glob);
        if !process {
            return Match::No;
        }
        let mut result = Match::Yes;
        let mut needs = |condition: Option<bool>| match condition {
            Some(true) => (),
            Some(false) => result = Match::No,
            None if result == Match::Yes => result = Match::Open,
            None => (),
        };
        if let Some(port) = self.port {
            needs(facts.port.map(|have| port.has(have)));
        }
        if let Some(peer) = self.peer {
            needs(facts.peer.map(|(address, _)| peer.has(address)));
        }
        if let Some(port) = self.peer_port {
            needs(facts.peer.map(|(_, have)| port.has(have)));
        }
        result
    }
}
