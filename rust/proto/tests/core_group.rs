// SPDX-License-Identifier: GPL-2.0

//! Link groups: which one a connection joins, heartbeat, idle end, limits. Answers to LLC messages
//! are in `core_llc.rs`, the tables in `core_tables.rs`.

mod group_rig;

use group_rig::*;
use smc_proto::group::choice::*;
use smc_proto::group::*;
use smc_proto::llc::link::*;
use smc_proto::llc::rtoken::*;
use smc_proto::llc::*;
use smc_proto::reason::Reason;
use smc_proto::time::Span;
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::link::*;
use smc_proto::wire::llc::{Body, Message};

#[test]
fn server_joins_a_group_with_room() {
    let good = Candidate {
        key: KEY,
        usable: true,
        room: 1,
    };
    assert!(server_joins(&KEY, &good));
    assert!(!server_joins(&KEY, &Candidate { room: 0, ..good }));
    assert!(!server_joins(
        &KEY,
        &Candidate {
            usable: false,
            ..good
        }
    ));
    let other = Key { vlan: 5, ..KEY };
    assert!(!server_joins(&other, &good));
}

#[test]
fn client_follows_the_bit() {
    let links = [None, Some(END)];
    let choose = |first, version, end: LinkEnd, l| client_choice(first, version, &end, l);
    assert_eq!(choose(true, 2, END, None), ClientChoice::FirstContact);
    assert_eq!(
        choose(true, 2, END, Some(&links[..])),
        ClientChoice::FirstContact
    );
    assert_eq!(
        choose(false, 2, END, None),
        ClientChoice::Decline(Reason::SyncError)
    );
    assert_eq!(
        choose(false, 2, END, Some(&links[..])),
        ClientChoice::Join(1)
    );
    let no = ClientChoice::Decline(Reason::NoServerLink);
    let other_qp = LinkEnd {
        qpn: Qpn::new(6),
        ..END
    };
    assert_eq!(choose(false, 2, other_qp, Some(&links[..])), no);
    let other_mac = LinkEnd {
        mac: Mac([8; 6]),
        ..END
    };
    assert_eq!(
        choose(false, 2, other_mac, Some(&links[..])),
        ClientChoice::Join(1)
    );
    assert_eq!(choose(false, 1, other_mac, Some(&links[..])), no);
}

#[test]
fn heartbeat() {
    let mut g = active(Role::Client);
    assert_eq!(g.next_deadline(), Some(T0.after(TEST_IDLE)));
    assert_eq!(g.on_timer(T0), Todo::None);
    let t1 = T0.after(Span::from_secs(10));
    g.heard(t1);
    let t2 = t1.after(TEST_IDLE);
    assert_eq!(g.on_timer(T0.after(TEST_IDLE)), Todo::None);
    let Todo::Send(ask) = g.on_timer(t2) else {
        panic!()
    };
    assert_eq!(ask[..4], [0x27, 44, 0, 0]);
    assert_eq!(g.on_timer(t2), Todo::None);
    // An answer in time.
    let answer = smc_proto::wire::llc::reply(&ask, 0);
    let _ = g.on_llc(&answer, t2.after(Span(1)));
    assert_eq!(g.next_deadline(), Some(t2.after(Span(1)).after(TEST_IDLE)));
    // No answer.
    let t3 = t2.after(Span(1)).after(TEST_IDLE);
    assert!(matches!(g.on_timer(t3), Todo::Send(_)));
    // For as long as the device may repeat the question.
    assert_eq!(g.on_timer(t3.after(Span::from_secs(7))), Todo::None);
    let t4 = t3.after(DEVICE_PATIENCE);
    let dead = Todo::End {
        reason: EndReason::LinkLost,
        last: None,
    };
    assert_eq!(g.on_timer(t4), dead);
    assert_eq!(g.on_timer(t4), Todo::None);
    assert_eq!(g.next_deadline(), None);
    assert_eq!(g.link.state(), LinkState::Inactive);
    // Turned off.
    let mut off = terms(Role::Client);
    off.test_idle = Span::ZERO;
    let mut g = Group::new(off, 0, [Entry::FREE; 255], [0; 255]);
    for e in [
        LinkEvent::ToInit,
        LinkEvent::ToRtr,
        LinkEvent::ToRts,
        LinkEvent::Confirmed,
    ] {
        assert!(g.link.step(e, T0));
    }
    assert_eq!(g.next_deadline(), None);
}

#[test]
fn idle_groups_expire() {
    for (role, span) in [(Role::Server, IDLE_SERVER), (Role::Client, IDLE_CLIENT)] {
        let mut g = active(role);
        g.link = Link::new(Span::ZERO);
        for e in [
            LinkEvent::ToInit,
            LinkEvent::ToRtr,
            LinkEvent::ToRts,
            LinkEvent::Confirmed,
        ] {
            g.link.step(e, T0);
        }
        let (a, _) = g.add_conn().unwrap();
        let (b, _) = g.add_conn().unwrap();
        assert!(g.remove_conn(a, T0));
        assert!(!g.remove_conn(a, T0));
        assert_eq!(g.next_deadline(), None);
        assert!(g.remove_conn(b, T0));
        assert_eq!(g.next_deadline(), Some(T0.after(span)));
        let (c, _) = g.add_conn().unwrap();
        assert_eq!(g.next_deadline(), None);
        let t1 = T0.after(span);
        assert!(g.remove_conn(c, t1));
        assert_eq!(g.on_timer(t1), Todo::None);
        let Todo::End {
            reason: EndReason::Idle,
            last: Some(last),
        } = g.on_timer(t1.after(span))
        else {
            panic!()
        };
        let Body::DeleteLink(d) = Message::parse(&last).unwrap().body else {
            panic!()
        };
        assert!(d.all && d.orderly && d.reason == DeleteReason::PROGRAM);
        assert_eq!(g.add_conn(), None);
    }
}

#[test]
fn only_an_idle_group_is_ended_for_others() {
    let mut g = active(Role::Server);
    assert_eq!(g.idle_since(), None, "before its first connection");
    assert_eq!(g.end_if_idle(T0), Todo::None);
    let (a, _) = g.add_conn().unwrap();
    assert_eq!(g.idle_since(), None);
    assert_eq!(g.end_if_idle(T0), Todo::None);
    let t1 = T0.after(Span::from_secs(3));
    assert!(g.remove_conn(a, t1));
    assert_eq!(g.idle_since(), Some(t1));
    let (b, _) = g.add_conn().unwrap();
    assert_eq!(g.end_if_idle(t1), Todo::None, "it has a connection again");
    assert!(g.remove_conn(b, t1));
    let Todo::End {
        reason: EndReason::Idle,
        ..
    } = g.end_if_idle(t1)
    else {
        panic!()
    };
    assert_eq!(g.idle_since(), None);
    assert_eq!(g.end_if_idle(t1), Todo::None, "once");
}

#[test]
fn a_peer_that_takes_nothing_is_found_out() {
    let time = Span(TEST_IDLE.0 + WAIT_ANSWER.0);
    let lost = |todo| {
        matches!(
            todo,
            Todo::End {
                reason: EndReason::LinkLost,
                ..
            }
        )
    };
    let mut g = active(Role::Server);
    let beat = g.next_deadline().unwrap();
    assert_eq!(g.look(false, 0, T0), Todo::None);
    // The heartbeat comes first, and hears of the peer all the time.
    assert_eq!(g.next_deadline(), Some(beat));
    let mut now = T0.after(time);
    g.heard(now);
    // Something was sent in between, and may take its time.
    assert_eq!(g.look(true, 0, now), Todo::None);
    now = now.after(Span(time.0 - 1));
    g.heard(now);
    assert_eq!(g.look(true, 0, now), Todo::None);
    // One has ended at last, and that is enough for another while.
    now = now.after(Span(1));
    assert_eq!(g.look(true, 1, now), Todo::None);
    let later = now.after(Span(time.0 - 1));
    assert_eq!(g.look(true, 1, later), Todo::None);
    assert_eq!(g.look(false, 1, later), Todo::None, "all was taken");
    let later = now.after(time);
    assert_eq!(g.look(true, 1, later), Todo::None, "and more was sent");
    g.heard(later);
    assert!(lost(g.look(true, 1, later.after(time))));
    assert_eq!(g.look(true, 1, later.after(time)), Todo::None, "once");
    assert_eq!(g.next_deadline(), None);
    // Without a heartbeat there is a time, too.
    let mut off = terms(Role::Client);
    off.test_idle = Span::ZERO;
    let mut g = Group::new(off, 0, [Entry::FREE; 255], [0; 255]);
    assert_eq!(g.look(true, 0, T0), Todo::None);
    assert_eq!(g.next_deadline(), Some(T0.after(progress::STUCK)));
    assert!(lost(g.look(true, 0, T0.after(progress::STUCK))));
}

#[test]
fn a_registration_that_does_not_end_loses_the_link() {
    let mut g = active(Role::Server);
    let beat = g.next_deadline().unwrap();
    g.registers(T0);
    assert_eq!(g.next_deadline(), Some(beat.min(T0.after(REGISTRATION))));
    g.registered();
    assert_eq!(g.next_deadline(), Some(beat), "it has ended in time");
    g.registers(T0);
    let late = T0.after(REGISTRATION);
    g.heard(late);
    let early = T0.after(Span(REGISTRATION.0 - 1));
    assert_eq!(g.on_timer(early), Todo::None);
    assert!(matches!(
        g.on_timer(late),
        Todo::End {
            reason: EndReason::LinkLost,
            last: None
        }
    ));
    assert_eq!(g.next_deadline(), None);
}

#[test]
fn a_full_key_table_is_no_room() {
    let mut g = active(Role::Server);
    for n in 0..255 {
        assert!(g.candidate().room > 0);
        assert!(g.rtokens.add(0, region(n)).is_some());
    }
    assert_eq!(g.candidate().room, 0);
    g.rtokens.delete(0, [Rkey(3)], |known| assert!(known));
    assert_eq!(g.candidate().room, 16);
}

#[test]
fn connections_up_to_the_agreed_number() {
    let mut g = active(Role::Server);
    for n in 0..16 {
        assert_eq!(g.candidate().room, 16 - n);
        assert!(g.add_conn().is_some());
    }
    assert_eq!(g.add_conn(), None);
    assert_eq!(g.link_end(), Some(END));
    assert!(matches!(
        g.end(EndReason::Local, T0),
        Todo::End { last: Some(_), .. }
    ));
    assert_eq!(g.end(EndReason::Local, T0), Todo::None);
    assert_eq!((g.link_end(), g.candidate().usable), (None, false));
}

#[test]
fn a_server_names_the_link_before_the_client_has_noted_it() {
    for (role, early) in [(Role::Client, Some(END)), (Role::Server, None)] {
        let mut g = Group::new(terms(role), 0, [Entry::FREE; 255], [0; 255]);
        g.link.peer = Some(END);
        for (event, end) in [
            (LinkEvent::ToInit, None),
            (LinkEvent::ToRtr, None),
            (LinkEvent::ToRts, early),
            (LinkEvent::Confirmed, Some(END)),
        ] {
            assert!(g.link.step(event, T0));
            assert_eq!(g.link_end(), end, "{role:?} {event:?}");
        }
    }
}

fn seconds(after: u64) -> smc_proto::time::Instant {
    T0.after(Span::from_secs(after))
}

use hold::PortCheck::{Back, Gone, Moved};

const LOST: Todo = Todo::End {
    reason: EndReason::LinkLost,
    last: None,
};

/// A port that is back in time: connections go on, and new ones choose the group again.
#[test]
fn a_port_that_flaps_costs_nothing() {
    for role in [Role::Server, Role::Client] {
        let mut g = active(role);
        assert!(!g.has_been_held());
        g.hold(T0);
        assert!(g.is_held() && !g.candidate().usable && g.link_end().is_none());
        // The connection that runs goes on; a second failure does not begin anew.
        assert!(g.is_usable());
        g.hold(seconds(1));
        assert_eq!(g.next_deadline(), Some(T0.after(hold::LOOK)));
        g.release(seconds(2));
        assert!(!g.is_held() && g.candidate().usable && g.has_been_held());
        assert_eq!(g.link_end(), Some(END));
        assert_eq!(g.next_deadline(), Some(seconds(2).after(TEST_IDLE)));
        assert_eq!(g.on_timer(seconds(20)), Todo::None);
    }
}

#[test]
fn a_port_that_stays_down_loses_the_link() {
    let mut g = active(Role::Server);
    g.hold(T0);
    for second in 1..8 {
        assert_eq!(g.on_timer(seconds(second)), Todo::CheckPort);
        // Once.
        assert_eq!(g.on_timer(seconds(second)), Todo::None);
        assert_eq!(g.port_checked(Gone, seconds(second)), Todo::None);
        // A second failure does not begin it again.
        g.hold(seconds(second));
        assert_eq!(g.next_deadline(), Some(seconds(second + 1)));
    }
    assert_eq!(g.on_timer(seconds(8)), Todo::CheckPort);
    assert_eq!(g.port_checked(Gone, seconds(8)), LOST);
    assert_eq!(g.port_checked(Gone, seconds(8)), Todo::None);
}

/// An event that was lost: the port is found to be back, and a later failure is another one, though the port is down
/// when it would have been lost by the first.
#[test]
fn a_port_is_looked_at_before_the_link_is_lost() {
    let mut g = active(Role::Server);
    g.hold(T0);
    assert_eq!(g.on_timer(seconds(1)), Todo::CheckPort);
    assert_eq!(g.port_checked(Back, seconds(1)), Todo::None);
    assert!(g.candidate().usable);
    g.hold(seconds(7));
    assert_eq!(g.on_timer(seconds(8)), Todo::CheckPort);
    assert_eq!(g.port_checked(Gone, seconds(8)), Todo::None);
    assert!(!g.candidate().usable);
    // An address that has come back in another place: what runs goes on, and a server gives it nothing new.
    assert_eq!(g.on_timer(seconds(9)), Todo::CheckPort);
    assert_eq!(g.port_checked(Moved, seconds(9)), Todo::None);
    g.release(seconds(10));
    assert!(g.is_held() && !g.candidate().usable);
    assert_eq!(g.link_end(), Some(END));
    assert_eq!(g.on_timer(seconds(20)), Todo::None);
}

/// A port that is up between two looks alone: the peer was heard.
#[test]
fn a_port_that_brings_messages_is_not_down() {
    let mut g = active(Role::Server);
    g.hold(T0);
    g.heard(seconds(5));
    for second in 1..13 {
        assert_eq!(g.on_timer(seconds(second)), Todo::CheckPort);
        assert_eq!(g.port_checked(Gone, seconds(second)), Todo::None);
    }
    assert_eq!(g.on_timer(seconds(13)), Todo::CheckPort);
    assert_eq!(g.port_checked(Gone, seconds(13)), LOST);
}

/// What a look finds is older than an event that has come meanwhile.
#[test]
fn an_event_of_the_port_overrides_a_look() {
    let checking = || {
        let mut g = active(Role::Server);
        g.hold(T0);
        assert_eq!(g.on_timer(seconds(8)), Todo::CheckPort);
        g
    };
    // It has failed once more: there is another look.
    for found in [Back, Moved, Gone] {
        let mut g = checking();
        g.hold(seconds(8));
        assert_eq!(g.port_checked(found, seconds(8)), Todo::None);
        assert!(!g.candidate().usable && g.link_end().is_none());
        assert_eq!(g.next_deadline(), Some(seconds(9)));
    }
    // It is back, whatever comes after that.
    for found in [Back, Moved, Gone] {
        let mut g = checking();
        assert!(g.release(seconds(8)));
        assert_eq!(g.port_checked(found, seconds(8)), Todo::None);
        assert!(g.candidate().usable && !g.release(seconds(9)));
        g.hold(seconds(10));
        assert_eq!(g.port_checked(found, seconds(10)), Todo::None);
        assert_eq!(g.next_deadline(), Some(seconds(11)));
    }
}

/// What waits for the peer waits for longer while the port is down: the device repeats.
#[test]
fn no_answer_is_overdue_while_the_port_is_down() {
    let mut g = active(Role::Server);
    let asked = T0.after(TEST_IDLE);
    assert!(matches!(g.on_timer(asked), Todo::Send(_)));
    g.registers(asked);
    g.hold(asked);
    let late = asked.after(Span::from_secs(7));
    assert_eq!(g.on_timer(late), Todo::CheckPort);
    assert_eq!(g.port_checked(Gone, late), Todo::None);
    g.release(late);
    assert_eq!(g.on_timer(late), Todo::None);
    assert_eq!(g.next_deadline(), Some(late.after(REGISTRATION)));
    g.registered();
    assert_eq!(g.next_deadline(), Some(late.after(TEST_IDLE)));
    // Held twice in a row, as a port that flaps does: each time anew.
    g.hold(late);
    assert_eq!(g.next_deadline(), Some(late.after(hold::LOOK)));
}
