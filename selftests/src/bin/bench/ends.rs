// SPDX-License-Identifier: GPL-2.0
//! Ends of a measured connection, and the thread or process that has the far one.

use st::child;
use st::errno::{cvt, R};
use st::fd::Fd;
use st::sys;
use std::thread::JoinHandle;

/// An end that sends and receives bytes.
pub trait Duplex: Send + 'static {
    /// Sends all of these bytes.
    fn put(&self, b: &[u8]) -> R<()>;
    /// Receives some bytes; none at the end of the stream.
    fn take(&self, b: &mut [u8]) -> R<usize>;

    /// Receives until the buffer is full; false at the end of the stream.
    fn fill(&self, b: &mut [u8]) -> bool {
        let mut have = 0;
        while have < b.len() {
            match self.take(&mut b[have..]) {
                Ok(n) if n > 0 => have += n,
                _ => return false,
            }
        }
        true
    }
}

/// An end that epoll can wait for.
pub trait Waited: Duplex {
    /// The descriptor that is readable when there is something to take.
    fn readable(&self) -> i32;
}

impl Duplex for Fd {
    fn put(&self, b: &[u8]) -> R<()> {
        sys::send_all(self.raw(), b)
    }

    fn take(&self, b: &mut [u8]) -> R<usize> {
        sys::recv(self.raw(), b, 0).map(|n| n as usize)
    }
}

impl Waited for Fd {
    fn readable(&self) -> i32 {
        self.raw()
    }
}

/// One end of two pipes, one each way.
pub struct Pipes {
    from: Fd,
    to: Fd,
}

fn pipe() -> R<(Fd, Fd)> {
    let mut ends = [0i32; 2];
    // SAFETY: An array of two.
    cvt(unsafe { libc::pipe(ends.as_mut_ptr()) }.into())?;
    Ok((Fd::new(ends[0]), Fd::new(ends[1])))
}

/// Makes both ends.
pub fn pipes() -> (Pipes, Pipes) {
    let (there, back) = (pipe().expect("pipe"), pipe().expect("pipe"));
    let client = Pipes {
        from: back.0,
        to: there.1,
    };
    let server = Pipes {
        from: there.0,
        to: back.1,
    };
    (client, server)
}

impl Duplex for Pipes {
    fn put(&self, mut b: &[u8]) -> R<()> {
        while !b.is_empty() {
            // SAFETY: Buffer and length agree.
            let n = unsafe { libc::write(self.to.raw(), b.as_ptr().cast(), b.len()) };
            b = &b[cvt(n as i64)? as usize..];
        }
        Ok(())
    }

    fn take(&self, b: &mut [u8]) -> R<usize> {
        // SAFETY: Buffer and length agree.
        let n = unsafe { libc::read(self.from.raw(), b.as_mut_ptr().cast(), b.len()) };
        cvt(n as i64).map(|n| n as usize)
    }
}

impl Waited for Pipes {
    fn readable(&self) -> i32 {
        self.from.raw()
    }
}

/// The one that has the far end.
pub enum Far {
    Thread(JoinHandle<bool>),
    Process(i32),
}

impl Far {
    /// Waits for its end; returns whether it did all it had to.
    pub fn join(self) -> bool {
        match self {
            Far::Thread(handle) => handle.join().unwrap_or(false),
            Far::Process(pid) => child::reap(pid, 0) == Some(child::End::Exit(0)),
        }
    }
}

/// Gives the far end to a thread or, if `apart`, to a process of its own, in which the near one is
/// closed; returns the near end.
pub fn beside<E: Send + 'static>(
    apart: bool,
    (near, far): (E, E),
    run: impl FnOnce(E) -> bool + Send + 'static,
) -> (E, Far) {
    if !apart {
        return (near, Far::Thread(std::thread::spawn(move || run(far))));
    }
    let mut ends = Some((near, far));
    let pid = child::spawn(|| {
        // SAFETY: No pointers. Memory that is shared tells nobody that the other end has died.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let far = ends.take().map(|(_, far)| far);
        i32::from(!far.is_some_and(run))
    });
    let near = ends.take().map(|(near, _)| near);
    (near.expect("the near end"), Far::Process(pid))
}
