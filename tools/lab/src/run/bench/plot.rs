// SPDX-License-Identifier: GPL-2.0

//! `lab bench --plot`: the table as a drawing, each figure as a multiple of the
//! first column's, on a logarithmic scale.

use super::baseline::Figures;
use std::fmt::Write;

const LABEL: f64 = 190.0;
const ROOM: f64 = 460.0;
const TOP: f64 = 58.0;
const BAR: f64 = 12.0;
const GAP: f64 = 10.0;
const COLOURS: [&str; 6] = [
    "#8a8a8a", "#2f6f9f", "#c2703d", "#3f8f5f", "#7d5fa0", "#b04a5a",
];

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    // Names of metrics and columns need no escapes; writing to a string does not fail.
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// As SVG. Rows whose first column is empty or not above zero have nothing to be compared with
/// and are left out.
pub fn svg(title: &str, columns: &[&str], figures: &Figures) -> String {
    let first = columns.first().copied().unwrap_or_default();
    let rows: Vec<(&str, Vec<Option<f64>>)> = figures
        .iter()
        .filter_map(|(metric, cells)| {
            let base = cells.get(first).copied().filter(|base| *base > 0.0)?;
            let of = |c: &&str| cells.get(*c).map(|value| value / base).filter(|r| *r > 0.0);
            Some((metric.as_str(), columns.iter().skip(1).map(of).collect()))
        })
        .collect();
    let ratios = || rows.iter().flat_map(|(_, ratios)| ratios.iter().flatten());
    let low = ratios().copied().fold(1.0, f64::min).log2().floor();
    let high = ratios().copied().fold(2.0, f64::max).log2().ceil();
    let at = |ratio: f64| LABEL + (ratio.log2() - low) / (high - low) * ROOM;
    let pitch = BAR * (columns.len().max(2) - 1) as f64 + GAP;
    let (width, height) = (LABEL + ROOM + 60.0, TOP + pitch * rows.len() as f64 + 12.0);

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(
        &mut out,
        8.0,
        18.0,
        "start",
        &format!("{title}: multiples of {first}"),
    );
    let mut x = LABEL;
    for (column, colour) in columns.iter().skip(1).zip(COLOURS) {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"26\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
        );
        text(&mut out, x + 14.0, 35.0, "start", column);
        x += 90.0;
    }
    let mut power = low;
    while power <= high {
        let x = at(power.exp2());
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{height}\" stroke=\"#dddddd\"/>"
        );
        text(
            &mut out,
            x,
            TOP - 6.0,
            "middle",
            &format!("{}", power.exp2()),
        );
        power += 1.0;
    }
    for (number, (metric, ratios)) in rows.iter().enumerate() {
        let y = TOP + pitch * number as f64 + GAP / 2.0;
        text(&mut out, LABEL - 8.0, y + pitch / 2.0, "end", metric);
        for (place, (ratio, colour)) in ratios.iter().zip(COLOURS).enumerate() {
            let Some(ratio) = ratio else { continue };
            let y = y + BAR * place as f64;
            let (from, to) = (at(1.0).min(at(*ratio)), at(1.0).max(at(*ratio)));
            let _ = writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\"/>",
                (to - from).max(1.0),
                BAR - 2.0
            );
            text(
                &mut out,
                to + 4.0,
                y + BAR - 3.0,
                "start",
                &format!("{ratio:.2}"),
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        let mut figures = Figures::new();
        let cell = |name: &str, value: f64| (name.to_owned(), value);
        let row = [cell("TCP", 10.0), cell("C", 40.0), cell("ours", 20.0)];
        figures.insert("ping".into(), row.into_iter().collect());
        let lonely = [cell("ours", 20.0)];
        figures.insert("alone".into(), lonely.into_iter().collect());
        let drawing = svg("test", &["TCP", "C", "ours"], &figures);
        // Four times is the whole scale, twice is half of it.
        assert!(drawing.contains("width=\"460.0\""), "{drawing}");
        assert!(drawing.contains("width=\"230.0\""), "{drawing}");
        assert!(!drawing.contains("alone"), "{drawing}");
        assert!(drawing.ends_with("</svg>\n"));
    }
}
