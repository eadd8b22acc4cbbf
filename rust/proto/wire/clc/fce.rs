// SPDX-License-Identifier: GPL-2.0

//! First contact extension of accept and confirm, version 2.

use super::decline::Os;
use crate::{
    error::{
        EmitError,
        ParseError, //
    },
    wire::bytes::{
        Reader,
        Writer, //
    },
};

/// Length of the short form.
pub const SHORT_LEN: usize = 36;
/// Length of the long form.
pub const LONG_LEN: usize = 52;
/// Length of the host name field.
pub const HOSTNAME_LEN: usize = 32;

/// Fields that release 1 ("v2.1") added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Connections per link group, 16 to 255. SMC-R only.
    pub max_conns: u8,
    /// Links per link group, 1 or 2. SMC-R only.
    pub max_links: u8,
    /// Supplemental features in common, see [`FEATURE_EMULATED_ISM`](super::proposal::FEATURE_EMULATED_ISM).
    pub features: u16,
    /// Vendor's experimental options.
    pub vendor: u32,
}

/// First contact extension: sent where a new link group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstContact {
    /// The peer is reached without a gateway (SMC-R).
    pub direct: bool,
    /// Sender's operating system.
    pub os: Os,
    /// Release of version 2: 0 or 1.
    pub release: u8,
    /// Sender's host name, padded with blanks.
    pub hostname: [u8; HOSTNAME_LEN],
    /// Present in the long form, which release 1 needs. C sends the long form
    /// with zeroes also for release 0 of SMC-R, kernels before 6.7 the short one.
    /// All zero in release 0.
    pub limits: Option<Limits>,
}

impl FirstContact {
    /// Length on the wire.
    pub const fn wire_len(&self) -> usize {
        match self.limits {
            Some(_) => LONG_LEN,
            None => SHORT_LEN,
        }
    }

    /// The host name field for a name, cut to 32 bytes and padded with blanks.
    pub fn pad_hostname(name: &[u8]) -> [u8; HOSTNAME_LEN] {
        let mut field = [b' '; HOSTNAME_LEN];
        for (to, from) in field.iter_mut().zip(name) {
            *to = *from;
        }
        field
    }

    /// Parses the extension at the start of `bytes`, which reach to the trailer
    /// and may hold other things after it. `gid_list` says that a GID list
    /// follows, which helps to tell the two forms apart in release 0.
    pub(super) fn parse(bytes: &[u8], gid_list: bool) -> Result<FirstContact, ParseError> {
        let mut r = Reader::new(bytes);
        let direct = r.u8()? & 0x80 != 0;
        let bits = r.u8()?;
        r.skip(2)?;
        let hostname = r.array()?;
        let release = bits & 0x0f;
        let limits = if release == 0 && is_short(bytes, gid_list) {
            None
        } else {
            let limits = Limits {
                max_conns: r.u8()?,
                max_links: r.u8()?,
                features: r.be16()?,
                vendor: r.be32()?,
            };
            r.skip(8)?;
            // Release 0 does not know them, whatever stands there.
            Some(if release == 0 {
                Limits::default()
            } else {
                limits
            })
        };
        Ok(FirstContact {
            direct,
            os: Os(bits >> 4),
            release,
            hostname,
            limits,
        })
    }

    /// Writes the extension.
    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        let limits_fit = match (self.release, self.limits) {
            (0, Some(limits)) => limits == Limits::default(),
            (0, None) => true,
            (release, limits) => release < 16 && limits.is_some(),
        };
        if !limits_fit {
            return Err(EmitError::Invalid);
        }
        w.u8(if self.direct { 0x80 } else { 0 })?;
        w.u8((self.os.0 << 4) | self.release)?;
        w.zero(2)?;
        w.put(&self.hostname)?;
        if let Some(limits) = &self.limits {
            w.u8(limits.max_conns)?;
            w.u8(limits.max_links)?;
            w.be16(limits.features)?;
            w.be32(limits.vendor)?;
            w.zero(8)?;
        }
        Ok(())
    }
}

/// Reports whether a release 0 extension at the start of `bytes` has the short form.
///
/// The message does not say. It is short if there is no room for the long form,
/// or if a GID list right after the short form fills the message exactly: in
/// the long form of release 0 the byte that would be its count is zero, and no
/// list would be shorter than the long form.
fn is_short(bytes: &[u8], gid_list: bool) -> bool {
    if bytes.len() < LONG_LEN {
        return true;
    }
    let count = bytes.get(SHORT_LEN).copied().map(usize::from);
    let listed = count
        .and_then(|n| n.checked_mul(16))
        .and_then(|n| n.checked_add(SHORT_LEN.saturating_add(4)));
    gid_list && listed == Some(bytes.len())
}
