// SPDX-License-Identifier: GPL-2.0

//! The TCP options by which two ends find out what they have in common.
//!
//! One says that a host speaks SMC (RFC 7609, section 3.1). The other, [`Identity`], says that it has
//! this module, in a way by which it knows itself. A SYN carries both, as far as there is room. The SYN-ACK has one
//! of the two: SMC's, and CLC messages precede the program's bytes; or the identity alone, and the
//! connection is TCP's until something moves it. With both in it, a box that strips one of them would
//! make the client say CLC to a program.
//!
//! Some servers and middleboxes send back whatever options a SYN had. Believing such an answer would
//! put CLC messages into a stream that the server takes for its own. What only a SYN carries shows an
//! echo: an identity that is no answer or, where `path` is 0, a canary, an option that says nothing.

use crate::host::{
    peer_addr::PeerAddr,
    silent,
    sysctl::{Sysctl, Sysctls}, //
};
use kapi::{
    net::stock::syn::{self, OptionBytes, Syn, SynAck, SynContext},
    sys::clock, //
};
use kernel::sync::{
    atomic::{Acquire, Atomic, Full, Relaxed},
    SetOnce, //
};
use smc_proto::wire::{
    identity::{Identity, Numbers, Proof},
    tcp_option, //
};

/// Kind 253, "RFC 3692-style experiment 1", length 8, "rsmc" and two bytes of zero.
const CANARY: [u8; 8] = [253, 8, b'r', b's', b'm', b'c', 0, 0];
/// Room for options in a TCP header.
const OPTIONS_MAX: usize = 40;

const OPTION: [u8; 8] = tcp_option::OPTION;

/// The SYN that is sent for the third time, and later ones, have no option: something on the way may let only such
/// SYNs pass, and TCP would have connected.
///
/// The second one still has it. SYNs are lost on good networks, too, and dropped by servers whose queues are
/// full; after one such loss the connection would be TCP's for all its life, and the peer blamed. Two in a row are
/// rare. It costs the first connection to a bad peer a second more (the kernel sends SYNs each second at first), and
/// is what TCP itself does with the ECN bits of its SYNs.
///
/// The two ends agree all the same, because neither goes by the SYNs that were sent. The server answers, and
/// later judges the connection, by the one SYN that made its request, which it keeps; a further SYN only has it
/// send the same answer again. The client goes by the SYN-ACK:
///
/// * The server got an early SYN, its SYN-ACK was lost, and the third SYN has it sent again: with the option, and
///   that is the answer of a server that will speak CLC, or move the connection. So it counts, though the last
///   SYN had none.
/// * The early SYNs were lost: the third one made the request, and the SYN-ACK has no option. Both are TCP.
/// * An early SYN arrives after the third one: it finds the request of the third, and changes nothing.
/// * A server that has forgotten the request between two SYNs makes another one with another initial sequence number:
///   whatever the client had believed of the first SYN-ACK, that connection is reset, as in TCP.
/// * A server that sends options back may answer an early SYN: what only a SYN has is then in the SYN-ACK, as ever.
///
/// A connection none of whose SYNs had an option ([`Choice::BARE`]) has nothing to be told.
pub(crate) const SILENCE: u32 = 2;

/// The secret by which this kernel recognises its own SYNs and SYN-ACKs, random for each load of the module.
static HOST: SetOnce<[u64; 2]> = SetOnce::new();

/// Draws the secret of this kernel. Called when the module is loaded, before there are sockets.
pub(crate) fn draw_secret() {
    let secret = [(), ()].map(|()| {
        let mut word = [0; 8];
        clock::random(&mut word);
        u64::from_ne_bytes(word)
    });
    HOST.populate(secret);
}

/// Returns what shows an end that may share memory with this one that the connection is within this kernel.
fn proof(choice: Choice, net: u64, numbers: Numbers) -> Option<Proof> {
    let secret = HOST.as_ref().copied()?;
    // The namespace's, or that of all namespaces which allow paths to others.
    let scope = if choice.wide { 0 } else { net };
    Some(Proof::of(secret, scope, numbers))
}

/// The same, of a SYN-ACK.
fn proof_of_answer(choice: Choice, net: u64, syn_ack: &SynAck<'_>) -> Option<Proof> {
    let (client, server) = syn_ack.numbers;
    proof(choice, net, Numbers::SynAck(client, server))
}

/// Time of the last SYN-ACK whose connection speaks SMC, in seconds since boot, plus one; 0 for never.
static LAST_OFFER: Atomic<u64> = Atomic::new(0);
/// Number of such connections that have not come out of TCP's queues. Some never do.
static OFFERS: Atomic<i64> = Atomic::new(0);
/// Longest time between the SYN-ACK and the end of a connection's TCP handshake, in seconds: the
/// kernel retries for a minute.
const OFFER_LIFETIME: u64 = 180;

/// Tells whether connections that speak SMC may be arriving, or wait in TCP's queues.
pub(crate) fn offers_outstanding() -> bool {
    // In this order, as they are written in the other one: an offer that is counted is seen to be a new one.
    let offers = OFFERS.load(Acquire);
    if offers <= 0 {
        return false;
    }
    let last = LAST_OFFER.load(Relaxed);
    let lives = clock::seconds().saturating_sub(last) < OFFER_LIFETIME;
    if !lives {
        // Of all these nothing comes any more.
        let _ = OFFERS.cmpxchg(offers, 0, Full);
    }
    lives
}

/// Takes note that a connection that will speak SMC may come.
fn offered() {
    LAST_OFFER.store(clock::seconds().saturating_add(1), Relaxed);
    OFFERS.fetch_add(1, Full);
}

/// Takes note that a connection was taken out of TCP's queue.
pub(crate) fn arrived(answer: Answer) {
    if !matches!(answer, Answer::Smc | Answer::Join) {
        return;
    }
    let mut offers = OFFERS.load(Relaxed);
    while offers > 0 {
        match OFFERS.cmpxchg(offers, offers.wrapping_sub(1), Full) {
            Ok(_) => return,
            Err(now) => offers = now,
        }
    }
}

/// Order of TCP and SMC on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// CLC messages before data.
    Clc,
    /// TCP first where the two ends may share memory, CLC before data with others.
    Local,
    /// TCP first with every host that has this module.
    Path,
    /// The same, and this kernel counts as another host: no two ends share memory.
    Far,
    /// As `Local`, for a program that accepts no TCP.
    Strict,
    /// TCP alone: neither end says anything.
    Bare,
    /// A side connection of two kernels; see [`crate::socket::promotion`].
    Join,
}

/// Choice of a socket, or of its namespace: what its SYN or SYN-ACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    order: Order,
    /// Ends in other namespaces may share memory with it.
    wide: bool,
}

impl Choice {
    /// CLC messages before data.
    pub(crate) const CLC: Self = Self {
        order: Order::Clc,
        wide: false,
    };

    /// No option, so the connection is TCP's: of a client, or of a listener that does not offer SMC at present.
    pub(crate) const BARE: Self = Self {
        order: Order::Bare,
        wide: false,
    };

    /// A side connection of two kernels.
    pub(crate) const JOIN: Self = Self {
        order: Order::Join,
        wide: true,
    };

    /// Returns the choice of a socket whose setting is `path`, or the namespace's if that is negative. A program that
    /// `names` SMC, by its address family, has CLC before data with other hosts unless it has set something else.
    pub(crate) fn of(path: i32, sysctls: &Sysctls, strict: bool, names: bool) -> Self {
        let path = match path {
            0.. => path,
            _ if names => sysctls.get(Sysctl::Path).min(1),
            _ => sysctls.get(Sysctl::Path),
        };
        let local = sysctls.get(Sysctl::PathLocal);
        let order = match path {
            1 if local == 0 => Order::Clc,
            2 if local == 0 && strict => Order::Clc,
            1 | 2 if strict => Order::Strict,
            1 => Order::Local,
            2 if local == 0 => Order::Far,
            2 => Order::Path,
            _ => Order::Clc,
        };
        Self {
            order,
            wide: local == 2,
        }
    }

    /// Tells whether a connection with another host may begin as TCP.
    fn begins_far(self) -> bool {
        matches!(self.order, Order::Path | Order::Far)
    }

    /// Returns the number that stands for this choice in [`SynContext`].
    pub(crate) fn number(self) -> u8 {
        let order = match self.order {
            Order::Clc => 0,
            Order::Local => 1,
            Order::Path => 2,
            Order::Strict => 3,
            Order::Bare => 4,
            Order::Far => 5,
            // With `wide` that of [`syn::OWN_CHOICE`].
            Order::Join => 7,
        };
        2 * order + u8::from(self.wide)
    }

    fn from_number(number: u8) -> Self {
        let order = match number / 2 {
            1 => Order::Local,
            2 => Order::Path,
            3 => Order::Strict,
            4 => Order::Bare,
            5 => Order::Far,
            7 => Order::Join,
            _ => Order::Clc,
        };
        Self {
            order,
            wide: number % 2 != 0,
        }
    }
}

/// The answer of a server to a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No option: TCP.
    Tcp = 0,
    /// SMC's option.
    Smc = 1,
    /// The identity of this kernel.
    Local = 2,
    /// The identity of another host.
    Remote = 3,
    /// The SYN's own words: TCP, from a peer that sends back what it does not understand.
    Echo = 4,
    /// A side connection of two kernels is taken.
    Join = 5,
}

impl Answer {
    /// Returns the answer that `syn::answered` tells of, or `syn::answer_to_saved_syn`.
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Smc,
            2 => Self::Local,
            3 => Self::Remote,
            4 => Self::Echo,
            5 => Self::Join,
            _ => Self::Tcp,
        }
    }
}

/// Returns how a listener of the namespace `net` with this choice answers a SYN. (The in-tree module puts SMC's option
/// into signed SYNs, too, and so its answer may not be.)
fn answer_to(choice: Choice, net: u64, syn: &Syn<'_>) -> Answer {
    let scan = tcp_option::scan(syn.options);
    let peer = scan.identity.filter(|peer| !peer.answer && !scan.signed);
    if peer.is_some_and(|peer| peer.joins) {
        return match choice.begins_far() {
            true => Answer::Join,
            false => Answer::Tcp,
        };
    }
    if let (Some(peer), false) = (peer, choice.order == Order::Clc) {
        let far = choice.order == Order::Far;
        if !far && proof(choice, net, Numbers::Syn(syn.number)) == Some(peer.proof) {
            return Answer::Local;
        }
        // Others want CLC: their `path` is not 2, or their module does not know of promotion.
        if choice.begins_far() && peer.first {
            return Answer::Remote;
        }
    }
    match scan.offers() {
        true => Answer::Smc,
        false => Answer::Tcp,
    }
}

fn echoed(options: &[u8]) -> bool {
    let [kind, len, a, b, c, d, ..] = CANARY;
    let head = [kind, len, a, b, c, d];
    let mut windows = options.windows(head.len());
    windows.any(|window| window.first() == Some(&kind) && window == head)
}

/// Returns whether options may be added to these, and room for how many bytes there is.
fn room(options: &[u8]) -> Option<usize> {
    let scan = tcp_option::scan(options);
    if scan.signed || scan.malformed || scan.smc.is_some() || scan.identity.is_some() {
        return None;
    }
    Some(OPTIONS_MAX.saturating_sub(options.len()))
}

/// Returns SMC's option and `companion`, or without it if there is no room for both.
fn with(companion: &[u8], room: usize) -> Option<OptionBytes> {
    if room >= OPTION.len().saturating_add(companion.len()) {
        Some(OptionBytes::new(&[&OPTION, companion]))
    } else {
        (room >= OPTION.len()).then(|| OptionBytes::new(&[&OPTION]))
    }
}

/// The policy of the SYN hooks.
pub(crate) struct Announce;

impl syn::Policy for Announce {
    fn syn(context: SynContext, syn: Syn<'_>) -> Option<OptionBytes> {
        let choice = Choice::from_number(context.choice);
        if choice == Choice::BARE || context.again >= SILENCE {
            return None;
        }
        let room = room(syn.options)?;
        if choice.order == Order::Clc {
            return with(&CANARY, room);
        }
        let identity = Identity {
            proof: proof(choice, context.net, Numbers::Syn(syn.number))?,
            answer: false,
            strict: choice.order == Order::Strict,
            joins: choice.order == Order::Join,
            first: choice.begins_far(),
        };
        if identity.joins {
            // Alone: a peer that does not know it is to say nothing.
            let bytes = identity.bytes();
            return (room >= bytes.len()).then(|| OptionBytes::new(&[&bytes]));
        }
        with(&identity.bytes(), room)
    }

    fn syn_ack(
        context: SynContext,
        peer: [u8; 16],
        syn: Syn<'_>,
        syn_ack: SynAck<'_>,
    ) -> Option<(OptionBytes, u8)> {
        let choice = Choice::from_number(context.choice);
        if choice == Choice::BARE {
            return None;
        }
        // TCP's own options, which are signed only where the SYN's are.
        let room = OPTIONS_MAX.saturating_sub(syn_ack.options.len());
        let answer = answer_to(choice, context.net, &syn);
        let added = match answer {
            Answer::Tcp | Answer::Echo => None,
            // What was answered once is so again.
            Answer::Smc | Answer::Join
                if context.again == 0
                    && silent::refuses(&PeerAddr {
                        address: peer,
                        namespace: context.net,
                    }) =>
            {
                None
            }
            Answer::Smc => with(&[], room),
            // Without room for it there is no option at all: the server takes the connection for one that
            // may move, and a client that says CLC would say it to the program.
            Answer::Local | Answer::Remote | Answer::Join => {
                let identity = Identity {
                    proof: proof_of_answer(choice, context.net, &syn_ack)?,
                    answer: true,
                    strict: false,
                    joins: answer == Answer::Join,
                    first: false,
                };
                let bytes = identity.bytes();
                (room >= bytes.len()).then(|| OptionBytes::new(&[&bytes]))
            }
        }?;
        if context.again == 0 && matches!(answer, Answer::Smc | Answer::Join) {
            offered();
        }
        Some((added, answer as u8))
    }

    fn answer(context: SynContext, syn_ack: SynAck<'_>) -> u8 {
        let scan = tcp_option::scan(syn_ack.options);
        let choice = Choice::from_number(context.choice);
        let own = || proof_of_answer(choice, context.net, &syn_ack);
        let answer = match scan.identity {
            // Nothing was offered, so nothing can have been answered.
            _ if choice == Choice::BARE => Answer::Tcp,
            // What a SYN said has come back.
            Some(peer) if !peer.answer => Answer::Echo,
            // No server sends both.
            Some(_) if scan.smc.is_some() => Answer::Tcp,
            Some(peer) if peer.joins && choice == Choice::JOIN => Answer::Join,
            Some(peer) if peer.joins || choice == Choice::JOIN => Answer::Tcp,
            Some(peer) if choice.order != Order::Far && own() == Some(peer.proof) => Answer::Local,
            // No correct server says it to a client that has not offered it.
            Some(_) if !choice.begins_far() => Answer::Tcp,
            Some(_) => Answer::Remote,
            None if echoed(syn_ack.options) => Answer::Echo,
            None if scan.offers() && choice != Choice::JOIN => Answer::Smc,
            None => Answer::Tcp,
        };
        answer as u8
    }
}
