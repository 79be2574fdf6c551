//! The overload curve as an SVG: what is served, shed and admitted over what is offered.

use std::fmt::Write as _;

use crate::overload::Step;
use crate::service::HOT;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 70.0;
const GAP: f64 = 60.0;

/// One panel.
struct Panel {
    height: f64,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    colour: &'static str,
    is_dashed: bool,
    value: fn(&Step) -> f64,
}

/// Above, all requests; below, those of the key that all clients share, which would not be seen beside them.
pub(crate) fn draw(steps: &[Step]) -> String {
    let line = |name: &str, colour, value| Line { name: name.to_string(), colour, is_dashed: false, value };
    let all = vec![line("served", "#1f5c99", |step| step.served), line("shed (503)", "#b3400f", |step| step.shed)];
    let allowed = Line {
        is_dashed: true,
        ..line(&format!("allowed by {HOT}/s and a burst of {HOT}"), "#b3400f", |step| step.allowed)
    };
    let hot = vec![line("admitted of one key", "#2d7d46", |step| step.admitted), allowed];
    let panels = [Panel { height: 260.0, lines: all }, Panel { height: 110.0, lines: hot }];
    let height = panels.iter().map(|panel| panel.height + GAP).sum::<f64>() + GAP;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {height}" font-family="sans-serif" font-size="12"><title>Requests served, shed and admitted, over requests offered</title><rect width="100%" height="100%" fill="#fff"/>"##,
        WIDTH + 2.0 * LEFT,
    );
    let mut top = GAP;
    for panel in &panels {
        let _ = write!(svg, r#"<g transform="translate({LEFT}, {top})">"#);
        draw_panel(&mut svg, panel, steps);
        svg += "</g>";
        top += panel.height + GAP;
    }
    let _ = write!(
        svg,
        r#"<text x="{}" y="{}" text-anchor="middle">offered, requests a second</text>"#,
        LEFT + WIDTH / 2.0,
        height - 20.0
    );
    svg + "</svg>\n"
}

fn draw_panel(svg: &mut String, panel: &Panel, steps: &[Step]) {
    let height = panel.height;
    let widest = steps.iter().map(|step| step.offered).fold(1.0, f64::max);
    let values = panel.lines.iter().flat_map(|line| steps.iter().map(line.value));
    let tallest = values.fold(1.0, f64::max) * 1.1;
    let (x, y) = (|rate: f64| rate / widest * WIDTH, |rate: f64| height - rate / tallest * height);
    let _ = write!(svg, r##"<path d="M0,0 V{height} H{WIDTH}" fill="none" stroke="#888"/>"##);
    for part in 1..=4 {
        let share = f64::from(part) / 4.0;
        let (up, along) = (height - share * height, share * WIDTH);
        let _ = write!(
            svg,
            r##"<path d="M0,{up} H{WIDTH}" stroke="#eee"/><text x="-6" y="{}" text-anchor="end">{:.0}</text><text x="{along}" y="{}" text-anchor="middle">{:.0}</text>"##,
            up + 4.0,
            tallest * share,
            height + 16.0,
            widest * share,
        );
    }
    let mut left = 0.0;
    for Line { name, colour, is_dashed, value } in &panel.lines {
        let points: String = steps.iter().fold(String::new(), |mut points, step| {
            let _ = write!(points, "{:.1},{:.1} ", x(step.offered), y(value(step)));
            points
        });
        let dashes = if *is_dashed { r#" stroke-dasharray="5 3""# } else { "" };
        let _ = write!(
            svg,
            r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/><text x="{left}" y="-12" fill="{colour}">{name}</text>"#,
        );
        left += 160.0;
    }
}
