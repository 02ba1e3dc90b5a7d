//! Time series as SVG: panels one below the other, each with lines over the same time.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const PANEL: f64 = 210.0;
const PLOT: f64 = 150.0;
const TOP: f64 = 46.0;
const TICKS: u32 = 4;
const COLOURS: [&str; 8] = [
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#b07aa1", "#9c755f", "#555555",
];

/// Values at equal distances of time.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) values: Vec<f64>,
}

/// Lines with the same unit.
pub(super) struct Panel {
    pub(super) unit: &'static str,
    pub(super) lines: Vec<Line>,
}

/// One picture; `slot_s`: the distance of values.
pub(super) fn draw(title: &str, slot_s: f64, panels: &[Panel]) -> String {
    let height = TOP + PANEL * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 20.0), "start", title);
    for (panel, place) in panels.iter().zip(0u32..) {
        draw_panel(&mut svg, TOP + PANEL * f64::from(place), slot_s, panel);
    }
    svg + "</svg>\n"
}

fn draw_panel(svg: &mut String, top: f64, slot_s: f64, panel: &Panel) {
    let values = panel.lines.iter().flat_map(|line| &line.values);
    let most = values.copied().fold(0.0, f64::max);
    let slots = panel
        .lines
        .iter()
        .map(|line| line.values.len())
        .max()
        .unwrap_or(0);
    let (most, slots) = (round_up(most), slots.max(2));
    let width = WIDTH - LEFT - 20.0;
    let x = |slot: f64| LEFT + width * slot / (slots - 1) as f64;
    let y = |value: f64| top + PLOT * (1.0 - value / most);
    for tick in 0..=TICKS {
        let share = f64::from(tick) / f64::from(TICKS);
        let at = y(most * share);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            LEFT + width
        );
        text(svg, (LEFT - 6.0, at + 4.0), "end", &number(most * share));
        let slot = (slots - 1) as f64 * share;
        let label = format!("{} s", number(slot * slot_s));
        text(svg, (x(slot), top + PLOT + 14.0), "middle", &label);
    }
    text(svg, (LEFT - 6.0, top - 10.0), "end", panel.unit);
    for ((line, colour), place) in panel.lines.iter().zip(COLOURS.iter().cycle()).zip(0u32..) {
        let points = line.values.iter().enumerate();
        let points: Vec<String> = points
            .map(|(slot, value)| format!("{:.1},{:.1}", x(slot as f64), y(*value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.join(" ")
        );
        let at = (
            LEFT + 110.0 * f64::from(place % 6),
            top + PLOT + 28.0 + 12.0 * f64::from(place / 6),
        );
        let _ = writeln!(svg, "<g fill=\"{colour}\">");
        text(svg, at, "start", &line.name);
        svg.push_str("</g>\n");
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

/// To a number that quarters read well of.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(10.0 * power)
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_within_their_panels() {
        let line = |name: &str, values: &[f64]| Line {
            name: name.into(),
            values: values.into(),
        };
        let panels = [
            Panel {
                unit: "Mbit/s",
                lines: vec![line("a<b", &[0.0, 90.0, 45.0]), line("c", &[])],
            },
            Panel {
                unit: "ms",
                lines: vec![line("d", &[0.0, 0.0, 0.0])],
            },
        ];
        let svg = draw("title & more", 0.5, &panels);
        assert!(
            svg.contains("title &amp; more") && svg.contains("a&lt;b"),
            "{svg}"
        );
        // 90 of 100 on a plot of 150 below 46.
        assert!(svg.contains("70.0,196.0 405.0,61.0 740.0,128.5"), "{svg}");
        assert!(svg.contains("70.0,406.0 405.0,406.0 740.0,406.0"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 3);
    }

    #[test]
    fn axes_end_above_what_they_show() {
        let cases = [
            (0.0, 1.0),
            (0.9, 1.0),
            (11.0, 12.0),
            (1.0, 1.0),
            (990.0, 1000.0),
            (150.0, 160.0),
        ];
        for (value, end) in cases {
            assert!(
                (round_up(value) - end).abs() < 1e-9,
                "{value}: {}",
                round_up(value)
            );
        }
        assert_eq!(
            [number(1.5), number(300.0), number(0.25)],
            ["1.5", "300", "0.25"]
        );
    }
}
