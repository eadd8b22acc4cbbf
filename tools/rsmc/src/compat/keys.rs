// SPDX-License-Identifier: GPL-2.0
//! The counters as `stats json` of `smcr` and `smcd` calls them.

use crate::stats::tree::Node;
use serde_json::{Map, Value};

/// The kernel's buckets and what they are called in JSON.
pub const SIZES: [(&str, &str); 9] = [
    ("8k", "8K"),
    ("16k", "16K"),
    ("32k", "32K"),
    ("64k", "64K"),
    ("128k", "128K"),
    ("256k", "256K"),
    ("512k", "512K"),
    ("1024k", "1024K"),
    ("larger", "G_1024K"),
];

/// A counter in a group.
pub fn inner(node: &Node, group: &str, name: &str) -> u64 {
    node.get(group).map_or(0, |group| group.count(name))
}

/// The 65 numbers of the JSON.
pub fn keys(node: &Node) -> Map<String, Value> {
    let mut keys = Map::new();
    let mut put = |name: String, count: u64| {
        keys.insert(name, count.into());
    };
    for (lower, upper) in [("tx", "TX"), ("rx", "RX")] {
        for (bucket, name) in SIZES {
            let buffers = inner(node, &format!("{lower}_buffer_sizes"), bucket);
            put(format!("SMC_INT_{upper}_BUF_{name}"), buffers);
            let calls = inner(node, &format!("{lower}_request_sizes"), bucket);
            put(format!("SMC_USR_{upper}_BUF_{name}"), calls);
        }
        for (event, name) in [
            ("peer_too_small", "SIZE_SM_PEER"),
            ("too_small", "SIZE_SM"),
            ("peer_full", "FULL_PEER"),
            ("full", "FULL"),
            ("reused", "REUSE"),
            ("allocated", "ALLOC"),
            ("downgraded", "DGRADE"),
        ] {
            let count = inner(node, &format!("{lower}_buffers"), event);
            put(format!("SMC_INT_{upper}_BUF_{name}_CNT"), count);
        }
        put(
            format!("SMC_{upper}_BYTES"),
            node.count(&format!("{lower}_bytes")),
        );
        put(
            format!("SMC_{upper}_CNT"),
            node.count(&format!("{lower}_requests")),
        );
        let memory = node.count(&format!("{lower}_buffer_bytes"));
        put(format!("SMC_{upper}_RMB_USAGE"), memory);
    }
    for (counter, name) in [
        ("client_v1", "CLNT_V1_SUCC"),
        ("client_v2", "CLNT_V2_SUCC"),
        ("server_v1", "SRV_V1_SUCC"),
        ("server_v2", "SRV_V2_SUCC"),
        ("sendpage_calls", "SENDPAGE"),
        ("urgent_calls", "URG_DATA"),
        ("splice_calls", "SPLICE"),
        ("cork_calls", "CORK"),
        ("nodelay_calls", "NDLY"),
    ] {
        put(format!("SMC_{name}_CNT"), node.count(counter));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn json_has_65_numbers() {
        let keys = keys(sample().counters.get("smc_r").unwrap());
        assert_eq!(keys.len(), 65);
        assert_eq!(keys["SMC_USR_TX_BUF_8K"], 3);
        assert_eq!(keys["SMC_USR_TX_BUF_G_1024K"], 4);
        assert_eq!(keys["SMC_INT_TX_BUF_64K"], 2);
        assert_eq!(keys["SMC_INT_TX_BUF_FULL_CNT"], 6);
        assert_eq!(keys["SMC_CLNT_V2_SUCC_CNT"], 2);
        assert_eq!(keys["SMC_TX_RMB_USAGE"], 131072);
        assert_eq!(keys["SMC_RX_CNT"], 0);
    }
}
