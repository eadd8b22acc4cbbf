// SPDX-License-Identifier: GPL-2.0
//! The dashboard and the alert rules of `tools/monitoring`, compared with what is printed.

use super::write;
use crate::stats::tests::sample;
use std::collections::{BTreeMap, BTreeSet};

/// Metrics as they are printed, with the labels that each has.
fn printed() -> BTreeMap<String, BTreeSet<String>> {
    let mut out = Vec::new();
    write(&sample(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = metrics.entry(name.into()).or_default();
        let inside = line.split_once('{').map_or("", |(_, rest)| rest);
        let inside = inside.split_once('}').map_or("", |(inside, _)| inside);
        labels.extend(
            inside
                .split(',')
                .filter_map(|label| Some(label.split_once('=')?.0.to_string())),
        );
    }
    metrics
}

/// Metrics of ours that a text speaks of, with the labels it asks for in braces.
fn spoken_of(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("smc_") {
        let before = rest[..at].chars().next_back();
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (name, behind) = rest[at..].split_at(
            rest[at..]
                .find(|letter| !is_name(letter))
                .unwrap_or(rest.len() - at),
        );
        // Values (`mode="smc_r"`) and other words are none.
        if before.is_none_or(|letter| !is_name(letter) && letter != '"') {
            let inside = behind
                .strip_prefix('{')
                .and_then(|inside| inside.split_once('}'));
            let inside = inside.map_or("", |(inside, _)| inside).split(',');
            let labels = inside.filter_map(|label| {
                Some(label.split_once('=')?.0.trim_end_matches('!').to_string())
            });
            found.push((name.to_string(), labels.collect()));
        }
        rest = behind;
    }
    found
}

/// Alerts, their tests and the dashboard speak of metrics and labels that there are, and the dashboard of
/// nearly all.
#[test]
fn what_is_shipped_knows_the_metrics() {
    let metrics = printed();
    let alerts = include_str!("../../../../monitoring/alerts.yml");
    let tests = include_str!("../../../../monitoring/alerts_test.yml");
    let dashboard = include_str!("../../../../monitoring/grafana.json");
    for (file, text, least) in [
        ("alerts.yml", alerts, 8),
        ("alerts_test.yml", tests, 8),
        ("grafana.json", dashboard, 12),
    ] {
        let spoken = spoken_of(text);
        assert!(
            spoken.len() >= least,
            "{file}: only {} metrics",
            spoken.len()
        );
        for (name, labels) in spoken {
            let known = metrics.get(&name);
            assert!(known.is_some(), "{file}: {name} is not printed");
            // The collector adds the first.
            let missing = labels
                .iter()
                .find(|label| *label != "instance" && !known.unwrap().contains(*label));
            assert_eq!(missing, None, "{file}: a label of {name}");
        }
    }
    let shown: BTreeSet<String> = spoken_of(dashboard)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let left: Vec<&String> = metrics
        .keys()
        .filter(|name| !shown.contains(*name))
        .collect();
    let fine = [
        "smc_call_size_bytes_count",
        "smc_call_size_bytes_sum",
        "smc_connection_buffers_total",
        "smc_given_back_total",
        "smc_promotion_seconds_count",
        "smc_promotion_seconds_sum",
        "smc_special_calls_total",
    ];
    assert_eq!(left, fine, "not on the dashboard");
    let json: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = json["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), panels.len());
    assert!(panels
        .iter()
        .all(|panel| panel["targets"][0]["expr"].is_string()));
}
