// SPDX-License-Identifier: GPL-2.0

//! The driver of a handshake over an endpoint that does what a test says.

#[path = "../sim/mod.rs"]
mod sim;

use sim::handshake::{Net, Weather};
use smc_proto::handshake::driver::*;
use smc_proto::handshake::endpoint::*;
use smc_proto::handshake::*;
use smc_proto::llc::responder::LlcEvent;
use smc_proto::reason::Reason;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::clc::proposal::Prefixes;
use smc_proto::wire::clc::*;
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::Frame;
use std::collections::VecDeque;

/// An endpoint whose operations succeed at once unless a test says otherwise.
struct Script {
    now: Instant,
    /// Bytes that have arrived.
    stream: VecDeque<u8>,
    /// The peer's FIN is after them.
    shut: bool,
    tcp_failed: bool,
    /// Steps are put off.
    defers: bool,
    /// Result of `acquire`; `None` for another first contact under way.
    acquired: Option<Acquired>,
    /// Result of `take_v1`.
    v1: Result<(), Reason>,
    event: Option<LlcEvent>,
    link_lost: bool,
    /// Operations in their order.
    calls: Vec<&'static str>,
    sent: Vec<Vec<u8>>,
}

impl Endpoint for Script {
    type Buffer = [u8; MAX_LEN];
    type Proposal = Box<Proposal>;

    fn now(&self) -> Instant {
        self.now
    }

    fn buffer(&self) -> Option<Self::Buffer> {
        Some([0; MAX_LEN])
    }

    fn proposal(&self) -> Option<Box<Proposal>> {
        Some(Box::default())
    }

    fn admits(&mut self, _: &Step) -> bool {
        !self.defers
    }

    fn send(&mut self, message: &[u8]) -> bool {
        self.calls.push("send");
        self.sent.push(message.to_vec());
        !self.tcp_failed
    }

    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        let n = self.peek(buf)?;
        self.stream.drain(..n);
        Ok(n)
    }

    fn peek(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        if self.tcp_failed {
            return Err(StreamError::Failed);
        }
        if self.stream.is_empty() && !self.shut {
            return Err(StreamError::Empty);
        }
        let n = buf.len().min(self.stream.len());
        for (to, from) in buf.iter_mut().zip(&self.stream) {
            *to = *from;
        }
        Ok(n)
    }

    fn is_shut(&self) -> bool {
        self.shut
    }

    fn take_v1(&mut self, _: &Prefixes) -> Result<(), Reason> {
        self.calls.push("take_v1");
        self.v1
    }

    fn acquire(&mut self, _: &Want, _: Option<&RdmaEnd>) -> Result<Option<Acquired>, Reason> {
        self.calls.push("acquire");
        Ok(self.acquired)
    }

    fn adopt(&mut self, _: bool, _: Mtu, _: &RdmaEnd) -> Result<(), Reason> {
        self.calls.push("adopt");
        Ok(())
    }

    fn to_rts(&mut self) -> Result<(), Reason> {
        self.calls.push("to_rts");
        Ok(())
    }

    fn send_llc(&mut self, _: &Frame, _: bool) -> Result<(), Reason> {
        self.calls.push("send_llc");
        Ok(())
    }

    fn take_llc(&mut self) -> Option<LlcEvent> {
        self.event.take()
    }

    fn is_link_lost(&self) -> bool {
        self.link_lost
    }

    fn expose(&mut self) {
        self.calls.push("expose");
    }

    fn agreed(&mut self, _: &Agreement) {
        self.calls.push("agreed");
    }

    fn declined(&mut self) {
        self.calls.push("declined");
    }
}

impl Script {
    fn arrive(&mut self, bytes: &[u8]) {
        self.stream.extend(bytes);
    }

    /// Lets time pass.
    fn wait(&mut self, span: Span) {
        self.now = self.now.after(span);
    }

    /// The operations since the last call.
    fn calls(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls)
    }
}

const ELIGIBLE: Eligibility = Eligibility {
    option: true,
    refuse: None,
};
const T0: Instant = Instant(5);

/// The messages of a first contact: proposal, accept, confirm.
fn messages() -> [Vec<u8>; 3] {
    let r = Net::new(1).run(&Weather::fine(1));
    [&r.sent[0][0], &r.sent[1][0], &r.sent[0][1]].map(Vec::clone)
}

fn script() -> Script {
    let End::R(end) = Agreement::parse_accept(&messages()[1]).unwrap().end else {
        panic!()
    };
    Script {
        now: T0,
        stream: VecDeque::new(),
        shut: false,
        tcp_failed: false,
        defers: false,
        acquired: Some(Acquired {
            end,
            first_contact: true,
            direct: true,
        }),
        v1: Ok(()),
        event: None,
        link_lost: false,
        calls: Vec::new(),
        sent: Vec::new(),
    }
}

fn server() -> (Driver<[u8; MAX_LEN]>, Script) {
    let policy = Policy::new(PeerId([9; 8]), b"x");
    (Driver::server(&policy, &ELIGIBLE, T0), script())
}

fn client() -> (Driver<[u8; MAX_LEN]>, Script) {
    let policy = Policy::new(PeerId([1; 8]), b"x");
    let port = Port {
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        mac: Mac([2; 6]),
        v1: None,
    };
    (Driver::client(&policy, port, &ELIGIBLE), script())
}

fn decline() -> Vec<u8> {
    let mut b = [0; MAX_LEN];
    let d = Decline::new(V2, Reason::ConfirmLinkTimeout, PeerId([3; 8]));
    let n = d.emit(&mut b).unwrap();
    b[..n].to_vec()
}

fn fell_back(progress: Progress) -> (Reason, bool) {
    match progress {
        Progress::Done(Outcome::Fallback { reason, strip, .. }) => (reason, strip),
        other => panic!("{other:?}"),
    }
}

/// A server that has sent CONFIRM_LINK and waits for the answer.
fn confirming_server() -> (Driver<[u8; MAX_LEN]>, Script) {
    let [proposal, _, confirm] = messages();
    let (mut d, mut s) = server();
    s.arrive(&proposal);
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(s.calls(), ["acquire", "expose", "send"]);
    s.arrive(&confirm);
    assert_eq!(
        d.advance(&mut s),
        Progress::Awaiting(T0.after(WAIT_SERVER_LLC))
    );
    assert_eq!(s.calls(), ["agreed", "adopt", "send_llc"]);
    (d, s)
}

fn confirm_link() -> LlcEvent {
    LlcEvent::ConfirmLink {
        message: smc_proto::wire::llc::link::ConfirmLink {
            link_num: 7,
            link_uid: [1, 2, 3, 4],
            ..Default::default()
        },
        no_eyecatcher: true,
    }
}

#[test]
fn a_server_takes_its_steps_in_order() {
    let (mut d, mut s) = confirming_server();
    s.event = Some(confirm_link());
    assert_eq!(d.advance(&mut s), Progress::Done(Outcome::Established));
    let link = d.link();
    assert_eq!(
        (link.number, link.peer_uid),
        (server::FIRST_LINK, [1, 2, 3, 4])
    );
}

/// What a server does meanwhile is not held against its client.
#[test]
fn a_client_is_silent_while_it_is_its_turn() {
    let span = Span::from_secs(2);
    let [proposal, _, confirm] = messages();
    let (mut d, mut s) = server();
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(d.silent_for(span), Some(T0.after(span)));
    s.now = T0.after(Span::from_secs(1));
    s.arrive(&proposal);
    let acquired = s.acquired.take();
    assert!(matches!(d.advance(&mut s), Progress::Queued(_)));
    assert_eq!(d.silent_for(span), None);
    s.now = T0.after(Span::from_secs(4));
    s.acquired = acquired;
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(d.silent_for(span), Some(s.now.after(span)));
    s.arrive(&confirm);
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(d.silent_for(span), None);
    // Now for a decline.
    s.now = s.now.after(WAIT_SERVER_LLC);
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(d.silent_for(span), None);
}

#[test]
fn a_client_takes_its_steps_in_order() {
    let (mut d, mut s) = client();
    assert_eq!(d.advance(&mut s), Progress::Awaiting(T0.after(WAIT_CLC)));
    assert_eq!(s.calls(), ["send"], "a proposal names no RMBE");
    s.arrive(&messages()[1]);
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(s.calls(), ["agreed", "acquire", "expose", "send"]);
    s.event = Some(confirm_link());
    assert_eq!(
        d.advance(&mut s),
        Progress::Awaiting(T0.after(WAIT_DELIVERED))
    );
    assert_eq!(s.calls(), ["to_rts", "send_llc"]);
    s.event = Some(LlcEvent::Delivered);
    assert_eq!(d.advance(&mut s), Progress::Done(Outcome::Established));
    assert_eq!(d.link().number, 7);
}

/// A client whose answer is on its way.
fn answered_client() -> (Driver<[u8; MAX_LEN]>, Script) {
    let (mut d, mut s) = client();
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    s.arrive(&messages()[1]);
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    s.event = Some(confirm_link());
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    (d, s)
}

/// A server that has the answer may be done with its connection before the client knows of that.
#[test]
fn a_client_waits_for_its_answer_beyond_the_end_of_the_stream() {
    let (mut d, mut s) = answered_client();
    s.shut = true;
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    s.event = Some(LlcEvent::Delivered);
    assert_eq!(d.advance(&mut s), Progress::Done(Outcome::Established));

    let (mut d, mut s) = answered_client();
    s.shut = true;
    s.wait(WAIT_DELIVERED);
    let failed = Progress::Done(Outcome::Failed(Failure::Tcp));
    assert_eq!(d.advance(&mut s), failed);
}

/// An answer that does not get through leads to TCP, at the server's word or, in time, without one.
#[test]
fn an_answer_that_is_not_delivered_is_no_connection() {
    let (mut d, mut s) = answered_client();
    s.arrive(&decline());
    assert_eq!(fell_back(d.advance(&mut s)).0, Reason::PeerDeclined);
    for (lost, reason) in [
        (false, Reason::ConfirmLinkTimeout),
        (true, Reason::ReadyLinkError),
    ] {
        let (mut d, mut s) = answered_client();
        s.link_lost = lost;
        if !lost {
            s.wait(WAIT_DELIVERED);
        }
        let until = s.now.after(WAIT_DECLINE);
        assert_eq!(d.advance(&mut s), Progress::Awaiting(until));
        s.wait(WAIT_DECLINE);
        assert_eq!(fell_back(d.advance(&mut s)), (reason, true));
    }
}

/// Whatever the segmentation, a message is taken whole, and nothing after it.
#[test]
fn not_a_byte_too_many_is_taken() {
    let [proposal, _, _] = messages();
    for cut in 0..=proposal.len() {
        let (mut d, mut s) = server();
        s.acquired = None;
        s.arrive(&proposal[..cut]);
        let progress = d.advance(&mut s);
        assert_eq!(
            matches!(progress, Progress::Awaiting(_)),
            cut < proposal.len()
        );
        // Nothing before a whole header.
        assert_eq!(d.has_begun(), cut >= 8);
        assert_eq!(s.stream.len(), if cut < 8 { cut } else { 0 });
        s.arrive(&proposal[cut..]);
        s.arrive(b"data");
        assert!(matches!(d.advance(&mut s), Progress::Queued(_)));
        assert_eq!(s.stream, b"data");
    }
}

#[test]
fn a_program_that_speaks_first_keeps_its_bytes() {
    for text in [&b"GET / HTTP/1.1\r\n"[..], &b"x"[..], &[0xe2, 0xd4, 0x20]] {
        let (mut d, mut s) = server();
        s.arrive(text);
        assert_eq!(
            fell_back(d.advance(&mut s)),
            (Reason::PeerNotSmc, false),
            "{text:?}"
        );
        assert_eq!(s.stream, text);
        assert!(!d.has_begun());
    }
}

#[test]
fn a_step_that_is_put_off_is_taken_later() {
    let (mut d, mut s) = client();
    s.defers = true;
    assert_eq!(d.advance(&mut s), Progress::Deferred);
    assert_eq!(d.advance(&mut s), Progress::Deferred);
    assert!(s.calls().is_empty());
    s.defers = false;
    assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
    assert_eq!(s.calls(), ["send"]);
}

#[test]
fn another_first_contact_is_waited_for_only_so_long() {
    let [proposal, _, _] = messages();
    for comes in [true, false] {
        let (mut d, mut s) = server();
        let acquired = s.acquired.take();
        s.arrive(&proposal);
        let until = T0.after(WAIT_FIRST_CONTACT);
        assert_eq!(d.advance(&mut s), Progress::Queued(until));
        s.wait(Span::from_secs(4));
        assert_eq!(d.advance(&mut s), Progress::Queued(until), "the same wait");
        if comes {
            s.acquired = acquired;
            assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
            assert_eq!(s.sent.last().unwrap()[4], MsgType::Accept.code());
            continue;
        }
        s.wait(Span::from_secs(1));
        assert_eq!(
            fell_back(d.advance(&mut s)),
            (Reason::ConfirmLinkTimeout, false)
        );
        assert_eq!(s.sent.last().unwrap()[4], MsgType::Decline.code());
    }
}

/// The wait for a decline may end between its segments; its rest would then be the program's.
#[test]
fn a_decline_is_taken_whole_or_not_at_all() {
    let decline = decline();
    for cut in 0..decline.len() {
        let (mut d, mut s) = confirming_server();
        s.arrive(&decline[..cut]);
        assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
        s.wait(WAIT_SERVER_LLC);
        assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
        s.wait(WAIT_DECLINE);
        assert_eq!(
            fell_back(d.advance(&mut s)),
            (Reason::ConfirmLinkTimeout, true)
        );
        assert_eq!(s.stream, &decline[..cut]);
        assert!(!s.calls().contains(&"declined"));
    }
    let (mut d, mut s) = confirming_server();
    s.arrive(&decline);
    s.arrive(b"data");
    assert_eq!(fell_back(d.advance(&mut s)).0, Reason::PeerDeclined);
    assert_eq!(
        (s.stream, s.calls),
        (VecDeque::from(*b"data"), vec!["declined"])
    );
}

#[test]
fn a_decline_that_the_fin_cuts_short_breaks_the_handshake() {
    let (mut d, mut s) = confirming_server();
    s.arrive(&decline()[..20]);
    s.shut = true;
    assert_eq!(
        d.advance(&mut s),
        Progress::Done(Outcome::Failed(Failure::Tcp))
    );
}

/// The client's answer on the link may come after the end of its stream.
#[test]
fn a_server_waits_for_the_link_beyond_the_end_of_the_stream() {
    for failed in [false, true] {
        let (mut d, mut s) = confirming_server();
        s.shut = !failed;
        s.tcp_failed = failed;
        assert!(matches!(d.advance(&mut s), Progress::Awaiting(_)));
        s.event = Some(confirm_link());
        assert_eq!(d.advance(&mut s), Progress::Done(Outcome::Established));

        let (mut d, mut s) = confirming_server();
        s.shut = !failed;
        s.tcp_failed = failed;
        s.wait(WAIT_SERVER_LLC);
        assert_eq!(
            d.advance(&mut s),
            Progress::Done(Outcome::Failed(Failure::Tcp))
        );
    }
}

#[test]
fn an_event_that_has_come_counts_before_the_loss_of_the_link() {
    let (mut d, mut s) = confirming_server();
    s.event = Some(confirm_link());
    s.link_lost = true;
    assert_eq!(d.advance(&mut s), Progress::Done(Outcome::Established));

    let (mut d, mut s) = confirming_server();
    s.link_lost = true;
    assert_eq!(
        d.advance(&mut s),
        Progress::Awaiting(T0.after(WAIT_DECLINE)),
        "a decline may explain it"
    );
    s.wait(WAIT_DECLINE);
    assert_eq!(fell_back(d.advance(&mut s)), (Reason::ReadyLinkError, true));
}
