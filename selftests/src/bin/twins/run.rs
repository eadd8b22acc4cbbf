// SPDX-License-Identifier: GPL-2.0
//! One sequence, played on both pairs.

use crate::forced::{self, When};
use crate::known::{self, Then};
use crate::look::{self, Care};
use crate::lose::{self, Loser, Loss};
use crate::model::Model;
use crate::pair::{self, Pair, Source};
use crate::step::{self, Step};
use st::rng::Rng;
use st::sys;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Number of times that each known difference was seen, by name.
pub type Seen = BTreeMap<&'static str, usize>;

/// What has become of connections that begin as TCP, as far as was seen.
#[derive(Default)]
pub struct Tally {
    /// Sequences.
    pub played: Cell<u64>,
    /// Those that were SMC-R at both ends.
    pub promoted: Cell<u64>,
    /// Those of them that were so by their own bytes.
    pub alone: Cell<u64>,
    /// Those that lost their link, once or more.
    pub lost: Cell<u64>,
    /// Times that one was SMC-R again after a loss.
    pub again: Cell<u64>,
}

fn count(cell: &Cell<u64>, more: bool) {
    cell.set(cell.get() + u64::from(more));
}

/// What was seen of the carrier of a sequence.
#[derive(Default)]
struct Carried {
    promoted: bool,
    /// A link was lost.
    lost: bool,
    /// And the connection was not seen on another one since.
    down: bool,
}

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
    /// It begins as TCP and is promoted.
    pub promotes: Option<&'a Tally>,
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
        let mut carried = Carried::default();
        let mut r = Rng::new(!self.seed);
        let when = match self.promotes {
            Some(_) => When::draw(&mut r),
            None => When::Alone,
        };
        let end = self.play_until(seen, when, &mut r, &mut carried)?;
        if let Some(tally) = self.promotes {
            count(&tally.played, true);
            count(&tally.promoted, carried.promoted);
            count(&tally.alone, carried.promoted && when == When::Alone);
            count(&tally.lost, carried.lost);
        }
        Ok(end)
    }

    /// Looks what carries the second pair, and brings it to SMC-R before a step if it is to be there.
    fn carry(
        &self,
        pairs: &[Pair; 2],
        m: &Model,
        forces: bool,
        carried: &mut Carried,
        trace: &mut Vec<String>,
    ) -> Result<(), ()> {
        let Some(tally) = self.promotes else {
            return Ok(());
        };
        if !(m.ends[0].open && m.ends[1].open) {
            return Ok(());
        }
        let mut is_smc = forced::is_smc(&pairs[1]);
        if forces && !is_smc && forced::may(pairs, m) {
            match forced::promote(pairs) {
                Ok(done) => is_smc = done,
                Err(what) => {
                    trace.push(format!("to be promoted: {what}"));
                    return Err(());
                }
            }
            trace.push(format!("promoted: {is_smc}"));
        }
        carried.promoted |= is_smc;
        count(&tally.again, is_smc && carried.down);
        carried.down &= !is_smc;
        Ok(())
    }

    fn play_until(
        &self,
        seen: &mut Seen,
        when: When,
        losses: &mut Rng,
        carried: &mut Carried,
    ) -> Result<End, String> {
        let mut r = Rng::new(self.seed);
        let urgent = r.draw() % 4 == 0;
        let urgent = self.urgent.unwrap_or(urgent);
        let steps = r.range(4, self.steps as u64);
        let mut pairs = [self.sources[0].pair()?, self.sources[1].pair()?];
        let mut m = Model::new(urgent, self.local, self.by_tcp, self.most());
        m.turns = self.promotes.is_some();
        let mut trace = vec![format!(
            "seed {} urgent {urgent} promoted {when:?}",
            self.seed
        )];
        if let Some(loser) = self.loser {
            loser.begins();
            if !urgent {
                pairs[1].waits_for_room();
            }
        }
        // SAFETY: No pointers.
        unsafe { libc::alarm(30 * st::guest::slow() as u32) };
        'steps: for i in 0..steps {
            let forces = when == When::Before(i) || carried.down && losses.range(0, 3) != 0;
            if self.carry(&pairs, &m, forces, carried, &mut trace).is_err() {
                return Ok(End::Differs(i as usize, trace));
            }
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
                if let Some(loser) = self.loser {
                    loser.precedes(&pairs, &m, &step);
                }
                let loser = self.loser.filter(|_| lose::may(&pairs[1], &m));
                let loss = loser.and_then(|loser| loser.draws(losses));
                let loss = loss.filter(|loss| lose::may_at(&m, &step, *loss));
                if let Some(loss) = loss {
                    trace.push(format!("loss {loss:?}"));
                    m.lost = true;
                    carried.lost = true;
                    carried.down = true;
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
            (Some(loser), Some(loss)) => {
                let shared = std::cell::RefCell::new(&mut *pairs);
                loser.lose(
                    loss,
                    || loser.precedes(&shared.borrow(), m, step),
                    || shared.borrow_mut()[1].act(step, m, self.seed),
                )
            }
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
