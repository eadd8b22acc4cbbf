// SPDX-License-Identifier: GPL-2.0

//! Making an overlay reachable: `socket(family, …)` and `socket(AF_INET[6], …, protocol)`.

use crate::{
    errno,
    net::{
        adapter::Adapter,
        overlay::Overlay,
        socket::{self, BsdSocket},
        stock::{
            claim,
            creators::{add_to_row, count, tcp_prot, watch_end, CREATORS, CREATORS_LEN, ROWS},
            tables, //
        }, //
    },
    sys::module, //
};
use core::{marker::PhantomData, ptr};
use kernel::{
    error::{from_result, to_result},
    ffi,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Release},
    types::Opaque, //
};
use smc_bindings as bindings;

/// The names and numbers of an overlay family.
pub struct Names {
    /// The address family (`AF_`).
    pub family: i32,
    /// Protocol numbers of `family` for IPv4 and IPv6.
    pub family_protocols: [i32; 2],
    /// The protocol number within `AF_INET` and `AF_INET6`.
    pub inet_protocol: u16,
    /// Another one, for sockets whose programs have asked for TCP; see [`convert`](super::stock::convert).
    pub converted_protocol: u16,
    /// Row names of `/proc/net/protocols`: the family's for IPv4 and IPv6, then the inet ones.
    pub rows: [&'static CStr; 4],
}

/// Returns the number by which converted sockets are made, while the overlay is registered.
pub(crate) fn converted_protocol() -> Option<u16> {
    let names = NAMES.load(Acquire);
    // SAFETY: Not null, thus the registered `&'static Names`.
    (!names.is_null()).then(|| unsafe { (*names).converted_protocol })
}

static NAMES: Atomic<*mut Names> = Atomic::new(ptr::null_mut());
/// Registration of the overlay with the socket core; dropping it ends that.
#[pin_data(PinnedDrop)]
pub struct Registration<T: Overlay> {
    /// Number of the registration's steps that have been done; see `new`.
    steps: u32,
    #[pin]
    family: Opaque<bindings::net_proto_family>,
    /// Copies of TCP's `struct proto` whose sockets become TCP sockets before they are visible.
    #[pin]
    creators: Opaque<[bindings::proto; CREATORS_LEN]>,
    /// One for each creator.
    #[pin]
    switches: Opaque<[bindings::inet_protosw; CREATORS_LEN]>,
    /// Rows of `/proc/net/protocols`.
    #[pin]
    rows: Opaque<[bindings::proto; 4]>,
    _type: PhantomData<T>,
}

// SAFETY: Dropping is the only operation.
unsafe impl<T: Overlay> Send for Registration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Overlay> Sync for Registration<T> {}

impl<T: Overlay> Registration<T> {
    /// Registers the overlay. Only one registration may exist in the module.
    ///
    /// # Errors
    ///
    /// `EEXIST` when another module has the address family, `EBUSY` for a second registration.
    pub fn new(module: &'static ThisModule, names: &'static Names) -> Result<Pin<KBox<Self>>> {
        if !NAMES.load(Acquire).is_null() {
            return Err(EBUSY);
        }
        let owner = module.as_ptr();
        let mut this = KBox::pin_init(
            pin_init!(Self {
                steps: 0,
                family <- Opaque::new(bindings::net_proto_family {
                    family: names.family,
                    create: Some(create),
                    owner,
                }),
                creators <- Opaque::uninit(),
                switches <- Opaque::uninit(),
                rows <- Opaque::zeroed(),
                _type: PhantomData,
            }),
            GFP_KERNEL,
        )?;
        NAMES.store(ptr::from_ref(names).cast_mut(), Release);
        // SAFETY: No socket of ours exists, and this is the one registration.
        unsafe { Adapter::<T>::fill(owner) };
        // SAFETY: Nothing is moved; the methods only fill in fields.
        let fields = unsafe { this.as_mut().get_unchecked_mut() };
        fields.fill(names, owner);
        fields.register(names)?;
        Ok(this)
    }

    fn fill(&mut self, names: &'static Names, owner: *mut bindings::module) {
        // SAFETY: The fields are ours alone; TCP's tables are constant since boot. A creator shares
        // TCP's slab, so a sock made with it can be freed as TCP's. Its owner keeps the module while
        // `inet_create` works with what it has looked up: that holds nothing from the end of its
        // RCU section until `sk_prot_alloc` takes this reference, or fails because the module is on
        // its way out. (Between the two it only allocates; the kernel's own modules have that gap.)
        unsafe {
            let v4 = ptr::read(&raw const bindings::tcp_prot);
            let v6 = ptr::read(&raw const bindings::tcpv6_prot);
            let creators = self.creators.get().cast::<bindings::proto>();
            let Some(tables) = tables::get() else { return };
            for index in 0..CREATORS_LEN {
                let family = index % tables::FAMILIES;
                creators.add(index).write(match family {
                    0 => bindings::proto {
                        init: Some(init::<false>),
                        owner,
                        ..v4
                    },
                    _ => bindings::proto {
                        init: Some(init::<true>),
                        owner,
                        ..v6
                    },
                });
                self.switches
                    .get()
                    .cast::<bindings::inet_protosw>()
                    .add(index)
                    .write(bindings::inet_protosw {
                        type_: bindings::sock_type_SOCK_STREAM as u16,
                        protocol: if index < tables::FAMILIES {
                            names.inet_protocol
                        } else {
                            names.converted_protocol
                        },
                        prot: creators.add(index),
                        ops: &tables.active[tables::FAMILIES + family],
                        flags: bindings::INET_PROTOSW_ICSK as u8,
                        ..Default::default()
                    });
            }
            for (index, name) in names.rows.iter().enumerate() {
                let row = self.rows.get().cast::<bindings::proto>().add(index);
                (*row).owner = owner;
                (*row).obj_size = core::mem::size_of::<bindings::sock>() as u32;
                let bytes = name.to_bytes();
                for (to, from) in (*row).name.iter_mut().zip(bytes) {
                    *to = *from as ffi::c_char;
                }
            }
        }
    }

    /// Registers step by step and counts what succeeds; `drop` undoes as many.
    fn register(&mut self, names: &'static Names) -> Result {
        // SAFETY: All structures are filled and pinned; each is registered once.
        unsafe {
            for index in 0..names.rows.len() {
                let row = self.rows.get().cast::<bindings::proto>().add(index);
                to_result(bindings::proto_register(row, 0))?;
                self.steps += 1;
            }
            ROWS.release(self.rows.get().cast());
            CREATORS.release(self.creators.get().cast());
            to_result(bindings::sock_register(self.family.get()))?;
            self.steps += 1;
            let switches = self.switches.get().cast::<bindings::inet_protosw>();
            for pair in (0..CREATORS_LEN).step_by(tables::FAMILIES) {
                to_result(bindings::inet6_register_protosw(switches.add(pair + 1)))?;
                self.steps += 1;
                bindings::inet_register_protosw(switches.add(pair));
                self.steps += 1;
            }
        }
        Ok(())
    }
}

#[pinned_drop]
impl<T: Overlay> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Exactly what was registered is unregistered, in reverse order. When the module is
        // going away, no socket of ours exists, and none can be made any more: a reference to a
        // module that goes is refused, and `inet_unregister_protosw` and `sock_unregister` wait for
        // those who have seen what is unregistered. When loading fails, the last step that can
        // fail in practice is `sock_register`, before which there is no way to make a socket.
        unsafe {
            let switches = self.switches.get().cast::<bindings::inet_protosw>();
            for pair in (0..CREATORS_LEN).step_by(tables::FAMILIES).rev() {
                if self.steps >= pair as u32 + 7 {
                    bindings::inet_unregister_protosw(switches.add(pair));
                }
                if self.steps >= pair as u32 + 6 {
                    bindings::inet6_unregister_protosw(switches.add(pair + 1));
                }
            }
            if self.steps >= 5 {
                bindings::sock_unregister((*self.family.get()).family);
            }
            CREATORS.release(ptr::null_mut());
            ROWS.release(ptr::null_mut());
            for index in (0..self.steps.min(4) as usize).rev() {
                bindings::proto_unregister(self.rows.get().cast::<bindings::proto>().add(index));
            }
        }
        NAMES.store(ptr::null_mut(), Release);
        module::wait_for_returns();
    }
}

/// Initialises the sock of a creator (`init`): makes the new sock TCP's in every respect but one,
/// then lets TCP initialise it. Its creator stays the overlay's, with the reference to the module,
/// until the socket has one by its operations table, which it gets after this;
/// [`disown`](super::stock::creators::disown) ends that.
///
/// # Safety
///
/// Called by the kernel alone. `inet_create` calls it with a new sock of this creator that nobody
/// else knows.
unsafe extern "C" fn init<const V6: bool>(sk: *mut bindings::sock) -> ffi::c_int {
    let prot = tcp_prot(V6);
    // SAFETY: `inet_create` calls this with a new sock that nobody else knows. The creator is a
    // copy of the table installed here, with the same slab, so the sock can be freed with either.
    unsafe {
        (*sk).__sk_common.skc_prot = prot;
        (*sk).sk_protocol = bindings::IPPROTO_TCP as u16;
        let ret = (*prot).init.map_or(0, |init| init(sk));
        if ret == 0 {
            claim::learn(sk);
            add_to_row(
                bindings::sock_net(sk),
                tables::FAMILIES + usize::from(V6),
                1,
            );
            watch_end::<V6>(sk);
        }
        ret
    }
}

/// Creates a socket of the address family (`create`).
///
/// # Safety
///
/// Called by the kernel alone. `sock` is a new socket without operations, and `net` a living
/// namespace.
unsafe extern "C" fn create(
    net: *mut kernel::bindings::net,
    sock: *mut bindings::socket,
    protocol: ffi::c_int,
    kern: ffi::c_int,
) -> ffi::c_int {
    from_result(|| {
        let names = NAMES.load(Acquire);
        if names.is_null() {
            return Err(errno::EAFNOSUPPORT.into());
        }
        // SAFETY: Not null, thus the registered `&'static Names`.
        let names = unsafe { &*names };
        // SAFETY: The core passes a new socket.
        if i32::from(unsafe { (*sock).type_ }) != bindings::sock_type_SOCK_STREAM as i32 {
            return Err(errno::ESOCKTNOSUPPORT.into());
        }
        let family = match names.family_protocols.iter().position(|p| *p == protocol) {
            Some(0) => bindings::AF_INET,
            Some(_) => bindings::AF_INET6,
            None => return Err(errno::EPROTONOSUPPORT.into()),
        };
        let mut inner = ptr::null_mut();
        // SAFETY: `inner` can hold a pointer. A TCP socket is made with all the checks and
        // accounting that this user's TCP sockets are subject to.
        to_result(unsafe {
            bindings::__sock_create(
                net.cast(),
                family as ffi::c_int,
                bindings::sock_type_SOCK_STREAM as ffi::c_int,
                bindings::IPPROTO_TCP as ffi::c_int,
                &mut inner,
                kern,
            )
        })?;
        let tables = tables::get().ok_or(errno::EAFNOSUPPORT)?;
        // SAFETY: Both sockets are new and known to us alone. The sock moves from the inner one to
        // the user's; the inner one, now without a sock, is freed.
        unsafe {
            let sk: *mut bindings::sock = (*inner).sk.cast();
            claim::learn(sk);
            socket::ungraft(inner);
            (*inner).sk = ptr::null_mut();
            bindings::sock_graft(sk, sock);
            (*sock).ops = &tables.active[tables::row(true, family as u16)];
            (*sock).state = bindings::socket_state_SS_UNCONNECTED;
            if bindings::socket_supports_zerocopy(inner) {
                bindings::socket_support_zerocopy(sock);
            }
            bindings::sock_release(inner);
            count(BsdSocket::from_raw(sock), 1);
        }
        Ok(0)
    })
}
