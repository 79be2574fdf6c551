//! The report as lines: all of it for scripts, or what fits on a screen.

use super::line::{Line, Style, wrapped};
use super::numbers::{micros, percent, short, span};
use super::report::{HotKey, Report, Rule, Violation};

/// What is shown of the selected rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Keys,
    Violations,
}

/// What the user has selected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) rule: usize,
    pub(super) pane: Pane,
}

/// Seconds of a sparkline.
const SPARK: usize = 30;
/// Sentences are wrapped at this width without a screen.
const PAGE: usize = 110;

/// Everything, for a pipe.
pub(super) fn everything(report: &Report) -> Vec<Line> {
    let mut lines = head(report);
    lines.push(Line::default());
    lines.extend(rules(report, None));
    for rule in &report.rules {
        lines.push(Line::default());
        lines.push(Line::of(Style::Strong, &rule.name).and(Style::Quiet, &format!("  {} by {}", rule.limit, rule.key)));
        lines.extend(finding(rule, PAGE));
        if !rule.hot_by_traffic.is_empty() {
            lines.extend(hot_keys(rule, 5));
        }
    }
    lines.push(Line::default());
    lines.extend(violations(report, 10));
    lines
}

/// What fits on a screen: the selected rule is always among the rules shown.
pub(super) fn screen(report: &Report, view: View, width: usize, height: usize) -> Vec<Line> {
    let mut lines = head(report);
    lines.push(Line::default());
    let mut table = rules(report, Some(view.rule));
    // Half of the screen is for details of the selected rule.
    let room = (height / 2).saturating_sub(lines.len() + 1).max(3);
    if table.len() > room + 1 {
        let first = (view.rule + 1).saturating_sub(room);
        table = std::iter::once(table[0].clone()).chain(table[1..].iter().skip(first).take(room).cloned()).collect();
    }
    lines.extend(table);
    if let Some(rule) = report.rules.get(view.rule) {
        lines.push(Line::default());
        lines.push(Line::of(Style::Strong, &rule.name).and(Style::Quiet, &format!("  {} by {}", rule.limit, rule.key)));
        lines.extend(finding(rule, width));
        lines.push(Line::default());
        match view.pane {
            Pane::Keys => lines.extend(hot_keys(rule, 10)),
            Pane::Violations => lines.extend(violations(report, 20)),
        }
    }
    lines.truncate(height);
    lines.into_iter().map(|line| line.within(width)).collect()
}

fn head(report: &Report) -> Vec<Line> {
    let Report { totals, latency, store, .. } = report;
    let (style, breaker) = match store.breaker.as_str() {
        "closed" => (Style::Good, "answers"),
        "half_open" => (Style::Warn, "breaker half-open: probing"),
        _ => (Style::Bad, "breaker open: rules use their failure policy"),
    };
    let share =
        if totals.decisions_per_second > 0.0 { totals.denied_per_second / totals.decisions_per_second } else { 0.0 };
    let denied = if share > 0.0 { Style::Bad } else { Style::Plain };
    let kept = match (store.keys, store.max_keys) {
        (Some(keys), Some(most)) => format!("{} of {} keys", short(keys as f64), short(most as f64)),
        _ => format!("{} calls, 99 % below {}", short(store.calls as f64), micros(store.p99_us)),
    };
    vec![
        Line::of(Style::Strong, &format!("Tollkeeper {}", report.version))
            .and(Style::Quiet, &format!("  instance {}, up {}", report.instance, span(report.uptime_seconds))),
        Line::of(Style::Quiet, "traffic  ")
            .and(Style::Strong, &format!("{}/s", short(totals.decisions_per_second)))
            .and(Style::Plain, " decided, ")
            .and(denied, &format!("{} denied", percent(share)))
            .and(
                Style::Quiet,
                &format!("  {} of {} since the start", short(totals.denied as f64), short(totals.decisions as f64)),
            ),
        Line::of(Style::Quiet, "latency  ")
            .and(Style::Plain, &format!("half below {}, 99 % below {}", micros(latency.p50_us), micros(latency.p99_us)))
            .and(Style::Quiet, " in the last minute"),
        Line::of(Style::Quiet, "store    ")
            .and(style, &format!("{} {breaker}", store.kind))
            .and(Style::Quiet, &format!("  {kept}, errors: {}, instances: {}", store.errors, store.instances)),
    ]
}

fn rules(report: &Report, chosen: Option<usize>) -> Vec<Line> {
    let width = report.rules.iter().map(|rule| rule.name.chars().count()).max().unwrap_or(0).clamp(4, 24);
    let head = Line::default()
        .cell(Style::Quiet, "", 1)
        .cell(Style::Quiet, "RULE", width)
        .number(Style::Quiet, "ALLOWED/S", 9)
        .number(Style::Quiet, "DENIED/S", 9)
        .number(Style::Quiet, "DENIED", 8)
        .cell(Style::Quiet, "  LAST SECONDS", SPARK + 2)
        .and(Style::Quiet, "LOOKS LIKE");
    let rows = report.rules.iter().enumerate().map(|(index, rule)| {
        let is_chosen = chosen == Some(index);
        let all = rule.allowed + rule.denied;
        let share = if all > 0 { rule.denied as f64 / all as f64 } else { 0.0 };
        let denied = if rule.denied_per_second > 0.0 { Style::Bad } else { Style::Plain };
        let (style, words) = judgement(rule);
        let line = Line::default()
            .cell(Style::Chosen, if is_chosen { "▸" } else { "" }, 1)
            .cell(if is_chosen { Style::Chosen } else { Style::Strong }, &rule.name, width)
            .number(Style::Plain, &short(rule.allowed_per_second), 9)
            .number(denied, &short(rule.denied_per_second), 9)
            .number(Style::Plain, &percent(share), 8)
            .and(Style::Plain, "  ");
        spark(line, rule).and(Style::Plain, " ").and(style, &words)
    });
    std::iter::once(head).chain(rows).collect()
}

fn judgement(rule: &Rule) -> (Style, String) {
    let (style, words) = match rule.finding.as_ref().map(|finding| finding.kind.as_str()) {
        Some("abuse") => (Style::Bad, "abuse"),
        Some("too_low") => (Style::Warn, "limit too low"),
        Some("mixed") => (Style::Warn, "look closer"),
        Some("quiet") => (Style::Good, "quiet"),
        _ => (Style::Quiet, "not enough data"),
    };
    let mode = match (rule.active, rule.mode.as_str()) {
        (false, _) => " (off)",
        (true, "shadow") => " (shadow)",
        _ => "",
    };
    (style, format!("{words}{mode}"))
}

/// One block for each of the last whole seconds; those with denials stand out.
fn spark(mut line: Line, rule: &Rule) -> Line {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let whole = rule.seconds.allowed.len().saturating_sub(1);
    let seconds: Vec<(u64, u64)> =
        rule.seconds.allowed.iter().copied().zip(rule.seconds.denied.iter().copied()).take(whole).collect();
    let last = &seconds[seconds.len().saturating_sub(SPARK)..];
    let most = last.iter().map(|(allowed, denied)| allowed + denied).max().unwrap_or(0).max(1);
    line = line.and(Style::Quiet, &" ".repeat(SPARK - last.len()));
    for (allowed, denied) in last {
        let block = match (allowed + denied) * 8 / most {
            _ if allowed + denied == 0 => ' ',
            height => BLOCKS[(height as usize).saturating_sub(1)],
        };
        line = line.and(if *denied > 0 { Style::Bad } else { Style::Good }, &block.to_string());
    }
    line
}

fn finding(rule: &Rule, width: usize) -> Vec<Line> {
    let Some(finding) = &rule.finding else { return vec![Line::of(Style::Quiet, "no request yet")] };
    wrapped(&finding.sentence, width).iter().map(|text| Line::of(judgement(rule).0, text)).collect()
}

fn hot_keys(rule: &Rule, most: usize) -> Vec<Line> {
    const KEY: usize = 32;
    let head = Line::default()
        .cell(Style::Quiet, "MOST REQUESTS", KEY)
        .number(Style::Quiet, "COUNT", 12)
        .and(Style::Plain, "   ")
        .cell(Style::Quiet, "MOST DENIALS", KEY)
        .number(Style::Quiet, "COUNT", 12)
        .number(Style::Quiet, "WAITS KEPT", 12);
    let rows = rule.hot_by_traffic.len().max(rule.hot_by_denials.len()).min(most);
    let lines = (0..rows).map(|index| {
        let cells = |line: Line, key: Option<&HotKey>| match key {
            Some(key) => line.cell(Style::Plain, &key.key, KEY).number(Style::Plain, &bounds(key), 12),
            None => line.cell(Style::Plain, "", KEY).number(Style::Plain, "", 12),
        };
        let denied = rule.hot_by_denials.get(index);
        let line = cells(Line::default(), rule.hot_by_traffic.get(index)).and(Style::Plain, "   ");
        let waits = denied.map(|key| (key.waits_kept, key.waits_kept + key.waits_broken)).filter(|(_, all)| *all > 0);
        let waits = waits.map(|(kept, all)| format!("{kept} of {all}")).unwrap_or_default();
        cells(line, denied).number(Style::Plain, &waits, 12)
    });
    std::iter::once(head).chain(lines).collect()
}

fn violations(report: &Report, most: usize) -> Vec<Line> {
    if report.violations.is_empty() {
        return vec![Line::of(Style::Quiet, "nobody has been denied yet")];
    }
    let head = Line::default()
        .cell(Style::Quiet, "DENIED AT", 9)
        .cell(Style::Quiet, "RULE", 16)
        .cell(Style::Quiet, "KEY", 28)
        .cell(Style::Quiet, "IP", 18)
        .cell(Style::Quiet, "ENDPOINT", 24)
        .number(Style::Quiet, "COUNT", 7)
        .number(Style::Quiet, "WAIT", 11);
    let row = |one: &Violation| {
        // The time part of 2026-01-31T12:00:00.000Z, in UTC.
        let time = one.at.get(11..19).unwrap_or(&one.at);
        let wait = one.retry_after_ms.map_or("never".into(), |ms| {
            if ms < 60_000 { format!("{:.1} s", ms as f64 / 1_000.0) } else { span(ms.div_ceil(1_000)) }
        });
        Line::default()
            .cell(Style::Quiet, time, 9)
            .cell(Style::Plain, &one.rule, 16)
            .cell(Style::Plain, &one.key, 28)
            .cell(Style::Plain, one.ip.as_deref().unwrap_or("-"), 18)
            .cell(Style::Plain, one.endpoint.as_deref().unwrap_or("-"), 24)
            .number(Style::Plain, &short(one.count as f64), 7)
            .number(Style::Plain, &wait, 11)
    };
    std::iter::once(head).chain(report.violations.iter().take(most).map(row)).collect()
}

/// `90-120` where a count is not exact.
fn bounds(key: &HotKey) -> String {
    match key.error {
        0 => short(key.count as f64),
        error => format!("{}-{}", short(key.count.saturating_sub(error) as f64), short(key.count as f64)),
    }
}
