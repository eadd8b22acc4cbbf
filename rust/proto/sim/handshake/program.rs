// SPDX-License-Identifier: GPL-2.0

//! The end of a simulated handshake: its programs on TCP, and what must hold then.

use super::side::Side;
use super::{Net, SimDriver, Weather};
use smc_proto::group::EndReason;
use smc_proto::handshake::strip::{judge, Verdict};
use smc_proto::handshake::*;
use smc_proto::llc::link::LinkEvent;
use smc_proto::wire::clc::Extensions;

impl Net {
    /// Settles the outcome for group, link and TCP.
    pub(super) fn finish(
        &mut self,
        sides: &mut [Side; 2],
        driver: &SimDriver,
        me: usize,
        outcome: Outcome,
    ) {
        let now = self.now;
        let s = &mut sides[me];
        s.wake_at = None;
        s.outcome = Some(outcome);
        let group = &mut self.host[me].group;
        match outcome {
            Outcome::Established => {
                let g = group.as_mut().expect("a group");
                if s.new_group {
                    assert!(g.link.step(LinkEvent::Confirmed, now));
                    g.link.number = driver.link().number;
                    assert_eq!(g.link.number, server::FIRST_LINK);
                }
                assert!(s.exposed && s.agreement.is_some());
                assert!(peer(driver.peer_end().unwrap(), Extensions::ALL).is_some());
            }
            Outcome::Fallback { .. } | Outcome::Failed(_) => {
                if s.new_group {
                    // Rolled back: the queue pair is gone, which the other side will notice.
                    *group = None;
                    self.link_up = false;
                } else if let (Some(g), Some(own)) = (group.as_mut(), &s.own) {
                    g.remove_conn(own.token, now);
                }
                if let Outcome::Fallback {
                    out_of_sync: true, ..
                } = outcome
                {
                    if let Some(g) = group.as_mut() {
                        let _ = g.end(EndReason::OutOfSync, now);
                    }
                    *group = None;
                    self.link_up = false;
                }
                if let Outcome::Fallback { peer, .. } = outcome {
                    assert_eq!(peer.is_some(), s.declined);
                }
                if let Outcome::Failed(_) = outcome {
                    s.tcp_closed = true;
                }
            }
        }
    }

    /// The program of a side that fell back writes and reads.
    pub(super) fn program(&mut self, sides: &mut [Side; 2], me: usize) -> bool {
        let Some(Outcome::Fallback { strip, .. }) = sides[me].outcome else {
            return false;
        };
        let mut moved = false;
        if sides[me].app_wrote.is_empty() {
            let text = format!("the program's own words, side {me}, and some more of them");
            sides[me].app_wrote = text.clone().into_bytes();
            let w = Weather::fine(0);
            self.transmit(&w, sides, me, text.as_bytes());
            moved = true;
        }
        let s = &mut sides[me];
        if s.arrived.is_empty() {
            return moved;
        }
        let first: Vec<u8> = s.arrived.iter().take(64).copied().collect();
        if strip && s.app_read.is_empty() {
            match judge(&first) {
                Verdict::Data => {}
                Verdict::NeedMore => return moved,
                Verdict::Decline(n) => {
                    s.arrived.drain(..n);
                    return true;
                }
            }
        }
        s.app_read.extend(s.arrived.drain(..));
        true
    }

    pub(super) fn check(&mut self, drivers: &[SimDriver; 2], sides: &[Side; 2]) {
        for me in 0..2 {
            let (s, o) = (&sides[me], &sides[1 - me]);
            let outcome = s.outcome.expect("an outcome");
            assert!(
                o.app_wrote.starts_with(&s.app_read),
                "side {me} read what no program wrote: {:?} ({:?} {:?})",
                s.app_read,
                outcome,
                o.outcome
            );
            let both = matches!(outcome, Outcome::Fallback { .. })
                && matches!(o.outcome, Some(Outcome::Fallback { .. }));
            if both {
                assert_eq!(s.app_read, o.app_wrote, "side {me} lost bytes");
            }
            if outcome == Outcome::Established && o.outcome != Some(Outcome::Established) {
                let hopeless = !self.link_up || o.tcp_closed;
                assert!(hopeless, "side {me} speaks SMC to nobody: {:?}", o.outcome);
            }
        }
        if sides
            .iter()
            .all(|s| s.outcome == Some(Outcome::Established))
        {
            for me in 0..2 {
                let heard = drivers[me].peer_end().unwrap();
                let own = sides[1 - me].own.unwrap();
                assert_eq!(heard.token, own.token);
                assert_eq!(
                    (heard.qpn, heard.rkey, heard.addr),
                    (own.qpn, own.rkey, own.addr)
                );
                assert_eq!(heard.rmbe_idx, own.rmbe_idx);
            }
        } else if !self.link_up {
            // Whoever is left with a dead link loses its group.
            for h in &mut self.host {
                h.group = None;
            }
        }
    }
}
