// SPDX-License-Identifier: GPL-2.0
//! Many bytes by promoted connections whose devices acknowledge, every now and then, what reaches no memory.

use super::*;
use st::card::{counted, trouble};
use std::sync::atomic::AtomicBool;

/// Mebibytes in all.
pub(super) static MB: AtomicU64 = AtomicU64::new(500);

/// Connections at a time; bytes of each, at most, and of a call.
const STREAMS: u64 = 4;
const MOST: u64 = 256 << 20;
const CHUNK: usize = 256 << 10;

/// A stream's bytes: they come again after a prime number, so that what is out of place is not what is expected there.
struct Pattern(Vec<u8>);

impl Pattern {
    const PERIOD: usize = 1_048_573;

    fn new(seed: u64) -> Self {
        let mut bytes = vec![0; Self::PERIOD];
        fill(seed, 0, &mut bytes);
        bytes.extend_from_within(..CHUNK);
        Self(bytes)
    }

    fn at(&self, position: u64, len: usize) -> &[u8] {
        let from = (position % Self::PERIOD as u64) as usize;
        &self.0[from..from + len]
    }
}

/// What all streams share.
struct Volume {
    patterns: [Pattern; 2],
    /// Bytes that came right, of these by SMC-R, about.
    all: AtomicU64,
    by_smc: AtomicU64,
    over: AtomicBool,
}

impl Volume {
    fn goes_on(&self) -> bool {
        self.all.load(Relaxed) < MB.load(Relaxed) << 20 && !self.over.load(Relaxed)
    }

    fn put(&self, fd: &Fd, way: usize) -> Outcome {
        let (pattern, mut at) = (&self.patterns[way], 0);
        while at < MOST && self.goes_on() {
            sys::send_all(fd.raw(), pattern.at(at, CHUNK))
                .map_err(|e| format!("send at {at}: {e}"))?;
            at += CHUNK as u64;
        }
        sys::shutdown(fd.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
        Ok(())
    }

    fn take(&self, fd: &Fd, way: usize) -> Outcome {
        let (pattern, mut at) = (&self.patterns[way], 0);
        let mut bytes = vec![0; CHUNK];
        let mut calls = 0u32;
        let mut hot = false;
        loop {
            let got = sys::recv(fd.raw(), &mut bytes, 0);
            let got = got.map_err(|e| format!("recv at {at}: {e}"))? as usize;
            if got == 0 {
                return Ok(());
            }
            let right = bytes[..got] == *pattern.at(at, got);
            wanted("bytes", right, (way, at, got))?;
            at += got as u64;
            if calls % 16 == 0 {
                hot = mode(fd) == SMC;
            }
            calls += 1;
            self.all.fetch_add(got as u64, Relaxed);
            if hot {
                self.by_smc.fetch_add(got as u64, Relaxed);
            }
        }
    }

    /// Connections, one after the other, with a stream each way.
    fn stream(&self) -> Outcome {
        while self.goes_on() {
            let pair = begin()?;
            std::thread::scope(|threads| {
                let ends = [&pair.client, &pair.server];
                let mut all = vec![];
                for way in [0, 1] {
                    let (from, to) = (ends[way], ends[1 - way]);
                    all.push(threads.spawn(move || self.put(from, way)));
                    all.push(threads.spawn(move || self.take(to, way)));
                }
                all.into_iter()
                    .try_for_each(|thread| thread.join().expect("a thread"))
            })?;
        }
        Ok(())
    }

    /// Has a device forget for a moment, whenever so many bytes have gone by SMC-R. Returns how often.
    fn forget(&self) -> u32 {
        let (mut rng, mut times, mut next) = (rng(), 0, 0);
        while self.goes_on() {
            let by_smc = self.by_smc.load(Relaxed);
            if by_smc < next {
                sys::sleep_ms(1);
                continue;
            }
            next = by_smc + (rng.range(20, 400) << 20);
            let card = if rng.range(0, 1) == 0 {
                "card_a"
            } else {
                "card_b"
            };
            trouble(card, "forgets", 1);
            sys::sleep_ms(rng.range(0, 2));
            trouble(card, "forgets", 0);
            times += 1;
            if times % 500 == 0 {
                println!("# {} MB by SMC-R, {times} times", by_smc >> 20);
            }
        }
        times
    }
}

/// All of them come, in their order, and nothing else does.
pub(super) fn volume() -> Outcome {
    after(8);
    // A link that breaks soon is not to be remembered of the peer.
    set(&["a", "b"], "neighbour_time", 0);
    let volume = Volume {
        patterns: [Pattern::new(21), Pattern::new(22)],
        all: AtomicU64::new(0),
        by_smc: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    let forgotten = || counted("card_a", "forgotten") + counted("card_b", "forgotten");
    let before = forgotten();
    let (done, times) = std::thread::scope(|threads| {
        let hand = threads.spawn(|| volume.forget());
        let streams: Vec<_> = (0..STREAMS)
            .map(|_| {
                threads.spawn(|| {
                    let done = volume.stream();
                    volume.over.fetch_or(done.is_err(), Relaxed);
                    done
                })
            })
            .collect();
        let done = streams
            .into_iter()
            .try_for_each(|stream| stream.join().expect("a stream"));
        (done, hand.join().expect("the hand"))
    });
    let (all, by_smc) = (volume.all.load(Relaxed), volume.by_smc.load(Relaxed));
    let forgotten = forgotten() - before;
    println!(
        "# {} MB, {} of them by SMC-R; devices forgot {times} times, {forgotten} requests",
        all >> 20,
        by_smc >> 20
    );
    done?;
    wanted("much by SMC-R", by_smc > all / 4, (by_smc, all))?;
    wanted(
        "forgotten",
        forgotten > u64::from(times) / 4,
        (forgotten, times),
    )
}
