// SPDX-License-Identifier: GPL-2.0
//! Describes the messages, by the comments of `linux/smc.h`.

use st::netlink;

/// A type of attribute.
pub enum Kind {
    U8,
    U16,
    U32,
    U64,
    /// 32 bits or, where those do not suffice, 64.
    Uint,
    /// With a NUL at its end.
    Text,
    Nest(&'static [Field]),
}

/// Number, type, and whether it is always there.
pub type Field = (u16, Kind, bool);

use Kind::{Nest, Text, Uint, U16, U32, U64, U8};

/// `SMC_NETLINK_GET_SYS_INFO`.
pub const SYSTEM: &[Field] = &[(
    1,
    Nest(&[
        (1, U8, true),
        (2, U8, true),
        (3, U8, true),
        (4, Text, true),
        (5, Text, false),
        (6, U8, true),
    ]),
    true,
)];

const GROUP_FIELDS: &[Field] = &[
    (1, U32, true),
    (2, U8, true),
    (3, U8, true),
    (4, Text, true),
    (5, U8, true),
    (6, U32, true),
    (
        7,
        Nest(&[
            (0, U8, true),
            (1, U8, true),
            (2, U8, true),
            (3, Text, true),
            (4, Text, true),
        ]),
        true,
    ),
    (
        8,
        Nest(&[(1, U8, true), (2, U8, true), (3, U8, true)]),
        true,
    ),
    (9, U64, true),
    (11, U8, true),
    (12, Uint, true),
    (13, Uint, true),
];

/// `SMC_NETLINK_GET_LGR_SMCR` of a group of version 2.
pub const GROUP: &[Field] = &[(2, Nest(GROUP_FIELDS), true)];

/// The other messages of `SMC_NETLINK_GET_LINK_SMCR`.
pub const LINK: &[Field] = &[(
    3,
    Nest(&[
        (1, U8, true),
        (2, Text, true),
        (3, U8, true),
        (4, Text, true),
        (5, Text, true),
        (6, U32, true),
        (7, U32, true),
        (8, U32, true),
        (9, U32, true),
        (10, U32, true),
    ]),
    true,
)];

const PORT: &[Field] = &[
    (1, U8, true),
    (2, Text, true),
    (3, U32, true),
    (4, U8, true),
    (5, U8, true),
    (6, U32, true),
];

/// `SMC_NETLINK_GET_DEV_SMCR`. What is of PCI is missing where the device is none.
pub const DEVICE: &[Field] = &[(
    6,
    Nest(&[
        (2, U8, true),
        (3, U32, false),
        (4, U16, false),
        (5, U16, false),
        (6, U16, false),
        (7, Text, false),
        (8, Nest(PORT), true),
        (9, Nest(PORT), false),
        (10, Text, true),
    ]),
    true,
)];

const SIZES: &[Field] = &[
    (1, U64, true),
    (2, U64, true),
    (3, U64, true),
    (4, U64, true),
    (5, U64, true),
    (6, U64, true),
    (7, U64, true),
    (8, U64, true),
    (9, U64, true),
];
const BUFFERS: &[Field] = &[
    (1, U64, true),
    (2, U64, true),
    (3, U64, true),
    (4, U64, true),
    (5, U64, true),
    (6, U64, true),
    (7, U64, true),
];
const TECHNOLOGY: &[Field] = &[
    (1, Nest(SIZES), true),
    (2, Nest(SIZES), true),
    (3, Nest(SIZES), true),
    (4, Nest(SIZES), true),
    (5, Nest(BUFFERS), true),
    (6, Nest(BUFFERS), true),
    (7, U64, true),
    (8, U64, true),
    (9, U64, true),
    (10, U64, true),
    (11, U64, true),
    (12, U64, true),
    (13, U64, true),
    (14, U64, true),
    (15, U64, true),
    (16, U64, true),
    (17, U64, true),
    (18, U64, true),
    (19, U64, true),
    (20, Uint, true),
    (21, Uint, true),
];

/// `SMC_NETLINK_GET_STATS`.
pub const STATS: &[Field] = &[(
    7,
    Nest(&[
        (1, Nest(TECHNOLOGY), true),
        (2, Nest(TECHNOLOGY), true),
        (3, U64, true),
        (4, U64, true),
    ]),
    true,
)];

/// `SMC_NETLINK_GET_FBACK_STATS`: the first message has the totals.
pub const FALLBACK: &[Field] = &[(
    8,
    Nest(&[
        (1, U8, true),
        (2, U64, false),
        (3, U64, false),
        (4, U32, true),
        (5, U16, true),
    ]),
    true,
)];

/// `SMC_NETLINK_DUMP_UEID`.
pub const EID: &[Field] = &[(1, Text, true)];
/// `SMC_NETLINK_DUMP_SEID`: nothing where there is no SMC-D of version 2.
pub const SEID: &[Field] = &[(1, Text, false), (2, U8, false)];
/// `SMC_NETLINK_DUMP_HS_LIMITATION`.
pub const LIMITATION: &[Field] = &[(1, U8, true)];
/// `SMC_PNETID_GET`.
pub const PNET: &[Field] = &[
    (1, Text, true),
    (2, Text, true),
    (3, Text, true),
    (4, U8, true),
];

/// Checks that bytes are these attributes, each at most once and none besides.
pub fn fits(fields: &[Field], bytes: &[u8]) -> Result<(), String> {
    let found = netlink::attributes(bytes).map_err(|_| format!("no attributes: {bytes:02x?}"))?;
    let mut seen = vec![];
    for (number, value) in &found {
        let known = fields.iter().find(|field| field.0 == *number);
        let (_, kind, _) = known.ok_or(format!("unknown attribute {number}: {value:02x?}"))?;
        if seen.contains(number) {
            return Err(format!("attribute {number} twice"));
        }
        seen.push(*number);
        let good = match kind {
            Kind::U8 => value.len() == 1,
            Kind::U16 => value.len() == 2,
            Kind::U32 => value.len() == 4,
            Kind::U64 => value.len() == 8,
            Kind::Uint => value.len() == 4 || value.len() == 8,
            Kind::Text => value.last() == Some(&0),
            Kind::Nest(inner) => {
                fits(inner, value).map_err(|e| format!("in {number}: {e}"))?;
                true
            }
        };
        if !good {
            return Err(format!("attribute {number} is {value:02x?}"));
        }
    }
    match fields
        .iter()
        .find(|field| field.2 && !seen.contains(&field.0))
    {
        Some(field) => Err(format!("attribute {} is missing among {seen:?}", field.0)),
        None => Ok(()),
    }
}
