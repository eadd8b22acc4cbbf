// SPDX-License-Identifier: GPL-2.0

//! A table of fixed size whose memory is the caller's: what is known about some of many strangers.
//!
//! The number of a key leads to a set of [`WAYS`] places, and it stands in one of these or nowhere; so
//! nothing is ever searched for. A new key in a full set takes the place of the value that is worth
//! least. The numbers are mixed with a secret, so that a peer cannot choose keys that fall into one set.

/// Places of a set.
pub const WAYS: usize = 4;

/// A key of [`Slots`].
pub trait Key: Copy + PartialEq {
    /// A number for it; that of another key may be the same.
    fn number(&self) -> u128;
}

/// An address.
impl Key for [u8; 16] {
    fn number(&self) -> u128 {
        u128::from_le_bytes(*self)
    }
}

/// A place for a key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Slot<K, V>(Option<(K, V)>);

impl<K, V> Slot<K, V> {
    /// An empty place.
    pub const EMPTY: Self = Self(None);

    /// Its key and value.
    pub fn get(&self) -> Option<(&K, &V)> {
        self.0.as_ref().map(|(key, value)| (key, value))
    }
}

/// Returns the number of the set, below `sets`, to which a key belongs.
///
/// `secret` is random and the table's own. `sets` is not 0.
pub fn set_of<K: Key>(key: &K, secret: u64, sets: usize) -> usize {
    let number = key.number();
    let first = fold(number as u64 ^ secret, 0x9e37_79b9_7f4a_7c15);
    let whole = fold(first ^ (number >> 64) as u64, 0xd6e8_feb8_6659_fd93);
    ((whole >> 32) as usize).checked_rem(sets).unwrap_or(0)
}

/// Multiplies, and adds the upper half of the product to the lower one: each bit reaches all others.
fn fold(number: u64, by: u64) -> u64 {
    let product = u128::from(number).wrapping_mul(u128::from(by));
    product as u64 ^ (product >> 64) as u64
}

/// A table in places of the caller's, [`WAYS`] for each set.
#[derive(Debug)]
pub struct Slots<'a, K, V> {
    places: &'a mut [Slot<K, V>],
    secret: u64,
}

impl<'a, K: Key, V> Slots<'a, K, V> {
    /// Makes a table of these places, with what is in them. The secret is the same whenever they are used.
    pub fn new(places: &'a mut [Slot<K, V>], secret: u64) -> Self {
        Self { places, secret }
    }

    fn sets(&self) -> usize {
        self.places.len() / WAYS
    }

    fn places_of(&mut self, key: &K) -> &mut [Slot<K, V>] {
        let set = set_of(key, self.secret, self.sets());
        let first = set.saturating_mul(WAYS);
        let end = first.saturating_add(WAYS);
        self.places.get_mut(first..end).unwrap_or(&mut [])
    }

    /// Returns whether nothing stands in a set.
    pub fn is_empty(&self, set: usize) -> bool {
        let places = self.places.iter();
        let mut places = places.skip(set.saturating_mul(WAYS)).take(WAYS);
        places.all(|slot| slot.0.is_none())
    }

    /// Returns the value of a key.
    pub fn find(&mut self, key: &K) -> Option<&mut V> {
        let mut values = self.places_of(key).iter_mut();
        values.find_map(|slot| match &mut slot.0 {
            Some((have, value)) if have == key => Some(value),
            _ => None,
        })
    }

    /// Takes a key and its value out.
    pub fn take(&mut self, key: &K) -> Option<V> {
        let mut slots = self.places_of(key).iter_mut();
        let slot = slots.find(|slot| matches!(&slot.0, Some((have, _)) if have == key))?;
        slot.0.take().map(|(_, value)| value)
    }

    /// Takes out all whose key is not to stay. Returns whether there were any.
    pub fn retain(&mut self, stays: impl Fn(&K) -> bool) -> bool {
        let mut any = false;
        for slot in self.places.iter_mut() {
            if matches!(&slot.0, Some((key, _)) if !stays(key)) {
                slot.0 = None;
                any = true;
            }
        }
        any
    }

    /// Returns the value of a key, and gives it `new` if it has none: in an empty place, or that of the value for
    /// which `worth` is least. `None` only without any places.
    pub fn find_or_put(
        &mut self,
        key: &K,
        new: impl FnOnce() -> V,
        worth: impl Fn(&V) -> u64,
    ) -> Option<&mut V> {
        let rank = |slot: &Slot<K, V>| match &slot.0 {
            Some((have, _)) if have == key => (0, 0),
            None => (1, 0),
            Some((_, value)) => (2, worth(value)),
        };
        let slot = self
            .places_of(key)
            .iter_mut()
            .min_by_key(|slot| rank(slot))?;
        match &mut slot.0 {
            Some((have, _)) if have == key => (),
            other => *other = Some((*key, new())),
        }
        slot.0.as_mut().map(|(_, value)| value)
    }
}
