//! The report as lines: all of it for scripts, or what fits on a screen.

use super::line::{Line, Style, wrapped};
use super::numbers::{counted, micros, percent, short, span};
use super::report::{Blocked, HotKey, Report, Rule, Series, Totals, Violation};

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

/// Seconds of a sparkline, if there is room for that many.
const SPARK: usize = 30;
/// Sentences are wrapped at this width without a screen.
const PAGE: usize = 110;

/// Everything, for a pipe.
pub(super) fn everything(report: &Report) -> Vec<Line> {
    let mut lines = head(report, PAGE);
    lines.push(Line::default());
    lines.extend(rules(report, None, PAGE));
    for rule in &report.rules {
        lines.push(Line::default());
        lines.push(Line::of(Style::Strong, &rule.name).and(Style::Quiet, &format!("  {} by {}", rule.limit, rule.key)));
        lines.extend(finding(rule, PAGE));
        if !rule.hot_by_traffic.is_empty() {
            lines.extend(hot_keys(rule, 5, PAGE));
        }
    }
    lines.push(Line::default());
    lines.extend(violations(report, 10, usize::MAX));
    lines
}

/// What fits on a screen: the selected rule is always among the rules shown.
pub(super) fn screen(report: &Report, view: View, width: usize, height: usize) -> Vec<Line> {
    let mut lines = head(report, width);
    lines.push(Line::default());
    let mut table = rules(report, Some(view.rule), width);
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
            Pane::Keys => lines.extend(hot_keys(rule, 10, width)),
            Pane::Violations => lines.extend(violations(report, 20, width)),
        }
    }
    lines.truncate(height);
    lines.into_iter().map(|line| line.within(width)).collect()
}

fn head(report: &Report, width: usize) -> Vec<Line> {
    let Report { latency, store, .. } = report;
    let (style, breaker) = match store.breaker.as_str() {
        "closed" => (Style::Good, "answers"),
        "half_open" => (Style::Warn, "breaker half-open: probing"),
        _ => (Style::Bad, "breaker open: rules use their failure policy"),
    };
    let kept = match (store.keys, store.max_keys) {
        (Some(keys), Some(most)) => format!("{} of {} keys", short(keys as f64), short(most as f64)),
        _ => format!("{}, p99 {}", counted(store.calls, "call"), micros(store.p99_us)),
    };
    let (errors, instances) = (counted(store.errors, "error"), counted(store.instances.into(), "instance"));
    let mut lines = vec![
        Line::of(Style::Strong, &format!("Tollkeeper {}", report.version))
            .and(Style::Quiet, &format!("  instance {}, up {}", report.instance, span(report.uptime_seconds))),
        requests(&report.totals),
        Line::of(Style::Quiet, "latency  ")
            .and(Style::Plain, &format!("p50 {}, p99 {}", micros(latency.p50_us), micros(latency.p99_us)))
            .and(Style::Quiet, " in the last minute"),
        Line::of(Style::Quiet, "store    ")
            .and(style, &format!("{} {breaker}", store.kind))
            .and(Style::Quiet, &format!("  {kept}, {errors}, {instances}")),
    ];
    for finding in &report.findings {
        lines.extend(wrapped(&finding.sentence, width).iter().map(|text| Line::of(Style::Warn, text)));
    }
    lines
}

/// Requests, each counted once, whatever the number of rules that decided about it.
fn requests(totals: &Totals) -> Line {
    let rate = |part: f64| if totals.requests_per_second > 0.0 { part / totals.requests_per_second } else { 0.0 };
    let (now, no_rule) = (rate(totals.denied_per_second), rate(totals.no_rule_per_second));
    let mut line = Line::of(Style::Quiet, "requests ")
        .and(Style::Strong, &format!("{}/s", short(totals.requests_per_second)))
        .and(Style::Plain, ", ")
        .and(if now > 0.0 { Style::Bad } else { Style::Plain }, &format!("{} denied", percent(now)));
    if no_rule > 0.0 {
        line = line.and(Style::Plain, ", ").and(Style::Warn, &format!("{} match no rule", percent(no_rule)));
    }
    let mut since = format!(
        "  since the start {}, {} denied ({})",
        counted(totals.requests, "request"),
        short(totals.denied as f64),
        percent(totals.share_denied)
    );
    let rest = [(totals.no_rule, "without a rule"), (totals.shed, "shed"), (totals.error, "not decided")];
    for (count, words) in rest.into_iter().filter(|(count, _)| *count > 0) {
        since += &format!(", {} {words}", short(count as f64));
    }
    line.and(Style::Quiet, &since)
}

fn rules(report: &Report, chosen: Option<usize>, page: usize) -> Vec<Line> {
    /// The other columns, and the words at the end.
    const OTHERS: usize = 2 + 3 * 10 + 4 + 28;
    let width = report.rules.iter().map(|rule| rule.name.chars().count()).max().unwrap_or(0).clamp(4, 24);
    // The words matter more than the picture.
    let seconds = page.saturating_sub(width + OTHERS).min(SPARK);
    let last = if seconds >= 12 { "  LAST SECONDS" } else { "" };
    let head = Line::default()
        .cell(Style::Quiet, "", 1)
        .cell(Style::Quiet, "RULE", width)
        .number(Style::Quiet, "ALLOWED/S", 9)
        .number(Style::Quiet, "DENIED/S", 9)
        .number(Style::Quiet, "DENIED", 9)
        .cell(Style::Quiet, last, seconds + 2)
        .and(Style::Quiet, "LOOKS LIKE");
    let rows = report.rules.iter().enumerate().map(|(index, rule)| {
        let is_chosen = chosen == Some(index);
        // What passed all the same is in brackets, so that nobody takes it for a denial.
        let (per_second, count, denied) = match rule.mode.as_str() {
            "enforce" if rule.denied_per_second > 0.0 => (rule.denied_per_second, rule.denied, Style::Bad),
            "enforce" => (rule.denied_per_second, rule.denied, Style::Plain),
            "quota" => (rule.denied_per_second, rule.denied, Style::Quiet),
            "annotate" => (rule.annotated_per_second, rule.annotated, Style::Quiet),
            _ => (rule.shadow_denied_per_second, rule.shadow_denied, Style::Quiet),
        };
        let all = rule.allowed + rule.denied + rule.shadow_denied + rule.annotated;
        let share = percent(if all > 0 { count as f64 / all as f64 } else { 0.0 });
        let shown = |text: String| if rule.mode == "enforce" { text } else { format!("({text})") };
        let (style, words) = judgement(rule);
        let line = Line::default()
            .cell(Style::Chosen, if is_chosen { "▸" } else { "" }, 1)
            .cell(if is_chosen { Style::Chosen } else { Style::Strong }, &rule.name, width)
            .number(Style::Plain, &short(rule.allowed_per_second), 9)
            .number(denied, &shown(short(per_second)), 9)
            .number(if rule.mode == "enforce" { Style::Plain } else { denied }, &shown(share), 9)
            .and(Style::Plain, "  ");
        spark(line, rule, seconds).and(Style::Plain, " ").and(style, &words)
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
        (true, "enforce") => "",
        (true, mode) => &format!(" ({mode})"),
    };
    (style, format!("{words}{mode}"))
}

/// One block for each of the last whole seconds; those with denials stand out.
fn spark(mut line: Line, rule: &Rule, room: usize) -> Line {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let whole = rule.seconds.allowed.len().saturating_sub(1);
    let Series { allowed, denied, shadow_denied, annotated } = &rule.seconds;
    let annotated = annotated.iter().chain(std::iter::repeat(&0));
    let passed =
        allowed.iter().zip(shadow_denied).zip(annotated).map(|((allowed, would), over)| allowed + would + over);
    let seconds: Vec<(u64, u64)> = passed.zip(denied.iter().copied()).take(whole).collect();
    let last = &seconds[seconds.len().saturating_sub(room)..];
    let most = last.iter().map(|(allowed, denied)| allowed + denied).max().unwrap_or(0).max(1);
    line = line.and(Style::Quiet, &" ".repeat(room - last.len()));
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

/// Two lists, side by side if there is room, otherwise the denials first.
fn hot_keys(rule: &Rule, most: usize, page: usize) -> Vec<Line> {
    const WIDE: usize = 106;
    let (traffic, denials) = (hot_list(&rule.hot_by_traffic, "REQUESTS", most), denied_list(rule, most));
    if page < WIDE {
        let between = (!rule.hot_by_denials.is_empty()).then(Line::default);
        return denials.into_iter().filter(|_| between.is_some()).chain(between.clone()).chain(traffic).collect();
    }
    let blank = || Line::default().cell(Style::Plain, "", KEY).number(Style::Plain, "", COUNT);
    let rows = traffic.len().max(denials.len());
    let side_by_side = |index: usize| {
        let left = traffic.get(index).cloned().unwrap_or_else(blank).and(Style::Plain, "   ");
        let right = denials.get(index).cloned().unwrap_or_default();
        right.0.iter().fold(left, |line, (style, text)| line.and(*style, text))
    };
    (0..rows).map(side_by_side).collect()
}

const KEY: usize = 32;
const COUNT: usize = 12;

fn hot_list(keys: &[HotKey], title: &str, most: usize) -> Vec<Line> {
    let head = Line::default().cell(Style::Quiet, &format!("MOST {title}"), KEY).number(Style::Quiet, "COUNT", COUNT);
    let row =
        |key: &HotKey| Line::default().cell(Style::Plain, &key.key, KEY).number(Style::Plain, &bounds(key), COUNT);
    std::iter::once(head).chain(keys.iter().take(most).map(row)).collect()
}

fn denied_list(rule: &Rule, most: usize) -> Vec<Line> {
    let mut lines =
        hot_list(&rule.hot_by_denials, if rule.mode == "enforce" { "DENIALS" } else { "OVER" }, most).into_iter();
    let head = lines.next().unwrap_or_default().number(Style::Quiet, "WAITS KEPT", COUNT);
    let waits = |key: &HotKey| match key.waits_kept + key.waits_broken {
        _ if key.blocked => "blocked".into(),
        0 => String::new(),
        all => format!("{} of {all}", key.waits_kept),
    };
    let rows = lines.zip(&rule.hot_by_denials).map(|(line, key)| line.number(Style::Plain, &waits(key), COUNT));
    std::iter::once(head).chain(rows).collect()
}

/// The columns that fit: when, rule and key always; the address and the endpoint if there is room.
fn violations(report: &Report, most: usize, page: usize) -> Vec<Line> {
    let (ip, endpoint) = (page >= 96, page >= 121);
    if report.violations.is_empty() {
        return vec![Line::of(Style::Quiet, "nobody has been denied yet")];
    }
    let head = Line::default()
        .cell(Style::Quiet, "DENIED AT", 9)
        .cell(Style::Quiet, "RULE", 16)
        .cell(Style::Quiet, "KEY", 28)
        .cell_if(ip, Style::Quiet, "IP", 18)
        .cell_if(endpoint, Style::Quiet, "ENDPOINT", 24)
        .number(Style::Quiet, "COUNT", 7)
        .number(Style::Quiet, "WAIT", 11);
    let row = |one: &Violation| {
        // The time part of 2026-01-31T12:00:00.000Z, in UTC.
        let time = one.at.get(11..19).unwrap_or(&one.at);
        let wait = match (one.retry_after_ms, &one.blocked) {
            (None, Some(_)) => "no end".into(),
            (None, None) => "never".into(),
            (Some(ms), _) if ms < 60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
            (Some(ms), _) => span(ms.div_ceil(1_000)),
        };
        Line::default()
            .cell(Style::Quiet, time, 9)
            .cell(Style::Plain, &one.rule, 16)
            .cell(Style::Plain, &one.key, 28)
            .cell_if(ip, Style::Plain, one.ip.as_deref().unwrap_or("-"), 18)
            .cell_if(endpoint, Style::Plain, one.endpoint.as_deref().unwrap_or("-"), 24)
            .number(Style::Plain, &short(one.count as f64), 7)
            .number(Style::Plain, &wait, 11)
            .and(Style::Quiet, &remark(one))
    };
    std::iter::once(head).chain(report.violations.iter().take(most).map(row)).collect()
}

/// Why it was denied, if not by a limit that is enforced.
fn remark(violation: &Violation) -> String {
    let mut remark = String::new();
    remark += match violation.mode.as_str() {
        "shadow" => " shadow: not denied",
        "annotate" => " annotate: not denied",
        "quota" => " quota: denied if all are over",
        _ => "",
    };
    if let Some(Blocked { by, until }) = &violation.blocked {
        remark += " blocked";
        remark += &by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        // The date and time of 2026-01-31T12:00:00.000Z.
        remark += &until
            .as_ref()
            .and_then(|until| Some(format!(" until {} UTC", until.get(..16)?.replace('T', " "))))
            .unwrap_or_default();
    }
    remark
}

/// `90-120` where a count is not exact.
fn bounds(key: &HotKey) -> String {
    match key.error {
        0 => short(key.count as f64),
        error => format!("{}-{}", short(key.count.saturating_sub(error) as f64), short(key.count as f64)),
    }
}
