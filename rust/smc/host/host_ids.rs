// SPDX-License-Identifier: GPL-2.0

//! The numbers of this host that connections have used lately, so that not each packet of a handshake hashes.

use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use smc_proto::wire::identity::HostId;

/// Number of places, a power of two. Scopes are numbers of namespaces, which are given one after the other.
const COUNT: usize = 16;

/// The number of one scope.
struct Place {
    /// 0 while nothing stands here, odd while it changes, and another value after each change.
    version: Atomic<u64>,
    scope: Atomic<u64>,
    host: Atomic<u64>,
}

impl Place {
    const fn empty() -> Self {
        Self {
            version: Atomic::new(0),
            scope: Atomic::new(0),
            host: Atomic::new(0),
        }
    }

    /// Returns what stands here, unless it is changing.
    fn get(&self) -> Option<(u64, u64)> {
        let version = self.version.load(Acquire);
        // Each is read before what is read behind it.
        let scope = self.scope.load(Acquire);
        let host = self.host.load(Acquire);
        let same = self.version.load(Relaxed) == version;
        (same && version != 0 && version % 2 == 0).then_some((scope, host))
    }

    /// Puts something here, unless somebody else does.
    fn put(&self, scope: u64, host: u64) {
        let version = self.version.load(Relaxed);
        if version % 2 != 0 {
            return;
        }
        let odd = version.wrapping_add(1);
        if self.version.cmpxchg(version, odd, Full).is_ok() {
            self.scope.store(scope, Relaxed);
            self.host.store(host, Relaxed);
            self.version.store(odd.wrapping_add(1), Release);
        }
    }
}

/// A memory of numbers. Any context.
pub(super) struct HostIds([Place; COUNT]);

impl HostIds {
    /// Remembers nothing.
    pub(super) const fn new() -> Self {
        Self([const { Place::empty() }; COUNT])
    }

    /// Returns the number for `scope`, by `make` if it is not remembered.
    #[inline]
    pub(super) fn get(&self, scope: u64, make: impl FnOnce() -> HostId) -> HostId {
        // The mask keeps the index in range.
        let place = &self.0[scope as usize & (COUNT - 1)];
        if let Some((known, host)) = place.get() {
            if known == scope {
                let [a, b, c, d, e, f, g, _] = host.to_ne_bytes();
                return HostId([a, b, c, d, e, f, g]);
            }
        }
        let made = make();
        let [a, b, c, d, e, f, g] = made.0;
        place.put(scope, u64::from_ne_bytes([a, b, c, d, e, f, g, 0]));
        made
    }
}
