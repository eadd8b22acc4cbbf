// SPDX-License-Identifier: GPL-2.0
//! `rsmc stats --plot`: the sizes of buffers and calls as a drawing.

use super::histogram::{all, Histogram};
use super::tree::Node;
use crate::table;
use std::fmt::Write;

/// A panel's size and the room inside it, in pixels.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 20.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 34.0;

/// The drawing as SVG, two panels side by side. It has its own background and needs no fonts but
/// the viewer's.
pub fn svg(counters: &Node) -> String {
    let histograms = all(counters);
    let rows = histograms.len().div_ceil(2).max(1);
    let columns = histograms.len().clamp(1, 2);
    let (width, height) = (WIDTH * columns as f64, HEIGHT * rows as f64);
    let mut out = String::new();
    line(
        &mut out,
        &format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
        ),
    );
    line(&mut out, "<title>Sizes of SMC buffers and calls</title>");
    line(
        &mut out,
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>",
    );
    if histograms.is_empty() {
        text(&mut out, LEFT, TOP, "start", "No connection has used SMC.");
    }
    for (number, histogram) in histograms.iter().enumerate() {
        let x = WIDTH * (number % 2) as f64;
        let y = HEIGHT * (number / 2) as f64;
        line(&mut out, &format!("<g transform=\"translate({x} {y})\">"));
        panel(&mut out, histogram);
        line(&mut out, "</g>");
    }
    line(&mut out, "</svg>");
    out
}

fn panel(out: &mut String, histogram: &Histogram) {
    let (room, base) = (HEIGHT - TOP - BOTTOM, HEIGHT - BOTTOM);
    let slot = (WIDTH - 2.0 * LEFT) / histogram.bars.len().max(1) as f64;
    let total = histogram.total();
    line(
        out,
        &format!(
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"14\" font-weight=\"bold\" fill=\"#222222\">{} ({total})</text>",
            escaped(&histogram.title)
        ),
    );
    for (number, (bound, count)) in histogram.bars.iter().enumerate() {
        let height = room * *count as f64 / histogram.most().max(1) as f64;
        let (x, y) = (LEFT + slot * number as f64, base - height);
        let middle = x + slot / 2.0;
        line(
            out,
            &format!(
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"#2f6f9f\">\
                 <title>{}: {count} ({:.1} %)</title></rect>",
                x + slot * 0.1,
                slot * 0.8,
                escaped(bound),
                *count as f64 * 100.0 / total.max(1) as f64
            ),
        );
        if *count > 0 {
            text(out, middle, y - 4.0, "middle", &table::count(*count as f64));
        }
        let label = bound.replace(" KiB", "K").replace(" MiB", "M");
        text(out, middle, base + 16.0, "middle", &label);
    }
    line(
        out,
        &format!(
            "<line x1=\"{LEFT}\" y1=\"{base}\" x2=\"{}\" y2=\"{base}\" stroke=\"#888888\"/>",
            WIDTH - LEFT
        ),
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    line(
        out,
        &format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#222222\">{}</text>",
            escaped(words)
        ),
    );
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn a_bar_for_each_count() {
        let drawing = svg(&sample().counters);
        assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
        assert_eq!(drawing.matches("fill=\"#2f6f9f\"").count(), 4);
        // The longest bar has the whole height.
        assert!(
            drawing.contains("y=\"56.0\" width=\"112.0\" height=\"150.0\""),
            "{drawing}"
        );
        assert!(
            drawing.contains("<title>more: 4 (50.0 %)</title>"),
            "{drawing}"
        );
        // Every element is closed.
        let opened = drawing.matches('<').count() - drawing.matches("</").count();
        let closed = drawing.matches("</").count() + drawing.matches("/>").count();
        assert_eq!(opened, closed);
    }

    #[test]
    fn nothing_yet() {
        assert!(svg(&Node::Group(Vec::new())).contains("No connection has used SMC."));
    }
}
