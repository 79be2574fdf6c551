//! Admitted requests against the bound over time, as an SVG.

use std::fmt::Write as _;

use tollkeeper_auditor::{Bound, Event, Limit, Observation};

/// One panel.
pub(crate) struct Plot {
    pub(crate) name: &'static str,
    pub(crate) requests: Vec<Observation>,
    pub(crate) limit: Limit,
    pub(crate) bound: Bound,
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 160.0;
const GAP: f64 = 40.0;

/// A panel for each kind of rule, side by side.
pub(crate) fn draw(plots: &[Plot], events: &[Event]) -> String {
    let (width, height) = (plots.len() as f64 * (WIDTH + GAP) + GAP, HEIGHT + 2.0 * GAP);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>"##
    );
    for (number, plot) in plots.iter().enumerate() {
        let _ = write!(svg, r#"<g transform="translate({}, {GAP})">"#, GAP + number as f64 * (WIDTH + GAP));
        panel(&mut svg, plot, events);
        svg += "</g>";
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, plot: &Plot, events: &[Event]) {
    let end = plot.requests.iter().map(|request| request.answered.as_secs_f64()).fold(1.0, f64::max);
    let mut admitted: Vec<f64> =
        plot.requests.iter().filter(|request| request.admitted).map(|request| request.answered.as_secs_f64()).collect();
    admitted.sort_by(f64::total_cmp);
    let allowed = |at: f64| {
        let lawful = f64::from(plot.limit.burst) + f64::from(plot.limit.per_second) * at;
        match plot.bound {
            Bound::Limited { times, bursts } => {
                let met = events.iter().filter(|event| event.from.as_secs_f64() < at).count() as f64;
                lawful * f64::from(times) + met * f64::from(bursts) * f64::from(plot.limit.burst)
            }
            Bound::NotLimitedDuringFault => lawful,
        }
    };
    let top = allowed(end).max(admitted.len() as f64) * 1.05;
    let (x, y) = (|at: f64| at / end * WIDTH, |count: f64| HEIGHT - count / top * HEIGHT);
    for event in events {
        let (from, to) = (x(event.from.as_secs_f64()), x(event.to.as_secs_f64()));
        let wide = (to - from).max(1.0);
        let _ = write!(svg, r##"<rect x="{from:.1}" y="0" width="{wide:.1}" height="{HEIGHT}" fill="#f6d5c3"/>"##);
    }
    let mut bound = String::new();
    for step in 0..=100 {
        let at = end * f64::from(step) / 100.0;
        let _ = write!(bound, "{:.1},{:.1} ", x(at), y(allowed(at)));
    }
    let mut line = format!("0,{HEIGHT} ");
    for (count, at) in admitted.iter().enumerate() {
        let _ = write!(line, "{:.1},{:.1} {:.1},{:.1} ", x(*at), y(count as f64), x(*at), y(count as f64 + 1.0));
    }
    let _ = write!(
        svg,
        r##"<path d="M0,0 V{HEIGHT} H{WIDTH}" fill="none" stroke="#888"/><polyline points="{bound}" fill="none" stroke="#b3400f" stroke-dasharray="5 3"/><polyline points="{line}" fill="none" stroke="#1f5c99" stroke-width="1.5"/><text x="0" y="-10" font-weight="bold">{}</text><text x="{WIDTH}" y="-10" text-anchor="end">{}</text><text x="0" y="{}">0</text><text x="{WIDTH}" y="{}" text-anchor="end">{end:.0} s</text><text x="-4" y="10" text-anchor="end">{top:.0}</text>"##,
        plot.name,
        plot.bound,
        HEIGHT + 16.0,
        HEIGHT + 16.0,
    );
}
