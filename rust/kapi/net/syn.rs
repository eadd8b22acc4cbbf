// SPDX-License-Identifier: GPL-2.0

//! TCP options in SYN and SYN-ACK packets of overlay sockets, on kernels that know nothing of them.
//!
//! * Outgoing: a netfilter hook at LOCAL_OUT sees each packet before connection tracking does and
//!   appends the option to SYNs and SYN-ACKs of overlay sockets, retransmits included.
//! * The client learns the SYN-ACK's options from `sk_rx_dst_set`, which TCP calls with that packet:
//!   for the time of the handshake the connection has a copy of its `icsk_af_ops` with that one
//!   function replaced. Which of two copies it has *is* the answer, so nothing is allocated.
//! * The server learns the SYN's options from the copy that `TCP_SAVE_SYN` keeps.
//!
//! Packets of other sockets are never changed, and a namespace without hooks pays nothing.

use crate::net::{
    sock::{Sock, SockGuard},
    tables, //
};
use core::{
    cell::UnsafeCell,
    ptr::{self, NonNull},
    slice, //
};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Full, Release},
    time::{delay::fsleep, Delta}, //
};
use smc_bindings as bindings;

/// What to say and how to understand it. Functions run in softirq context and must not sleep.
///
/// `options` are always the option bytes of a TCP header, without its fixed 20 bytes.
pub trait Policy: 'static {
    /// The bytes to append to the options of a SYN that an overlay socket sends, if any. At most 40
    /// in all, and a multiple of four.
    fn syn(options: &[u8]) -> Option<&'static [u8]>;

    /// The bytes to append to the SYN-ACK that answers a SYN with the options `syn`.
    fn syn_ack(syn: &[u8], options: &[u8]) -> Option<&'static [u8]>;

    /// Whether a SYN-ACK with these options accepts the client's offer.
    fn accepted(options: &[u8]) -> bool;
}

const TCP_HEADER: usize = 20;
const TCP_OPTIONS_MAX: usize = 40;
const FLAG_SYN: u8 = 0x02;
const FLAG_ACK: u8 = 0x10;
const FLAG_RST: u8 = 0x04;

// ---------------------------------------------------------------------------------------------
// The client's side: what the SYN-ACK said.

/// Copies of one address family's operations.
struct AnswerOps {
    /// The table that was copied; null while the slot is free.
    original: Atomic<*mut bindings::inet_connection_sock_af_ops>,
    /// Installed while the answer is awaited.
    waiting: UnsafeCell<bindings::inet_connection_sock_af_ops>,
    /// Installed when the answer was yes; works like the original.
    accepted: UnsafeCell<bindings::inet_connection_sock_af_ops>,
}

// SAFETY: The copies are written once, under `SLOTS_LOCK`, before `original` is set.
unsafe impl Sync for AnswerOps {}

impl AnswerOps {
    const fn new() -> Self {
        // SAFETY: All-zero is a valid value: integers and `None`s.
        let zero = unsafe { core::mem::zeroed() };
        Self {
            original: Atomic::new(ptr::null_mut()),
            waiting: UnsafeCell::new(zero),
            accepted: UnsafeCell::new(zero),
        }
    }
}

/// One slot for each table that TCP has: IPv4, IPv6, IPv6 with a mapped peer.
static SLOTS: [AnswerOps; 4] = [
    AnswerOps::new(),
    AnswerOps::new(),
    AnswerOps::new(),
    AnswerOps::new(),
];
/// 0 free, 1 taken: serialises the filling of slots.
static FILLING: Atomic<u32> = Atomic::new(0);
static ACCEPTED: Atomic<usize> = Atomic::new(0);

fn af_ops(sock: &Sock) -> *mut *const bindings::inet_connection_sock_af_ops {
    let icsk: *mut bindings::inet_connection_sock = sock.as_ptr().cast();
    // SAFETY: A TCP sock begins with an `inet_connection_sock`; only an address is computed.
    unsafe { &raw mut (*icsk).icsk_af_ops }
}

fn slot_of(original: *const bindings::inet_connection_sock_af_ops) -> Option<&'static AnswerOps> {
    let known = || {
        SLOTS
            .iter()
            .find(|slot| ptr::eq(slot.original.load(Acquire), original))
    };
    if let Some(slot) = known() {
        return Some(slot);
    }
    // Sleeping is allowed where connections begin, and this happens once for each of TCP's tables.
    while FILLING.cmpxchg(0, 1, Full).is_err() {
        fsleep(Delta::from_micros(20));
    }
    let slot = known().or_else(|| {
        let slot = SLOTS
            .iter()
            .find(|slot| slot.original.load(Acquire).is_null())?;
        // SAFETY: `original` is a live constant table of TCP's. The slot is free, so nobody reads
        // its copies, and `FILLING` keeps other writers away.
        unsafe {
            let copy = ptr::read(original);
            *slot.waiting.get() = bindings::inet_connection_sock_af_ops {
                sk_rx_dst_set: Some(answer_arrived),
                ..copy
            };
            *slot.accepted.get() = copy;
        }
        slot.original.store(original.cast_mut(), Release);
        Some(slot)
    });
    FILLING.store(0, Release);
    slot
}

fn find(ops: *const bindings::inet_connection_sock_af_ops) -> Option<(&'static AnswerOps, bool)> {
    SLOTS.iter().find_map(|slot| {
        if ptr::eq(slot.waiting.get(), ops) {
            Some((slot, false))
        } else if ptr::eq(slot.accepted.get(), ops) {
            Some((slot, true))
        } else {
            None
        }
    })
}

/// Watches for the SYN-ACK of a connection whose SYN has just been sent.
pub(crate) fn watch_answer(guard: &SockGuard<'_>) {
    let place = af_ops(guard.sock());
    // SAFETY: The socket lock is held, under which the field changes.
    let current = unsafe { ptr::read_volatile(place) };
    if find(current).is_some() {
        return;
    }
    if let Some(slot) = slot_of(current) {
        // SAFETY: As above; readers without the lock get either of two equivalent tables.
        unsafe { ptr::write_volatile(place, slot.waiting.get()) };
    }
}

/// Whether the SYN-ACK accepted the offer. Ends the watching.
pub fn answered(guard: &SockGuard<'_>) -> bool {
    forget(guard)
}

/// Gives a connection its own operations back; returns whether the answer was yes.
pub(crate) fn forget(guard: &SockGuard<'_>) -> bool {
    let place = af_ops(guard.sock());
    // SAFETY: The socket lock is held, under which the field changes.
    let current = unsafe { ptr::read_volatile(place) };
    match find(current) {
        Some((slot, accepted)) => {
            // SAFETY: As above.
            unsafe { ptr::write_volatile(place, slot.original.load(Acquire)) };
            accepted
        }
        None => false,
    }
}

/// `sk_rx_dst_set` of a connection whose SYN-ACK is awaited.
///
/// # Safety
///
/// Only called by the kernel, with the arguments that such a callback gets.
unsafe extern "C" fn answer_arrived(sk: *mut bindings::sock, skb: *const bindings::sk_buff) {
    // SAFETY: TCP calls this with the socket locked and an incoming segment.
    let sock = unsafe { Sock::from_raw(sk) };
    let place = af_ops(sock);
    // SAFETY: The socket is locked.
    let current = unsafe { ptr::read_volatile(place) };
    let Some((slot, _)) = find(current) else {
        return;
    };
    let original = slot.original.load(Acquire);
    // SAFETY: TCP has checked and pulled the whole TCP header of an incoming segment.
    let header = unsafe { Header::of(skb.cast_mut()) };
    let accepted = header.is_some_and(|header| {
        let syn_ack = header.flags() & (FLAG_SYN | FLAG_ACK) == FLAG_SYN | FLAG_ACK;
        let decide = ACCEPTED.load(Acquire);
        if !syn_ack || decide == 0 {
            return false;
        }
        // SAFETY: A nonzero `ACCEPTED` is a function pointer of this type stored by `Hooks::new`,
        // and the module that holds the function is alive while one of its sockets is.
        let decide: fn(&[u8]) -> bool = unsafe { core::mem::transmute(decide) };
        decide(header.options())
    });
    let next: *const bindings::inet_connection_sock_af_ops = if accepted {
        slot.accepted.get()
    } else {
        original
    };
    // SAFETY: The socket is locked.
    unsafe { ptr::write_volatile(place, next) };
    // SAFETY: A constant table of TCP's.
    if let Some(native) = unsafe { (*original).sk_rx_dst_set } {
        // SAFETY: The same arguments in the same context.
        unsafe { native(sk, skb) };
    }
}

// ---------------------------------------------------------------------------------------------
// The server's side: what the SYN said.

/// Keeps the SYNs of future connections of a listener.
pub fn keep_syns(sock: &Sock) {
    let guard = sock.lock();
    // SAFETY: The socket is valid and locked.
    unsafe {
        if bindings::tcp_save_syn(guard.sock().as_ptr()) == 0 {
            bindings::tcp_set_save_syn(guard.sock().as_ptr(), 1);
        }
    }
}

/// Looks at the options of the SYN that a connection came from.
///
/// Returns `None` when the SYN was not kept: on a connection made with SYN cookies, for instance.
pub fn with_saved_syn<R>(guard: &SockGuard<'_>, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    // SAFETY: The socket is valid, and the copy is changed only under its lock.
    let saved = unsafe { bindings::tcp_saved_syn(guard.sock().as_ptr()) };
    // SAFETY: As above; null or a copy that lives while the lock is held.
    unsafe { saved_options(saved) }.map(look)
}

/// Frees the copy of the SYN, for a user who did not ask for it.
pub fn drop_saved_syn(guard: &SockGuard<'_>) {
    // SAFETY: The socket is valid and locked.
    unsafe { bindings::tcp_saved_syn_free(guard.sock().as_ptr()) };
}

/// # Safety
///
/// `saved` is null, or points to a saved SYN that lives during `'a`.
unsafe fn saved_options<'a>(saved: *const bindings::saved_syn) -> Option<&'a [u8]> {
    if saved.is_null() {
        return None;
    }
    // SAFETY: The lengths are those with which TCP filled `data`.
    unsafe {
        let skip = ((*saved).mac_hdrlen as usize).checked_add((*saved).network_hdrlen as usize)?;
        let len = (*saved).tcp_hdrlen as usize;
        if !(TCP_HEADER..=TCP_HEADER + TCP_OPTIONS_MAX).contains(&len) {
            return None;
        }
        let tcp = (*saved).data.as_ptr().add(skip);
        Some(slice::from_raw_parts(tcp.add(TCP_HEADER), len - TCP_HEADER))
    }
}

/// Copies the options of the SYN that a request came from, as long as the request keeps it; returns
/// how many bytes that is.
///
/// A SYN-ACK may be repeated (for a second SYN) while another CPU makes the request a connection,
/// which takes the copy of the SYN over, and a third closes the listener, which frees it at once.
/// So the pointer is looked at again after each step: what was read while it stood is genuine, and
/// anything else is thrown away. (A repeated SYN-ACK without the option does no harm then: the client
/// has had the first one.) That leaves reads of at most 60 bytes of a kmalloc object that was freed
/// since, at an offset that is within it, by a CPU that was held up in the midst of this function for
/// as long as an accept queue takes to be emptied. TCP's own reader for BPF has the same gap.
///
/// # Safety
///
/// `req` is a TCP request that lives during the call.
unsafe fn copy_offered(
    req: *mut bindings::request_sock,
    to: &mut [u8; TCP_OPTIONS_MAX],
) -> Option<usize> {
    // SAFETY: The request is alive.
    let load = || unsafe { ptr::read_volatile(&raw const (*req).saved_syn) };
    let saved = load();
    if saved.is_null() {
        return None;
    }
    // SAFETY: Memory of the kernel's heap, whatever is in it by now; only integers are read.
    let [mac, network, tcp] = unsafe {
        [
            ptr::read_volatile(&raw const (*saved).mac_hdrlen),
            ptr::read_volatile(&raw const (*saved).network_hdrlen),
            ptr::read_volatile(&raw const (*saved).tcp_hdrlen),
        ]
    };
    // SAFETY: No preconditions.
    unsafe { bindings::read_memory_barrier() };
    if !ptr::eq(load(), saved) {
        return None;
    }
    let skip = (mac as usize).checked_add(network as usize)?;
    let len = (tcp as usize).checked_sub(TCP_HEADER)?;
    let to = to.get_mut(..len)?;
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: The lengths are those with which TCP filled `data`, so this is within the object;
        // the rest as above.
        *byte = unsafe {
            let data = (*saved).data.as_ptr().add(skip + TCP_HEADER);
            ptr::read_volatile(data.add(at))
        };
    }
    // SAFETY: No preconditions.
    unsafe { bindings::read_memory_barrier() };
    ptr::eq(load(), saved).then_some(len)
}

// ---------------------------------------------------------------------------------------------
// Outgoing packets.

/// A TCP header in the linear part of a packet.
struct Header {
    tcp: *mut u8,
    len: usize,
}

impl Header {
    /// # Safety
    ///
    /// `skb` is a TCP packet with its transport header set; it is not changed while the value
    /// returned is in use.
    unsafe fn of(skb: *mut bindings::sk_buff) -> Option<Self> {
        // SAFETY: The packet is valid.
        unsafe {
            let tcp: *mut u8 = bindings::skb_transport_header(skb).cast();
            let start = (tcp as usize).checked_sub((*skb).data as usize);
            // The header may lie before `data` on receive, where it has been pulled already.
            let linear_end =
                ((*skb).data as usize).checked_add(bindings::skb_headlen(skb) as usize)?;
            let room = linear_end.checked_sub(tcp as usize)?;
            if start.is_some() && room < TCP_HEADER {
                return None;
            }
            let len = usize::from(*tcp.add(12) >> 4) * 4;
            if len < TCP_HEADER || (start.is_some() && room < len) {
                return None;
            }
            Some(Self { tcp, len })
        }
    }

    fn flags(&self) -> u8 {
        // SAFETY: `of` checked the length.
        unsafe { *self.tcp.add(13) }
    }

    fn options(&self) -> &[u8] {
        // SAFETY: `of` checked the length.
        unsafe { slice::from_raw_parts(self.tcp.add(TCP_HEADER), self.len - TCP_HEADER) }
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
        let accepted: fn(&[u8]) -> bool = P::accepted;
        ACCEPTED.store(accepted as usize, Release);
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

/// The hook: lets everything pass, and gives some packets an option.
///
/// # Safety
///
/// Only called by the kernel, with the arguments that such a callback gets.
unsafe extern "C" fn local_out<P: Policy, const V6: bool>(
    _priv: *mut ffi::c_void,
    skb: *mut bindings::sk_buff,
    _state: *const bindings::nf_hook_state,
) -> ffi::c_uint {
    // SAFETY: Netfilter passes a packet that we may change, with its network and transport headers
    // set, inside an RCU section.
    unsafe { offer::<P, V6>(skb) };
    bindings::NF_ACCEPT
}

/// # Safety
///
/// `skb` is a packet on its way through LOCAL_OUT, in an RCU section.
#[inline]
unsafe fn offer<P: Policy, const V6: bool>(skb: *mut bindings::sk_buff) -> Option<()> {
    // SAFETY: `skb` is valid; `sk` is set for packets of sockets, and then has a reference.
    let sk = unsafe { (*skb).sk };
    if sk.is_null() {
        return None;
    }
    // A tunnel's packet keeps the socket of what is inside, and comes by again with other headers.
    // SAFETY: Netfilter passes packets with a linear network header.
    let tcp = unsafe {
        if V6 {
            bindings::skb_carries_tcp6(skb)
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
    let bytes = if state == bindings::TCP_SYN_SENT as u8 {
        // SAFETY: The state is no request's or TIME_WAIT's, thus this is a full socket. (Of another
        // protocol perhaps; then its `struct socket` does not run on our tables.)
        let socket = unsafe { ptr::read_volatile(&raw const (*sk).sk_socket) };
        // SAFETY: A `struct socket` is freed an RCU grace period after it was orphaned.
        if !unsafe { tables::is_active(socket) } {
            return None;
        }
        // SAFETY: TCP sent the packet, so its header is linear.
        let header = unsafe { Header::of(skb) }?;
        if header.flags() & (FLAG_SYN | FLAG_ACK | FLAG_RST) != FLAG_SYN {
            return None;
        }
        P::syn(header.options())?
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
        // SAFETY: As above.
        if !unsafe { tables::is_active(socket) } {
            return None;
        }
        // SAFETY: As above.
        let header = unsafe { Header::of(skb) }?;
        if header.flags() & (FLAG_SYN | FLAG_ACK) != FLAG_SYN | FLAG_ACK {
            return None;
        }
        let mut options = [0; TCP_OPTIONS_MAX];
        // SAFETY: The request is alive, as long as the packet.
        let len = unsafe { copy_offered(req, &mut options) }?;
        let syn = options.get(..len)?;
        P::syn_ack(syn, header.options())?
    } else {
        return None;
    };
    // SAFETY: As this function's.
    unsafe { append::<V6>(skb, bytes) }
}

/// Appends option bytes to a TCP packet without payload.
///
/// # Safety
///
/// As [`offer`]; `bytes` is a multiple of four long.
unsafe fn append<const V6: bool>(skb: *mut bindings::sk_buff, bytes: &[u8]) -> Option<()> {
    // SAFETY: As `offer`: headers are set and linear.
    unsafe {
        let old_len = Header::of(skb)?.len;
        let new_len = old_len.checked_add(bytes.len())?;
        if new_len > TCP_HEADER + TCP_OPTIONS_MAX || bytes.len() % 4 != 0 {
            return None;
        }
        let network = bindings::skb_network_header(skb) as usize;
        let transport = bindings::skb_transport_header(skb) as usize;
        let header_bytes = transport.checked_sub(network)?.checked_add(old_len)?;
        // A payload (TCP fast open) would have to move: leave such a SYN alone. So with checksums
        // that TCP has computed already.
        if (*skb).len as usize != header_bytes || !bindings::skb_checksum_partial(skb) {
            return None;
        }
        // SYNs are clones that share their memory with the retransmit queue: make a private copy.
        let room = i32::try_from(bytes.len()).ok()?;
        let more = room.saturating_sub(bindings::skb_tailroom(skb)).max(0);
        if bindings::pskb_expand_head(skb, 0, more, bindings::GFP_ATOMIC_RAW) != 0 {
            return None;
        }
        let tail: *mut u8 = bindings::skb_put(skb, bytes.len() as ffi::c_uint).cast();
        ptr::copy_nonoverlapping(bytes.as_ptr(), tail, bytes.len());

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
    Some(())
}
