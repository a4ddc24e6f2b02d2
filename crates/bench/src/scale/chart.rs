//! Charts of figures, as SVG: how each figure grows with the nodes, a line for each kind and number of networks; and the curve of
//! watches that come back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::figures::{Figures, MEASURES};
use crate::host::sampled::count;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Room for numbers beside the drawing.
const EDGE: f64 = 70.0;
const COLORS: [&str; 8] =
    ["#1b6ca8", "#c8553d", "#3d8f5f", "#8a5fb0", "#b8860b", "#5f6b73", "#d1495b", "#2a9d8f"];
/// The figures that have a chart of their own.
const CHARTED: [&str; 10] = [
    "served",
    "rate",
    "requests",
    "agent_received",
    "agent_events",
    "add_p50",
    "add_p99",
    "controller_memory",
    "database",
    "stall",
];

/// Draws all charts into a directory: of several results of the same run, the last counts.
pub(super) fn draw(all: &[Figures], directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let put = |name: &str, text: String| {
        let path = directory.join(format!("{name}.svg"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    for measure in MEASURES.iter().filter(|measure| CHARTED.contains(&measure.name)) {
        let mut lines: BTreeMap<String, BTreeMap<usize, f64>> = BTreeMap::new();
        for figures in all.iter().filter(|figures| figures.scenario == "cold start") {
            if let Some(value) = figures.value(measure.name).filter(|value| *value > 0.0) {
                let name = format!("{}, {} networks", figures.kind.name(), figures.networks);
                lines.entry(name).or_default().insert(figures.nodes, value);
            }
        }
        if !lines.is_empty() {
            let points = lines.into_iter().map(|(name, points)| {
                let points = points.into_iter().map(|(nodes, value)| (count(nodes), value));
                (name, points.collect())
            });
            let title = format!("cold start: {}, by nodes", measure.text);
            let show = |value: f64| measure.show(value);
            put(measure.name, lines_of(&title, &points.collect::<Vec<_>>(), &show))?;
        }
    }
    if let Some(figures) = all.iter().rfind(|figures| !figures.curve.is_empty()) {
        put("reconnects", bars_of(&figures.curve, figures.nodes))?;
    }
    Ok(())
}

fn begin(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{EDGE}\" y=\"20\" font-size=\"14\">{title}</text>\n"
    )
}

/// Lines with both axes logarithmic.
fn lines_of(title: &str, lines: &[(String, Vec<(f64, f64)>)], show: &dyn Fn(f64) -> String) -> String {
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let ends = |of: fn((f64, f64)) -> f64| {
        let (low, high) = all()
            .map(of)
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value.ln()), high.max(value.ln())));
        if high - low < 1e-9 { (low - 1.0, high + 1.0) } else { (low, high) }
    };
    let ((left, right), (bottom, top)) = (ends(|point| point.0), ends(|point| point.1));
    let x = |value: f64| EDGE + (value.ln() - left) / (right - left) * (WIDTH - 2.0 * EDGE - 110.0);
    let y = |value: f64| HEIGHT - 40.0 - (value.ln() - bottom) / (top - bottom) * (HEIGHT - 80.0);
    let mut text = begin(title);
    let mut sizes: Vec<f64> = all().map(|point| point.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    for size in sizes {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{size:.0}</text>",
            x(size),
            HEIGHT - 18.0
        );
    }
    for level in [bottom.exp(), f64::midpoint(bottom, top).exp(), top.exp()] {
        let at = y(level);
        let _ = writeln!(
            text,
            "<line x1=\"{EDGE}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - EDGE - 110.0,
            EDGE - 6.0,
            at + 4.0,
            show(level)
        );
    }
    for (number, (name, points)) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let path: Vec<String> =
            points.iter().map(|(nodes, value)| format!("{:.1},{:.1}", x(*nodes), y(*value))).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for point in &path {
            if let Some((x, y)) = point.split_once(',') {
                let _ = writeln!(text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{color}\"/>");
            }
        }
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{color}\">{name}</text>",
            WIDTH - EDGE - 100.0,
            60.0 + 18.0 * count(number)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Lists and watches begun in each tenth of a second.
fn bars_of(curve: &[u64], nodes: usize) -> String {
    let title = format!("lists and watches begun in each 0.1 s from a stop of the API server, {nodes} nodes");
    let mut text = begin(&title);
    let most = curve.iter().copied().max().unwrap_or(1).max(1);
    let wide = (WIDTH - 2.0 * EDGE) / count(curve.len().max(1));
    for (number, value) in curve.iter().enumerate() {
        let (Ok(value), Ok(most)) = (u32::try_from(*value), u32::try_from(most)) else { continue };
        let high = f64::from(value) / f64::from(most) * (HEIGHT - 80.0);
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\" fill=\"{}\"/>",
            EDGE + wide * count(number),
            HEIGHT - 40.0 - high,
            wide * 0.9,
            COLORS[0]
        );
    }
    let _ = writeln!(text, "<text x=\"{}\" y=\"44\" text-anchor=\"end\">{most}</text>", EDGE - 6.0);
    for tenth in (0..=curve.len()).step_by(50) {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{} s</text>",
            EDGE + wide * count(tenth),
            HEIGHT - 18.0,
            tenth / 10
        );
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Kind;

    #[test]
    fn there_is_a_chart_of_each_figure_and_of_the_curve() {
        let figures = |nodes: usize, curve: &[u64]| Figures {
            scenario: "cold start".to_owned(),
            kind: Kind::Blocks,
            nodes,
            networks: 10,
            pods: 1,
            values: BTreeMap::from([("served".to_owned(), 1e9 * count(nodes))]),
            requests: BTreeMap::new(),
            curve: curve.to_vec(),
        };
        let directory = tempfile::tempdir().unwrap();
        draw(&[figures(50, &[]), figures(500, &[1, 5, 2])], directory.path()).unwrap();
        let served = std::fs::read_to_string(directory.path().join("served.svg")).unwrap();
        assert!(served.contains("blocks, 10 networks") && served.contains("500.00 s"), "{served}");
        let curve = std::fs::read_to_string(directory.path().join("reconnects.svg")).unwrap();
        assert_eq!(curve.matches("<rect").count(), 4, "{curve}");
        assert!(!directory.path().join("rate.svg").exists());
    }
}
