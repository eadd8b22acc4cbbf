// SPDX-License-Identifier: GPL-2.0
//! `rsmc top`: connections, rates and fallbacks, again and again.

mod json;
mod screen;
mod view;

use crate::cli::{SsArgs, TopArgs, TopSort};
use crate::error::Result;
use crate::{clock, link, ss, stats};
use screen::Screen;
use std::io::Write;
use std::time::{Duration, Instant};
use view::{Sample, View};

/// Lines that are no connections: the time, the head, and what says how many are hidden.
const OTHER_LINES: usize = 8;

/// Shows pictures until the user ends it; one, where there is no terminal.
///
/// # Errors
/// See [`crate::diag::dump`]; those of the terminal.
pub fn run(args: &TopArgs, out: &mut dyn Write) -> Result<()> {
    let asked = SsArgs {
        all: true,
        numeric: args.numeric,
        ..SsArgs::default()
    };
    let mut view = View::new(look(&asked)?, args.sort, args.numeric);
    let screen = match args.json {
        true => None,
        false => Screen::enter()?,
    };
    let Some(screen) = screen else {
        for number in 0..args.count.unwrap_or(1) {
            if number > 0 && !args.json {
                writeln!(out)?;
            }
            std::thread::sleep(args.interval);
            let sample = look(&asked)?;
            match args.json {
                true => json::write(&mut view, sample, out)?,
                false => out.write_all(view.picture(sample, usize::MAX).as_bytes())?,
            }
            out.flush()?;
        }
        return Ok(());
    };
    let mut shown = 0;
    let mut halted = false;
    // The first picture comes soon: rates over a short time are better than an empty screen.
    let mut next = Instant::now() + Duration::from_millis(300).min(args.interval);
    loop {
        let now = Instant::now();
        if now >= next && !halted {
            let (columns, lines) = screen.size();
            let sample = look(&asked)?;
            let picture = view.picture(sample, lines.saturating_sub(OTHER_LINES).max(1));
            show(&picture, columns, out)?;
            shown += 1;
            if args.count.is_some_and(|count| shown >= count) {
                return Ok(());
            }
            next = now + args.interval;
        }
        let wait = match halted {
            true => args.interval,
            false => next.saturating_duration_since(Instant::now()),
        };
        let key = screen.key(wait)?;
        if screen.is_over() {
            return Ok(screen.end()?);
        }
        match key {
            // Also as the interrupt character, which is a key like others here.
            Some(b'q' | 3 | 4) => return Ok(()),
            Some(b' ') => halted = !halted,
            Some(key) => {
                let sort = sort_by(key);
                view.sort = sort.unwrap_or(view.sort);
                if sort.is_some() {
                    next = Instant::now();
                }
            }
            None => {}
        }
    }
}

fn sort_by(key: u8) -> Option<TopSort> {
    match key {
        b'b' => Some(TopSort::Bytes),
        b'r' => Some(TopSort::Received),
        b's' => Some(TopSort::Sent),
        b'w' => Some(TopSort::Queue),
        b't' => Some(TopSort::Time),
        _ => None,
    }
}

/// A picture over the last one, without a flicker: the rest of each line is erased, not the screen.
fn show(picture: &str, columns: usize, out: &mut dyn Write) -> Result<()> {
    let mut text = String::from("\x1b[H");
    let keys = "q quit, space halt, sort: b r s w t";
    let time = clock::text(clock::now());
    text.push_str(&format!("rsmc top  {time} UTC  ({keys})\x1b[K\n"));
    for line in picture.lines() {
        // The terminal cuts long lines; without colours they are cut here, for those that do not.
        match line.contains('\x1b') {
            true => text.push_str(line),
            false => text.extend(line.chars().take(columns)),
        }
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn look(asked: &SsArgs) -> Result<Sample> {
    Ok(Sample {
        sockets: ss::collect(asked)?,
        at: Instant::now(),
        statistics: stats::Statistics::collect().ok(),
        groups: link::collect().ok(),
    })
}
