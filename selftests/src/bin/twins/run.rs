// SPDX-License-Identifier: GPL-2.0
//! One sequence, played on both pairs.

use crate::known::{self, Then};
use crate::look::{self, Care};
use crate::lose::{self, Loser, Loss};
use crate::model::Model;
use crate::pair::{self, Pair, Source};
use crate::step::{self, Step};
use st::rng::Rng;
use st::sys;
use std::collections::BTreeMap;

/// Number of times that each known difference was seen, by name.
pub type Seen = BTreeMap<&'static str, usize>;

/// Result of a sequence.
pub enum End {
    Same,
    /// The last lines of the trace say where.
    Differs(usize, Vec<String>),
}

/// A sequence that is to be played.
pub struct Run<'a> {
    /// TCP's connections, and those to be compared with them.
    pub sources: &'a [Source; 2],
    /// All of it follows from this.
    pub seed: u64,
    /// Most steps.
    pub steps: usize,
    /// Limits of the comparison.
    pub care: Care,
    /// Use of urgent data; drawn if `None`.
    pub urgent: Option<bool>,
    /// What is compared with TCP is a local path.
    pub local: bool,
    /// Its bytes may go by TCP.
    pub by_tcp: bool,
    /// Before each step that sends, poll() is asked whether there is room; without it nothing is sent.
    pub polls: bool,
    /// Has promoted connections lose their links.
    pub loser: Option<&'a Loser>,
    /// True when the trace is printed.
    pub show: bool,
}

impl Run<'_> {
    /// Plays it.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be played.
    pub fn play(&self, seen: &mut Seen) -> Result<End, String> {
        let mut r = Rng::new(self.seed);
        let urgent = r.draw() % 4 == 0;
        let urgent = self.urgent.unwrap_or(urgent);
        let steps = r.range(4, self.steps as u64);
        let mut losses = Rng::new(!self.seed);
        let mut pairs = [self.sources[0].pair()?, self.sources[1].pair()?];
        let mut m = Model::new(urgent, self.local, self.by_tcp, self.most());
        let mut trace = vec![format!("seed {} urgent {urgent}", self.seed)];
        // SAFETY: No pointers.
        unsafe { libc::alarm(30 * st::guest::slow() as u32) };
        'steps: for i in 0..steps {
            let last = steps - i <= 2;
            let step = match last {
                // What is left at the end is compared, too.
                true => match (0..2)
                    .filter(|&end| m.ends[end].open)
                    .nth((steps - i - 1) as usize)
                {
                    Some(end) => Step::Drain { end },
                    None => continue,
                },
                false => step::draw(&mut r, &m),
            };
            let asks = step.end().filter(|_| self.polls && step.sends());
            let poll = asks.map(|end| Step::Poll {
                end,
                events: libc::POLLOUT,
            });
            for step in poll.into_iter().chain([step]) {
                if step.sends() && asks.is_some_and(|end| !pairs[0].has_room(end)) {
                    continue;
                }
                let loser = self.loser.filter(|_| lose::may(&pairs[1], &m));
                let loss = loser.and_then(|loser| loser.draws(&mut losses));
                let loss = loss.filter(|loss| lose::may_at(&m, &step, *loss));
                if let Some(loss) = loss {
                    trace.push(format!("loss {loss:?}"));
                }
                match self.step(&mut pairs, &mut m, &step, loss, &mut trace, seen) {
                    None | Some(Ok(Then::On)) => {}
                    Some(Ok(Then::End)) => break 'steps,
                    Some(Err(())) => return Ok(End::Differs(i as usize, trace)),
                }
            }
        }
        if self.show {
            for line in &trace {
                println!("# {line}");
            }
        }
        Ok(End::Same)
    }

    /// Returns how many bytes may be under way that nobody has read. Of those that poll first there may be as many as a
    /// ring takes that grows, and has a third of it free.
    fn most(&self) -> usize {
        match self.polls {
            true => 120 << 10,
            false => 8 << 10,
        }
    }

    fn step(
        &self,
        pairs: &mut [Pair; 2],
        m: &mut Model,
        step: &Step,
        loss: Option<Loss>,
        trace: &mut Vec<String>,
        seen: &mut Seen,
    ) -> Option<Result<Then, ()>> {
        if let Some(end) = step.end() {
            if step.sends() && m.is_deserted(end) {
                // Nothing shows that the message which says so has come.
                st::guest::pause(20);
            }
        }
        let a = pairs[0].act(step, m, self.seed);
        let b = match (self.loser, loss) {
            (Some(loser), Some(loss)) => loser.lose(loss, || pairs[1].act(step, m, self.seed)),
            _ => pairs[1].act(step, m, self.seed),
        };
        if a.text == b.text {
            trace.push(format!("{step:?} = {}", a.text));
        } else {
            trace.push(format!("{step:?} = tcp {} here {}", a.text, b.text));
            let known = known::answer(m, step, &a, &b);
            match known.filter(|_| pair::is_right(step, m, self.seed, &b)) {
                None => return Some(Err(())),
                Some((name, then)) => {
                    *seen.entry(name).or_default() += 1;
                    if then == Then::End {
                        return Some(Ok(then));
                    }
                }
            }
        }
        m.did(step, a.count);
        if *step == Step::Pause {
            sys::sleep_ms(250);
        }
        match look::settle(pairs, m, step, self.care) {
            Ok(then) => Some(Ok(then)),
            Err(what) => {
                trace.push(format!("then {what}"));
                Some(Err(()))
            }
        }
    }
}
