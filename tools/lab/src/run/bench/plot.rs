// SPDX-License-Identifier: GPL-2.0

//! `lab bench --plot`: the table as a drawing, each figure as a multiple of the
//! first column's, on a logarithmic scale.

use super::baseline::Figures;
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// In pixels: room for the names of the rows, for the bars, and for what is above and below them.
const LABEL: u32 = 190;
const ROOM: u32 = 460;
const AROUND: u32 = 98;
/// Height of a bar, and of the gap between rows, in pixels.
const BAR: usize = 12;
const GAP: usize = 10;
/// Those of the columns that are ours, and of the others.
const OURS: [RGBColor; 4] = [
    RGBColor(0x2f, 0x6f, 0x9f),
    RGBColor(0x3f, 0x8f, 0x5f),
    RGBColor(0x7d, 0x5f, 0xa0),
    RGBColor(0xc2, 0x70, 0x3d),
];
const OTHERS: [RGBColor; 4] = [
    RGBColor(0x9a, 0x9a, 0x9a),
    RGBColor(0xbc, 0xbc, 0xbc),
    RGBColor(0x78, 0x78, 0x78),
    RGBColor(0xd4, 0xd4, 0xd4),
];

/// As SVG. Rows whose first column is empty or not above zero have nothing to be compared with
/// and are left out. The columns of `ours` are coloured, all others are grey.
pub fn svg(title: &str, columns: &[&str], ours: &[&str], figures: &Figures) -> Result<String> {
    let first = columns.first().copied().unwrap_or_default();
    let rows: Vec<(String, Vec<Option<f64>>)> = figures
        .iter()
        .filter_map(|(metric, cells)| {
            let base = cells.get(first).copied().filter(|base| *base > 0.0)?;
            let of = |c: &&str| cells.get(*c).map(|value| value / base).filter(|r| *r > 0.0);
            Some((metric.clone(), columns.iter().skip(1).map(of).collect()))
        })
        .collect();
    let ratios = || rows.iter().flat_map(|(_, ratios)| ratios.iter().flatten());
    let low = ratios().copied().fold(1.0, f64::min).log2().floor().exp2();
    let high = ratios().copied().fold(2.0, f64::max).log2().ceil().exp2();
    let pitch = BAR * (columns.len().max(2) - 1) + GAP;
    let height = (pitch * rows.len()) as u32;

    let mut out = String::new();
    let size = (LABEL + ROOM + 60, height + AROUND);
    let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
    root.fill(&WHITE)?;
    // The crate takes 1 / 1.24 of a size.
    let words = ("sans-serif", 14).into_font().color(&BLACK);
    let left = words.pos(Pos::new(HPos::Left, VPos::Center));
    let right = words.pos(Pos::new(HPos::Right, VPos::Center));
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{title}: multiples of {first}"), ("sans-serif", 17))
        .margin_right(60)
        .set_label_area_size(LabelAreaPosition::Left, LABEL)
        .set_label_area_size(LabelAreaPosition::Bottom, 72)
        // In pixels from the top.
        .build_cartesian_2d((low..high).log_scale().base(2.0), f64::from(height)..0.0)?;
    let mesh = &mut chart.configure_mesh();
    mesh.disable_y_mesh().disable_y_axis().y_labels(0);
    mesh.x_max_light_lines(0)
        .label_style(words.clone())
        .draw()?;

    // Below the scale: which way is good.
    let (one, end) = chart.backend_coord(&(1.0, f64::from(height)));
    for (x, anchor, said) in [(-6, &right, "better: fewer"), (6, &left, "more: worse")] {
        root.draw(&Text::new(said, (one + x, end + 34), anchor.clone()))?;
    }

    let top = |row: usize| (pitch * row + GAP / 2) as f64;
    chart.draw_series(rows.iter().enumerate().map(|(row, (metric, _))| {
        let middle = top(row) + (pitch - GAP) as f64 / 2.0;
        EmptyElement::at((low, middle)) + Text::new(metric.clone(), (-8, 0), right.clone())
    }))?;
    let (mut own, mut other) = (OURS.iter().cycle(), OTHERS.iter().cycle());
    for (place, column) in columns.iter().skip(1).enumerate() {
        let colours = if ours.contains(column) {
            &mut own
        } else {
            &mut other
        };
        let Some(colour) = colours.next() else {
            continue;
        };
        let bars = rows.iter().enumerate().filter_map(|(row, (_, ratios))| {
            let ratio = (*ratios.get(place)?)?;
            Some((top(row) + (BAR * place) as f64, ratio))
        });
        let bars: Vec<(f64, f64)> = bars.collect();
        let drawn = bars.iter().map(|(y, ratio)| {
            let corners = [(1.0, *y), (*ratio, y + (BAR - 2) as f64)];
            Rectangle::new(corners, colour.filled())
        });
        chart.draw_series(drawn)?;
        chart.draw_series(bars.iter().map(|(y, ratio)| {
            EmptyElement::at((ratio.max(1.0), y + (BAR / 2) as f64))
                + Text::new(format!("{ratio:.2}"), (4, 0), left.clone())
        }))?;
        // The legend, below the scale.
        let (x, y) = ((LABEL + 90 * place as u32) as i32, size.1 as i32 - 12);
        let square = [(x, y - 5), (x + 10, y + 5)];
        root.draw(&Rectangle::new(square, colour.filled()))?;
        root.draw(&Text::new(column.to_string(), (x + 14, y), left.clone()))?;
    }
    drop(chart);
    root.present()?;
    drop(root);
    Ok(out)
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
        let drawing = svg("test", &["TCP", "C", "ours"], &["ours"], &figures).unwrap();
        // Four times is the whole scale, twice is half of it.
        let width = |colour: &str| {
            let bar = drawing.lines().find(|line| line.contains(colour))?;
            let width = bar.split("width=\"").nth(1)?.split('"').next()?;
            width.parse::<u32>().ok()
        };
        let (whole, half) = (width("#9A9A9A").unwrap(), width("#2F6F9F").unwrap());
        assert!(whole.abs_diff(ROOM) <= 1, "{drawing}");
        assert!(half.abs_diff(ROOM / 2) <= 1, "{drawing}");
        assert!(
            drawing.contains("ping") && drawing.contains("4.00"),
            "{drawing}"
        );
        assert!(!drawing.contains("alone"), "{drawing}");
        assert!(drawing.contains("better: fewer"), "{drawing}");
        assert!(drawing.ends_with("</svg>\n"));
    }
}
