// SPDX-License-Identifier: GPL-2.0

//! TCP options in SYN and SYN-ACK packets of overlay sockets, on kernels that know nothing of them.
//!
//! * Outgoing: a netfilter hook at LOCAL_OUT sees each packet before connection tracking does and
//!   appends the option to SYNs and SYN-ACKs of overlay sockets, retransmits included.
//! * The client learns the SYN-ACK's options from `sk_rx_dst_set`, which TCP calls with that packet:
//!   for the time of the handshake the connection has a copy of its `icsk_af_ops` with that one
//!   function replaced.
//! * The server learns the SYN's options from the copy that `TCP_SAVE_SYN` keeps.
//!
//! Packets of other sockets are never changed, but for those of [`side`](crate::net::side), and a namespace without
//! hooks pays nothing.

mod answer;
mod fields;
mod header;
mod saved;

pub(in crate::net) use self::saved::drop_saved_syn;
pub use self::{
    answer::{answer, answered, choice},
    fields::{ANSWER_MAX, CHOICE_MAX, OWN_CHOICE},
    saved::{answer_to_saved_syn, keep_syns}, //
};
pub(crate) use self::{
    answer::{end, forget, watch_answer},
    fields::{choice_of, choose}, //
};

use self::{
    answer::DECIDE,
    header::{carries_tcp6, Header, FIXED, FLAG_ACK, FLAG_RST, FLAG_SYN, OPTIONS_MAX},
    saved::{answer_request, draw_notes}, //
};
use crate::net::sock::Sock;
use core::ptr::{self, NonNull};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::atomic::Release, //
};
use smc_bindings as bindings;

/// Policy of the TCP options: their content and its meaning. Functions run in softirq context and
/// must not sleep.
///
/// `options` are always the option bytes of a TCP header, without its fixed 20 bytes.
pub trait Policy: 'static {
    /// Returns the bytes to append to a SYN that an overlay socket sends, if any. At most 40 in all, and a multiple
    /// of four.
    fn syn(context: SynContext, syn: Syn<'_>) -> Option<OptionBytes>;

    /// Returns the bytes to append to the SYN-ACK that answers a SYN, and what that means: 1 to [`ANSWER_MAX`]. Asked with
    /// a lock of TCP's hash held. `peer` is the client's address, as IPv6.
    fn syn_ack(
        context: SynContext,
        peer: [u8; 16],
        syn: Syn<'_>,
        syn_ack: SynAck<'_>,
    ) -> Option<(OptionBytes, u8)>;

    /// Returns what a SYN-ACK answers to the client's offer: 0 for no, else at most [`ANSWER_MAX`].
    fn answer(context: SynContext, syn_ack: SynAck<'_>) -> u8;
}

/// What a SYN says.
#[derive(Clone, Copy, Debug)]
pub struct Syn<'a> {
    /// The client's initial sequence number.
    pub number: u32,
    /// The options.
    pub options: &'a [u8],
}

/// What a SYN-ACK says.
#[derive(Clone, Copy, Debug)]
pub struct SynAck<'a> {
    /// The initial sequence numbers: the client's, and the server's.
    pub numbers: (u32, u32),
    /// The options.
    pub options: &'a [u8],
}

/// The socket that connects or listens, as far as a hook may look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynContext {
    /// What [`BsdSocket::set_choice`](crate::net::socket::BsdSocket::set_choice) has set.
    pub choice: u8,
    /// The number of its namespace, as [`Net::cookie`](crate::net::netns::Net::cookie).
    pub net: u64,
    /// Number of times that the SYN was sent again, this one included; of one that listens, 1 if an earlier SYN-ACK
    /// for the same SYN had an option, else 0.
    pub again: u32,
}

/// Options to append.
#[derive(Clone, Copy, Debug)]
pub struct OptionBytes {
    bytes: [u8; OPTIONS_MAX],
    len: usize,
}

impl OptionBytes {
    /// Makes options of these pieces, one after the other; no piece that reaches beyond 40 bytes.
    #[inline]
    pub fn new(pieces: &[&[u8]]) -> Self {
        let mut added = Self {
            bytes: [0; OPTIONS_MAX],
            len: 0,
        };
        for piece in pieces {
            let end = added.len.saturating_add(piece.len());
            if let Some(place) = added.bytes.get_mut(added.len..end) {
                place.copy_from_slice(piece);
                added.len = end;
            }
        }
        added
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The hooks of one network namespace; dropping it removes them. Process context.
///
/// # Invariants
///
/// `ops` came from a [`KBox`], and is registered in `net`, which has not been freed.
pub struct Hooks {
    net: *mut bindings::net,
    ops: NonNull<[bindings::nf_hook_ops; 2]>,
}

// SAFETY: The registration may be undone by any thread.
unsafe impl Send for Hooks {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for Hooks {}

impl Hooks {
    /// Puts the hooks of `P` into the namespace of `sock`. The caller drops them before that ends.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub fn new<P: Policy>(sock: &Sock) -> Result<Self> {
        let net = sock.net();
        draw_notes();
        let decide: fn(SynContext, SynAck<'_>) -> u8 = P::answer;
        DECIDE.store(decide as usize, Release);
        let ops = KBox::new(
            [
                Self::hook(bindings::NFPROTO_IPV4 as u8, local_out::<P, false>),
                Self::hook(bindings::NFPROTO_IPV6 as u8, local_out::<P, true>),
            ],
            GFP_KERNEL,
        )?;
        let ops = NonNull::from(KBox::leak(ops));
        // SAFETY: The namespace lives as long as `sock`; the operations stay until `drop`.
        let ret = unsafe { bindings::nf_register_net_hooks(net, ops.as_ptr().cast(), 2) };
        // INVARIANT: Registered, or forgotten at once.
        let hooks = Self { net, ops };
        if let Err(err) = to_result(ret) {
            // One of the two may have been there for a moment.
            hooks.free();
            core::mem::forget(hooks);
            return Err(err);
        }
        Ok(hooks)
    }

    fn hook(
        family: u8,
        hook: unsafe extern "C" fn(
            *mut ffi::c_void,
            *mut bindings::sk_buff,
            *const bindings::nf_hook_state,
        ) -> ffi::c_uint,
    ) -> bindings::nf_hook_ops {
        bindings::nf_hook_ops {
            hook: Some(hook),
            pf: family,
            hooknum: bindings::nf_inet_hooks_NF_INET_LOCAL_OUT,
            // Before connection tracking, so that it and all rules see the final packet.
            priority: bindings::NF_IP_PRI_BEFORE_CONNTRACK,
            ..Default::default()
        }
    }

    /// Frees the operations when nobody can look at them any more: netfilter lists hooks, for
    /// user space, in an RCU section.
    fn free(&self) {
        // SAFETY: Memory of `kmalloc`, by the type invariant, that is not registered (any more);
        // process context.
        unsafe { bindings::kfree_after_rcu(self.ops.as_ptr().cast()) };
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`, in a namespace that is not freed yet. Packets that are in
        // the midst of a hook finish with it, in an RCU section.
        unsafe { bindings::nf_unregister_net_hooks(self.net, self.ops.as_ptr().cast(), 2) };
        self.free();
    }
}

/// Fate of a packet that should have got an option.
enum Fate {
    /// It goes on, with or without.
    Passes,
    /// There was no memory. It is lost, and TCP sends it again: the connection that a SYN-ACK makes is
    /// known by its SYN, so the two must agree.
    Lost,
}

/// Lets everything pass, and gives some packets an option; the hook of netfilter.
///
/// # Safety
///
/// Called by the kernel alone. Netfilter calls it in an RCU section with a packet on its way
/// through LOCAL_OUT, whose headers are set, and the state of that hook.
unsafe extern "C" fn local_out<P: Policy, const V6: bool>(
    _priv: *mut ffi::c_void,
    skb: *mut bindings::sk_buff,
    state: *const bindings::nf_hook_state,
) -> ffi::c_uint {
    // SAFETY: Netfilter passes a valid packet; `sk` is set for packets of sockets, and then has a
    // reference.
    let sk = unsafe { (*skb).sk };
    if sk.is_null() {
        return bindings::NF_ACCEPT;
    }
    // SAFETY: Full sockets and request sockets alike begin with `sock_common`.
    let stage =
        unsafe { ptr::read_volatile(&raw const (*sk.cast::<bindings::sock_common>()).skc_state) };
    // All others pass at once: this is on the way of every packet of the namespace.
    const OURS: u32 = 1 << bindings::TCP_SYN_SENT | 1 << bindings::TCP_NEW_SYN_RECV;
    if OURS.wrapping_shr(u32::from(stage)) & 1 == 0 {
        return bindings::NF_ACCEPT;
    }
    // SAFETY: Netfilter passes a packet that we may change, with its network and transport headers
    // set, inside an RCU section.
    match unsafe { offer::<P, V6>(skb, (*state).net) } {
        Some(Fate::Lost) => bindings::NF_DROP,
        Some(Fate::Passes) | None => bindings::NF_ACCEPT,
    }
}

/// # Safety
///
/// `skb` is a packet on its way through LOCAL_OUT of the living namespace `net`, in an RCU section.
#[inline(never)]
unsafe fn offer<P: Policy, const V6: bool>(
    skb: *mut bindings::sk_buff,
    net: *mut bindings::net,
) -> Option<Fate> {
    // SAFETY: `skb` is valid; `sk` is set for packets of sockets, and then has a reference.
    let sk = unsafe { (*skb).sk };
    if sk.is_null() {
        return None;
    }
    // A tunnel's packet keeps the socket of what is inside, and comes by again with other headers.
    // SAFETY: Netfilter passes packets with a linear network header.
    let tcp = unsafe {
        if V6 {
            carries_tcp6(skb)
        } else {
            bindings::skb_carries_tcp4(skb)
        }
    };
    if !tcp {
        return None;
    }
    let sk: *mut bindings::sock = sk.cast();
    // SAFETY: Full sockets and request sockets alike begin with `sock_common`.
    let state =
        unsafe { ptr::read_volatile(&raw const (*sk.cast::<bindings::sock_common>()).skc_state) };
    let (added, header, without) = if state == bindings::TCP_SYN_SENT as u8 {
        // SAFETY: The state is no request's or TIME_WAIT's, thus this is a full socket. (Of another
        // protocol perhaps; then its `struct socket` does not run on our tables.)
        let socket = unsafe { ptr::read_volatile(&raw const (*sk).sk_socket) };
        // SAFETY: A `struct socket` is freed an RCU grace period after it was orphaned.
        let choice = unsafe { choice_of(socket) }?;
        // SAFETY: TCP sent the packet, so its header is linear.
        let header = unsafe { Header::of(skb) }?;
        if header.flags() & (FLAG_SYN | FLAG_ACK | FLAG_RST) != FLAG_SYN {
            return None;
        }
        // SAFETY: The namespace is alive.
        let net = unsafe { bindings::net_cookie(net) };
        let tp: *const bindings::tcp_sock = sk.cast();
        // SAFETY: A full socket on one of the overlay's tables is TCP's. TCP counts before it sends.
        let again = unsafe { ptr::read_volatile(&raw const (*tp).total_retrans) };
        let context = SynContext { choice, net, again };
        let syn = Syn {
            number: header.seq(),
            options: header.options(),
        };
        (P::syn(context, syn)?, header, Fate::Passes)
    } else if state == bindings::TCP_NEW_SYN_RECV as u8 {
        let req: *mut bindings::request_sock = sk.cast();
        // SAFETY: A socket in this state is a request socket, and it holds its listener.
        let listener = unsafe { (*req).__req_common.__bindgen_anon_5.skc_listener };
        if listener.is_null() {
            return None;
        }
        let listener: *mut bindings::sock = listener.cast();
        // SAFETY: The listener is a full socket.
        let socket = unsafe { ptr::read_volatile(&raw const (*listener).sk_socket) };
        // SAFETY: A `struct socket` is freed an RCU grace period after it was orphaned.
        let choice = unsafe { choice_of(socket) }?;
        // SAFETY: TCP sent the packet, so its header is linear.
        let header = unsafe { Header::of(skb) }?;
        if header.flags() & (FLAG_SYN | FLAG_ACK) != FLAG_SYN | FLAG_ACK {
            return None;
        }
        // The next listener may be one of TCP's, whose program would read our messages. (Asked here,
        // since it may have been switched on after listen().)
        // SAFETY: A listener is a full socket. The packet is TCP's.
        let silent = unsafe { bindings::tcp_migrates_requests(listener) || !is_bare(skb, &header) };
        let answer = |syn: Syn<'_>, again: bool| {
            if silent {
                return None;
            }
            let context = SynContext {
                choice,
                // SAFETY: The namespace is alive.
                net: unsafe { bindings::net_cookie(net) },
                again: u32::from(again),
            };
            // SAFETY: The request is alive, as long as the packet.
            let peer = unsafe { peer_of(req.cast()) };
            P::syn_ack(context, peer, syn, header.syn_ack())
        };
        // SAFETY: The request is alive, as long as the packet. TCP sends no packet with a bucket locked.
        let added = unsafe { answer_request(req, answer) }?;
        (added, header, Fate::Lost)
    } else {
        return None;
    };
    // SAFETY: As this function's.
    unsafe { append::<V6>(skb, &header, added.bytes(), without) }
}

/// Returns the address of the peer, as IPv6.
///
/// # Safety
///
/// `sk` is a request of TCP that is alive. Its address lies where a socket has it.
unsafe fn peer_of(sk: *const bindings::sock) -> [u8; 16] {
    // SAFETY: The address lies in what all these begin with, as four words. TCP has set it before it sends a packet, that
    // of IPv4 as a mapped one (`sk_daddr_set()`).
    let words = unsafe {
        let first = bindings::sk_v6_daddr(sk).cast::<u32>();
        [0, 1, 2, 3].map(|at| first.add(at).read_volatile().to_ne_bytes())
    };
    words
        .as_flattened()
        .first_chunk()
        .copied()
        .unwrap_or_default()
}

/// Returns whether a TCP packet is one to which options can be added: without payload (TCP fast open), which would
/// have to move, and with a checksum that is still to be computed.
///
/// # Safety
///
/// As [`offer`]; `header` is the packet's.
unsafe fn is_bare(skb: *mut bindings::sk_buff, header: &Header) -> bool {
    // SAFETY: Headers are set and linear.
    unsafe {
        let network = bindings::skb_network_header(skb) as usize;
        let transport = bindings::skb_transport_header(skb) as usize;
        let length = transport.wrapping_sub(network).wrapping_add(header.len);
        (*skb).len as usize == length
            && (*skb).data as usize == network
            && bindings::skb_checksum_partial(skb)
    }
}

/// Appends option bytes to a TCP packet without payload, if it is one that can take them; `without` is
/// what becomes of it if there is no memory.
///
/// # Safety
///
/// As [`offer`]; `header` is the packet's.
unsafe fn append<const V6: bool>(
    skb: *mut bindings::sk_buff,
    header: &Header,
    bytes: &[u8],
    without: Fate,
) -> Option<Fate> {
    // SAFETY: As `offer`: headers are set and linear.
    unsafe {
        let old_len = header.len;
        let new_len = old_len.checked_add(bytes.len())?;
        if new_len > FIXED + OPTIONS_MAX || bytes.len() % 4 != 0 || !is_bare(skb, header) {
            return None;
        }
        let network = bindings::skb_network_header(skb) as usize;
        let transport = bindings::skb_transport_header(skb) as usize;
        let header_bytes = transport.checked_sub(network)?.checked_add(old_len)?;
        let room = u32::try_from(bytes.len()).ok()?;
        // A SYN is a clone and shares its memory with the retransmit queue, but for the headers, which are its own
        // and can grow into the room before them. Where they are shared, too, or there is no room, this copies.
        if bindings::skb_cow_head(skb, room) != 0 {
            return Some(without);
        }
        bindings::skb_lift_headers(skb, (*skb).len, room);
        let end: *mut u8 = bindings::skb_network_header(skb).cast();
        ptr::copy_nonoverlapping(bytes.as_ptr(), end.add(header_bytes), bytes.len());

        let tcp: *mut u8 = bindings::skb_transport_header(skb).cast();
        *tcp.add(12) = (*tcp.add(12) & 0x0f) | (((new_len / 4) as u8) << 4);
        // Of a packet whose checksum is still to be computed only the pseudo header's part stands
        // in the field, and of that only the length changes.
        let check: *mut bindings::__sum16 = tcp.add(16).cast();
        bindings::csum_replace2_pseudo(
            check,
            skb,
            (old_len as u16).to_be(),
            (new_len as u16).to_be(),
        );
        if V6 {
            let ip: *mut bindings::ipv6hdr = bindings::skb_network_header(skb).cast();
            let payload = u16::from_be((*ip).payload_len).checked_add(bytes.len() as u16)?;
            (*ip).payload_len = payload.to_be();
        } else {
            let ip: *mut bindings::iphdr = bindings::skb_network_header(skb).cast();
            let total = u16::from_be((*ip).tot_len).checked_add(bytes.len() as u16)?;
            (*ip).tot_len = total.to_be();
            bindings::ip_send_check(ip);
        }
    }
    Some(Fate::Passes)
}
