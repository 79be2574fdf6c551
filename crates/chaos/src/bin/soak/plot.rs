//! The overload curve as an SVG: what is served, shed and admitted over what is offered. Narrow, with large letters, so that it can
//! be read on a phone, and in the colours of the reader's theme.

use std::fmt::Write as _;

use crate::overload::Step;
use crate::service::HOT;

const WIDTH: f64 = 350.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 28.0;
/// Of a line of the legend.
const LETTERS: f64 = 22.0;
/// Below a panel: the numbers of its axis, and room.
const FOOT: f64 = 44.0;

const STYLE: &str = "text{font:15px system-ui,sans-serif;fill:#3d4852}.paper{fill:#fff}.axis{stroke:#8a94a0;fill:none}\
.grid{stroke:#e4e8ec}.line{fill:none;stroke-width:2.5}.dashed{stroke-dasharray:6 4}.blue{stroke:#1f5c99}.red{stroke:#b3400f}\
.green{stroke:#2d7d46}@media(prefers-color-scheme:dark){text{fill:#c3ccd6}.paper{fill:#14181d}.grid{stroke:#262d35}\
.blue{stroke:#6ea2f2}.red{stroke:#f0876a}.green{stroke:#44c78d}}";

/// One panel.
struct Panel {
    height: f64,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    style: &'static str,
    value: fn(&Step) -> f64,
}

/// Above, all requests; below, those of the key that all clients share, which would not be seen beside them.
pub(crate) fn draw(steps: &[Step]) -> String {
    let line = |name: &str, style, value| Line { name: name.to_string(), style, value };
    let all =
        vec![line("served", "blue", |step: &Step| step.served), line("shed (503)", "red", |step: &Step| step.shed)];
    let allowed = format!("allowed by {HOT}/s and a burst of {HOT}");
    let hot = vec![
        line("admitted of one key", "green", |step: &Step| step.admitted),
        line(&allowed, "red dashed", |step: &Step| step.allowed),
    ];
    let panels = [Panel { height: 220.0, lines: all }, Panel { height: 110.0, lines: hot }];
    let height = panels.iter().map(Panel::whole).sum::<f64>() + LETTERS;
    let width = LEFT + WIDTH + RIGHT;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"><title>Requests served, shed and admitted, over requests offered</title><style>{STYLE}</style><rect class="paper" width="100%" height="100%" rx="8"/>"#,
    );
    let mut top = 0.0;
    for panel in &panels {
        let _ = write!(svg, r#"<g transform="translate({LEFT}, {})">"#, top + panel.legend());
        draw_panel(&mut svg, panel, steps);
        svg += "</g>";
        top += panel.whole();
    }
    let (x, y) = (LEFT + WIDTH / 2.0, height - 14.0);
    let _ = write!(svg, r#"<text x="{x}" y="{y}" text-anchor="middle">offered, requests a second</text>"#);
    svg + "</svg>\n"
}

impl Panel {
    fn legend(&self) -> f64 {
        LETTERS * (self.lines.len() as f64 + 0.8)
    }

    fn whole(&self) -> f64 {
        self.legend() + self.height + FOOT
    }
}

fn draw_panel(svg: &mut String, panel: &Panel, steps: &[Step]) {
    let height = panel.height;
    let widest = steps.iter().map(|step| step.offered).fold(1.0, f64::max);
    let values = panel.lines.iter().flat_map(|line| steps.iter().map(line.value));
    let tallest = values.fold(1.0, f64::max) * 1.1;
    let (x, y) = (|rate: f64| rate / widest * WIDTH, |rate: f64| height - rate / tallest * height);
    for rate in round_numbers(tallest) {
        let up = y(rate);
        let _ = write!(
            svg,
            r#"<path class="grid" d="M0,{up:.1} H{WIDTH}"/><text x="-8" y="{:.1}" text-anchor="end">{}</text>"#,
            up + 5.0,
            grouped(rate),
        );
    }
    for rate in round_numbers(widest) {
        let along = x(rate);
        let below = height + 20.0;
        let _ = write!(svg, r#"<text x="{along:.1}" y="{below}" text-anchor="middle">{}</text>"#, grouped(rate));
    }
    let _ = write!(svg, r#"<path class="axis" d="M0,0 V{height} H{WIDTH}"/>"#);
    for (index, Line { name, style, value }) in panel.lines.iter().enumerate() {
        let points: String = steps.iter().fold(String::new(), |mut points, step| {
            let _ = write!(points, "{:.1},{:.1} ", x(step.offered), y(value(step)));
            points
        });
        let up = LETTERS * index as f64 - panel.legend() + LETTERS;
        let _ = write!(
            svg,
            r#"<polyline class="line {style}" points="{points}"/><path class="line {style}" d="M0,{:.1} h28"/><text x="36" y="{up:.1}">{name}</text>"#,
            up - 5.0,
        );
    }
}

/// Up to four round numbers from above zero to `most`, evenly spaced.
fn round_numbers(most: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| most / step < 5.0);
    let step = step.unwrap_or(most);
    (1..=4).map(move |times| step * f64::from(times)).filter(move |number| *number <= most)
}

/// `15000` as `15,000`.
fn grouped(number: f64) -> String {
    let whole = number.round() as u64;
    if whole < 1_000 { whole.to_string() } else { format!("{},{:03}", whole / 1_000, whole % 1_000) }
}
