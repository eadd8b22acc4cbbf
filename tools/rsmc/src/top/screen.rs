// SPDX-License-Identifier: GPL-2.0
//! The terminal of `rsmc top`: a second screen, keys as they are pressed, and all as it was at the
//! end, also when a signal is the end.

use crate::visible;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io::{self, IsTerminal};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Other screen, no cursor, no wrapping of long lines; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A terminal that was taken over.
#[derive(Debug)]
pub struct Screen {
    before: Termios,
    /// The signal that has come to end this, or 0.
    signal: Arc<AtomicUsize>,
    /// Readable after that.
    signalled: UnixStream,
}

impl Screen {
    /// Takes the terminal over; `None` if input or output is none.
    ///
    /// # Errors
    /// The terminal's.
    pub fn enter() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !visible::is_terminal() {
            return Ok(None);
        }
        let stdin = io::stdin();
        let before = termios::tcgetattr(stdin.as_fd())?;
        let signal = Arc::new(AtomicUsize::new(0));
        let (signalled, wake) = UnixStream::pair()?;
        for number in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(number, signal.clone(), number as usize)?;
            low_level::pipe::register(number, wake.try_clone()?)?;
        }
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(stdin.as_fd(), OptionalActions::Now, &raw)?;
        let screen = Self {
            before,
            signal,
            signalled,
        };
        visible::write_raw(ENTER)?;
        Ok(Some(screen))
    }

    /// Columns and lines.
    #[expect(clippy::disallowed_methods, reason = "nothing is written")]
    pub fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout().as_fd()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => (80, 24),
        }
    }

    /// Ends the program as the signal does that has come, after the terminal is as it was.
    ///
    /// # Errors
    /// The error for a signal that does not end programs.
    pub fn end(self) -> io::Result<()> {
        let signal = self.signal.load(Ordering::Relaxed);
        drop(self);
        low_level::emulate_default_handler(i32::try_from(signal).unwrap_or(SIGTERM))
    }

    /// Tells whether a signal has come that ends programs.
    pub fn is_over(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The next key within this time, if any; `None` also when a signal has come.
    ///
    /// # Errors
    /// The terminal's, also when it is gone.
    pub fn key(&self, wait: Duration) -> io::Result<Option<u8>> {
        let stdin = io::stdin();
        let fd: BorrowedFd<'_> = stdin.as_fd();
        let mut polled = [
            PollFd::new(&fd, PollFlags::IN),
            PollFd::new(&self.signalled, PollFlags::IN),
        ];
        let wait = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&wait)) {
            // A signal such as that of another window size.
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(None),
            other => other?,
        };
        if self.is_over() {
            return Ok(None);
        }
        let mut key = [0u8];
        match rustix::io::read(fd, &mut key)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(Some(key[0])),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing more can be done where this fails.
        let _ = visible::write_raw(LEAVE);
        let _ = termios::tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.before);
    }
}
