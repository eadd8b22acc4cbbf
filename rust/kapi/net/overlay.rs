// SPDX-License-Identifier: GPL-2.0

//! A stream protocol laid over TCP.
//!
//! A user's overlay socket *is* a TCP socket, with another operations table: `struct socket` points
//! to the TCP `struct sock` itself, so options, errors, wait queues, SIGIO, accounting and
//! diagnosis are TCP's without any copying. What the overlay knows about a socket, its
//! [`Overlay::Data`], hangs beside it (in the inode's private pointer, which sockets do not use).
//! A socket that gives the overlay up becomes an ordinary TCP socket: [`BsdSocket::become_native`]
//! switches to a table that holds TCP's own functions.

mod tied;

pub use tied::{HasTied, Tied};

use crate::net::{
    args::{Addr, GetOption, Message, Poll, SetOption, Splice},
    socket::{BsdSocket, OwnedBsdSocket}, //
};
use kernel::{prelude::*, sync::Arc};

/// Outcome of an operation on an option.
pub enum Handled {
    /// The overlay dealt with it.
    Done,
    /// TCP is to deal with it.
    Native,
    /// TCP is to deal with it, on a socket that is TCP's from now on: the option may replace its table. Of
    /// setsockopt() only.
    Leave,
}

/// The policy of an overlay family. All functions are called in process context, without locks.
///
/// # Invariants
///
/// Callers keep to these, so that implementations may rely on them:
///
/// * `socket` is open, and `data` is the data that [`Overlay::attached`] was told of with it.
/// * [`Overlay::attached`] comes first for a socket, [`Overlay::release`] last, each once; but see [`reclaim`](super::reclaim).
/// * For a socket that has [become native](BsdSocket::become_native) only [`Overlay::release`] is
///   called, besides the functions that were under way.
///
/// # Examples
///
/// ```
/// use kapi::net::{
///     args::{Addr, GetOption, Message, Poll, SetOption, Splice},
///     family::{Names, Registration},
///     overlay::{Handled, Overlay, Tied},
///     socket::{BsdSocket, OwnedBsdSocket}, //
/// };
/// use kernel::{
///     prelude::*,
///     sync::{
///         atomic::{Atomic, Relaxed},
///         Arc, //
///     }, //
/// };
///
/// /// Counts the bytes that a program sends, and leaves everything to TCP.
/// struct Counting;
///
/// struct Sent {
///     sock: Tied,
///     bytes: Atomic<u64>,
/// }
///
/// kapi::tied! {
///     impl HasTied for Sent { self.sock }
/// }
///
/// impl Overlay for Counting {
///     type Data = Sent;
///     type Rest = ();
///
///     fn create(socket: &BsdSocket) -> Result<Arc<Sent>> {
///         let sent = Sent {
///             sock: Tied::new(socket.sock().into()),
///             bytes: Atomic::new(0),
///         };
///         Ok(Arc::new(sent, GFP_KERNEL)?)
///     }
///
///     fn attached(_: &Arc<Sent>, _: &BsdSocket) {}
///
///     fn release(data: &Arc<Sent>, _: &BsdSocket) -> Option<()> {
///         pr_info!("{} bytes\n", data.bytes.load(Relaxed));
/// #         TOTAL.fetch_add(data.bytes.load(Relaxed), Relaxed);
///         None
///     }
///
///     fn goes_on(_: (), _: Option<OwnedBsdSocket>) {}
///
///     fn connect(_: &Arc<Sent>, socket: &BsdSocket, addr: &Addr<'_>, flags: i32) -> Result {
///         socket.native_connect(addr, flags)
///     }
///
///     fn listen(_: &Arc<Sent>, socket: &BsdSocket, backlog: i32) -> Result {
///         socket.native_listen(backlog)
///     }
///
///     fn accept(
///         _: &Arc<Sent>,
///         socket: &BsdSocket,
///         new: &BsdSocket,
///         _nonblock: bool,
///     ) -> Result<Arc<Sent>> {
///         // Never waits, for brevity.
///         let child = socket.sock().accept()?;
///         new.adopt(socket, child, true);
///         Self::create(new)
///     }
///
///     fn accepts_more(_: &Arc<Sent>) -> bool {
///         // Not known, for brevity: it will ask.
///         true
///     }
///
///     fn poll(_: &Arc<Sent>, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
///         socket.native_poll(poll)
///     }
///
///     fn has_peer(_: &Arc<Sent>) -> bool {
///         true
///     }
///
///     fn shutdown(_: &Arc<Sent>, socket: &BsdSocket, how: i32) -> Result {
///         socket.native_shutdown(how)
///     }
///
///     fn ioctl(_: &Arc<Sent>, _: &BsdSocket, _command: u32) -> Result<Option<i32>> {
///         Ok(None)
///     }
///
///     fn sendmsg(data: &Arc<Sent>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
///         let sent = socket.native_sendmsg(msg)?;
///         data.bytes.fetch_add(sent as u64, Relaxed);
///         Ok(sent)
///     }
///
///     fn recvmsg(_: &Arc<Sent>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
///         socket.native_recvmsg(msg)
///     }
///
///     fn splice(_: &Arc<Sent>, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
///         socket.native_splice(splice)
///     }
///
///     fn splice_ended(_: &Arc<Sent>) -> bool {
///         false
///     }
///
///     fn low_water_changed(_: &Arc<Sent>) {}
///
///     fn set_option(_: &Arc<Sent>, _: &BsdSocket, _: &SetOption<'_>) -> Result<Handled> {
///         Ok(Handled::Native)
///     }
///
///     fn get_option(_: &Arc<Sent>, _: &BsdSocket, _: &GetOption<'_>) -> Result<Handled> {
///         Ok(Handled::Native)
///     }
/// }
///
/// // Numbers that nobody uses.
/// static NAMES: Names = Names {
///     family: 18,
///     family_protocols: [0, 1],
///     inet_protocol: 260,
///     converted_protocol: 261,
///     rows: [c"COUNT", c"COUNT6", c"INET_COUNT", c"INET6_COUNT"],
/// };
/// # static TOTAL: Atomic<u64> = Atomic::new(0);
/// # let module = crate::this_module()?;
///
/// // While it is registered, socket(18, SOCK_STREAM, 0) makes such sockets.
/// let family = Registration::<Counting>::new(module, &NAMES)?;
/// #
/// # let listening = crate::tcp::Socket::listening()?;
/// # let socket = crate::tcp::Socket::new(NAMES.family)?;
/// # let peer = socket.connect(&listening)?;
/// # assert_eq!(socket.send(b"bytes")?, 5);
/// # crate::wait(|| peer.unread() >= 5)?;
/// # let mut bytes = [0; 5];
/// # assert_eq!(peer.receive(&mut bytes)?, 5);
/// # assert_eq!(&bytes, b"bytes");
/// # assert_eq!(TOTAL.load(Relaxed), 0);
/// # drop(socket);
/// # assert_eq!(TOTAL.load(Relaxed), 5);
/// drop(family);
/// # assert!(crate::tcp::Socket::new(NAMES.family).is_err());
/// # Ok::<(), Error>(())
/// ```
pub trait Overlay: Sized + Send + Sync + 'static {
    /// The overlay's state of a socket.
    type Data: HasTied;
    /// What goes on with a connection whose file has been closed.
    type Rest;

    /// Makes the data of a socket that is used for the first time.
    ///
    /// # Errors
    ///
    /// Whatever the operation that needed the data shall return.
    fn create(socket: &BsdSocket) -> Result<Arc<Self::Data>>;

    /// Takes note that `data` is the data of `socket` from now on, until [`Overlay::release`];
    /// called once.
    ///
    /// Data that [`Overlay::create`] has made may be thrown away instead, when two threads use a new
    /// socket at once.
    fn attached(data: &Arc<Self::Data>, socket: &BsdSocket);

    /// Tells whether the stream is TCP's alone, so that sockmap or KCM may read it. Any context.
    fn is_plain(_data: &Arc<Self::Data>) -> bool {
        false
    }

    /// Takes note that the socket has been given back to TCP ([`Handled::Leave`]): instead of
    /// [`Overlay::release`], and while calls of other threads may be under way.
    fn left(_data: &Arc<Self::Data>) {}

    /// Gives up the socket, which is being closed. TCP's own release follows, unless something is returned: then
    /// [`Overlay::goes_on`] does.
    fn release(data: &Arc<Self::Data>, socket: &BsdSocket) -> Option<Self::Rest>;

    /// Goes on with a connection whose file has been closed. `socket` has it from now on; without one TCP's own release
    /// follows.
    fn goes_on(rest: Self::Rest, socket: Option<OwnedBsdSocket>);

    /// Handles connect(); see TCP's for the errors.
    fn connect(data: &Arc<Self::Data>, socket: &BsdSocket, addr: &Addr<'_>, flags: i32) -> Result;

    /// Handles listen().
    fn listen(data: &Arc<Self::Data>, socket: &BsdSocket, backlog: i32) -> Result;

    /// Handles accept(): gives `new` a connection, and its data; one that is TCP's
    /// [becomes native](BsdSocket::become_native).
    ///
    /// # Errors
    ///
    /// TCP's; without a connection `new` is left alone.
    fn accept(
        data: &Arc<Self::Data>,
        socket: &BsdSocket,
        new: &BsdSocket,
        nonblock: bool,
    ) -> Result<Arc<Self::Data>>;

    /// Tells whether accept() would find a connection now. io_uring asks after each that it gets.
    fn accepts_more(data: &Arc<Self::Data>) -> bool;

    /// Handles poll(): returns the `EPOLL` events that hold now.
    fn poll(data: &Arc<Self::Data>, socket: &BsdSocket, poll: &Poll<'_>) -> u32;

    /// Tells whether getpeername() may name TCP's peer, if TCP has one.
    fn has_peer(data: &Arc<Self::Data>) -> bool;

    /// Handles shutdown(); `how` as in the system call.
    fn shutdown(data: &Arc<Self::Data>, socket: &BsdSocket, how: i32) -> Result;

    /// Handles ioctl(): returns the int that the overlay answers with, or `None` to leave the
    /// command to TCP.
    fn ioctl(data: &Arc<Self::Data>, socket: &BsdSocket, command: u32) -> Result<Option<i32>>;

    /// Handles sendmsg(), returns the bytes taken.
    fn sendmsg(data: &Arc<Self::Data>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize>;

    /// Handles recvmsg(), returns the bytes given.
    fn recvmsg(data: &Arc<Self::Data>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize>;

    /// Handles splice() from the socket, returns the bytes moved.
    fn splice(data: &Arc<Self::Data>, socket: &BsdSocket, splice: &mut Splice<'_>)
        -> Result<usize>;

    /// Handles the end of the source of sendfile() or splice() into the socket; returns whether
    /// that is all there is to do. Otherwise TCP hears of it, too.
    fn splice_ended(data: &Arc<Self::Data>) -> bool;

    /// Takes note of another value of `SO_RCVLOWAT`. In contrast to the others this is called with
    /// the socket locked, and by BPF programs in softirq: it must not sleep.
    fn low_water_changed(data: &Arc<Self::Data>);

    /// Handles setsockopt(), of every level but `SOL_SOCKET`.
    fn set_option(
        data: &Arc<Self::Data>,
        socket: &BsdSocket,
        option: &SetOption<'_>,
    ) -> Result<Handled>;

    /// Handles getsockopt(), of every level but `SOL_SOCKET`.
    fn get_option(
        data: &Arc<Self::Data>,
        socket: &BsdSocket,
        option: &GetOption<'_>,
    ) -> Result<Handled>;
}
