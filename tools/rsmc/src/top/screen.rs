// SPDX-License-Identifier: GPL-2.0
//! The terminal of `rsmc top`: a second screen, keys as they are pressed, and all as it was at the end.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Other screen, no cursor, no wrapping of long lines; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A terminal that was taken over.
#[derive(Debug)]
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal over; `None` if input or output is none.
    ///
    /// # Errors
    /// The terminal's.
    pub fn enter() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let stdin = io::stdin();
        let before = termios::tcgetattr(stdin.as_fd())?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(stdin.as_fd(), OptionalActions::Now, &raw)?;
        let screen = Self { before };
        io::stdout().write_all(ENTER)?;
        io::stdout().flush()?;
        Ok(Some(screen))
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout().as_fd()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => (80, 24),
        }
    }

    /// The next key within this time, if any.
    ///
    /// # Errors
    /// The terminal's, also when it is gone.
    pub fn key(&self, wait: Duration) -> io::Result<Option<u8>> {
        let stdin = io::stdin();
        let fd: BorrowedFd<'_> = stdin.as_fd();
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&wait)) {
            // A signal such as that of another window size.
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(None),
            other => other?,
        };
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
        let _ = io::stdout().write_all(LEAVE);
        let _ = io::stdout().flush();
        let _ = termios::tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.before);
    }
}
