//! The report for a terminal: what matters, on about one screen.

use std::fmt::Write as _;
use std::time::Duration;

use crate::finding::{Kind, counted_span};
use crate::report::{ComparedReport, KeyReport, KeysReport, Report, RuleReport};
use crate::words::{counted, grouped, lasting, minute_of, share};

/// Whether colours are used: yes or no, so callers may match it without a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Plain text.
    Plain,
    /// With the colours of a terminal.
    Colours,
}

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Colours => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }
}

/// Keys and routes that are listed.
const LISTED: usize = 6;

/// The whole summary.
#[must_use]
pub fn summary(report: &Report, paint: Paint) -> String {
    let mut out = String::new();
    head(&mut out, report, paint);
    if report.read.requests == 0 {
        return out;
    }
    if report.rules.is_empty() {
        for keys in &report.clients {
            rates(&mut out, keys, paint);
        }
        busiest(&mut out, report, paint);
        shape(&mut out, report, paint);
        routes(&mut out, report, paint);
        suspects(&mut out, report, paint);
        suggestion(&mut out, report, paint);
    } else {
        verdict(&mut out, report, paint);
        for rule in &report.rules {
            one_rule(&mut out, rule, paint);
        }
        no_rule(&mut out, report, paint);
        suspects(&mut out, report, paint);
        if let Some(compared) = &report.compared {
            comparison(&mut out, compared, paint);
        }
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn head(out: &mut String, report: &Report, paint: Paint) {
    let read = &report.read;
    let formats: Vec<String> = read.formats.iter().map(|(name, _)| name.clone()).collect();
    let sources: u64 = read.formats.iter().map(|(_, count)| count).sum();
    let from = if sources <= 1 { String::new() } else { format!(" in {}", counted(sources, "log")) };
    let formats = if formats.is_empty() { "none, because nothing was found".into() } else { formats.join(", ") };
    line(out, &format!("format: {}{from}", paint.bold(&formats)));
    if read.requests == 0 {
        line(out, &format!("no request in {}", counted(read.lines, "line")));
    } else {
        let span = format!("{} to {} UTC", minute_of(read.first_us / 1_000_000), minute_of(read.last_us / 1_000_000));
        let rate = read.requests as f64 / report.seconds.max(1) as f64;
        line(
            out,
            &format!(
                "{} in {} ({span}), {rate:.1} a second",
                paint.bold(&counted(read.requests, "request")),
                counted_span(report.seconds)
            ),
        );
    }
    if read.unreadable > 0 {
        line(out, &paint.yellow(&format!("{} could not be read:", counted(read.unreadable, "line"))));
        for bad in &read.first_unreadable {
            line(out, &format!("  {}:{}: {}", bad.source, bad.line, bad.reason));
        }
    }
    if read.too_late > 0 {
        let late = counted(read.too_late, "line");
        line(
            out,
            &paint.yellow(&format!(
                "{late} came more than {} s late and count at the time of their neighbours",
                crate::WINDOW
            )),
        );
    }
    for broken in &read.broken {
        line(out, &paint.yellow(broken));
    }
    for note in &report.notes {
        line(out, &paint.dim(&format!("note: {note}")));
    }
}

fn rates(out: &mut String, keys: &KeysReport, paint: Paint) {
    let about = if keys.exact { "" } else { "about " };
    let title =
        format!("\nBy {}: {about}{}, {}", keys.name, counted(keys.keys, "key"), counted(keys.requests, "request"));
    line(out, &paint.bold(&title));
    line(out, &paint.dim("  in its busiest       half of keys       99 %     99.9 %       most"));
    for (span, quantiles) in
        [("second", &keys.rates.second), ("minute", &keys.rates.minute), ("hour", &keys.rates.hour)]
    {
        let number = |number: u32| grouped(number.into());
        line(
            out,
            &format!(
                "  {span:<14} {:>18} {:>10} {:>10} {:>10}",
                number(quantiles.p50),
                number(quantiles.p99),
                number(quantiles.p999),
                number(quantiles.most)
            ),
        );
    }
    if let Some(few) = keys.concentration {
        let make = if few.keys == 1 { "makes" } else { "make" };
        line(out, &format!("  {} {make} {} of requests", counted(few.keys, "key"), share(few.share)));
    }
    if !keys.exact {
        line(
            out,
            &paint.dim(&format!("  shares of keys are within ± {} (one standard error)", share(keys.error_of_share))),
        );
    }
}

fn key_line(key: &KeyReport, paint: Paint) -> String {
    let suspect = match &key.suspect {
        Some(suspect) => paint.red(suspect.looks_like.words()),
        None if key.agents >= 20 => paint.dim(&format!("{} user agents: many people behind it?", key.agents)),
        None => String::new(),
    };
    let [second, minute, _] = key.most;
    format!(
        "  {:<40} {:>11} {:>11}  {:>7}/s {:>8}/min  {suspect}",
        cut(&key.key, 40),
        grouped(key.requests),
        share(key.share),
        grouped(second.into()),
        grouped(minute.into())
    )
    .trim_end()
    .to_owned()
}

/// Clients choose keys: they must not move the cursor.
fn cut(text: &str, most: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    if text.chars().count() <= most {
        return plain.collect();
    }
    plain.take(most - 1).chain(['…']).collect()
}

fn busiest(out: &mut String, report: &Report, paint: Paint) {
    for keys in &report.clients {
        line(out, &paint.bold(&format!("\nBusiest by {}", keys.name)));
        keys.busiest.iter().take(LISTED).for_each(|key| line(out, &key_line(key, paint)));
    }
}

fn shape(out: &mut String, report: &Report, paint: Paint) {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let hours: Vec<u64> = (0..24).map(|hour| report.week.iter().map(|day| day[hour].requests).sum()).collect();
    let most = hours.iter().copied().max().unwrap_or(0).max(1);
    let bars: String = hours.iter().map(|count| BARS[(count * 7).div_ceil(most) as usize]).collect();
    line(out, &format!("\n{} {bars}  {}", paint.bold("Hours of the day (UTC)"), paint.dim("0 to 23")));
}

fn routes(out: &mut String, report: &Report, paint: Paint) {
    line(out, &paint.bold("\nRoutes"));
    for route in report.routes.iter().take(LISTED) {
        let errors = if route.refused * 10 >= route.requests {
            format!("{} refused", share(route.refused as f64 / route.requests.max(1) as f64))
        } else {
            String::new()
        };
        let text = format!(
            "  {:<56} {:>11} {:>7}  {errors}",
            cut(&route.route, 56),
            grouped(route.requests),
            share(route.share)
        );
        line(out, text.trim_end());
    }
}

fn suspects(out: &mut String, report: &Report, paint: Paint) {
    if report.suspects.is_empty() {
        return;
    }
    line(out, &paint.bold("\nBots and scanners that stand out"));
    for key in report.suspects.iter().take(LISTED) {
        let Some(suspect) = &key.suspect else { continue };
        let words = paint.red(suspect.looks_like.words());
        let requests = counted(key.requests, "request");
        line(out, &format!("  {:<40} {words}: {} ({requests})", cut(&key.key, 40), suspect.evidence));
    }
}

fn suggestion(out: &mut String, report: &Report, paint: Paint) {
    let Some(suggestion) = &report.suggestion else { return };
    line(out, &paint.bold("\nSuggested limits"));
    for rule in &suggestion.rules {
        let what =
            if rule.paths.is_empty() { String::new() } else { format!(" on {}", cut(&rule.paths.join(", "), 50)) };
        line(out, &format!("  {} by {}{what}: {}", rule.name, rule.key, paint.green(&rule.written)));
        for evidence in &rule.evidence {
            line(out, &paint.dim(&format!("    {evidence}")));
        }
    }
}

fn verdict(out: &mut String, report: &Report, paint: Paint) {
    let denied = report.denied.unwrap_or(0);
    let of = share(denied as f64 / report.read.requests.max(1) as f64);
    let text = format!("\nThese rules would have denied {} ({of})", counted(denied, "request"));
    line(out, &paint.bold(&text));
}

pub(crate) fn one_rule(out: &mut String, rule: &RuleReport, paint: Paint) {
    let mode = if rule.mode == "enforce" { String::new() } else { format!(", {}", rule.mode) };
    line(out, &format!("\n{}  {}{mode}", paint.bold(&rule.rule), rule.limit));
    if !rule.tried {
        line(out, &paint.dim("  not tried: a log does not say when requests end"));
        return;
    }
    let about = if rule.keys.exact { "" } else { "about " };
    line(
        out,
        &format!(
            "  denies {} of {} ({}) and {about}{} of {} ({})",
            grouped(rule.denied),
            counted(rule.keys.requests, "request"),
            share(rule.denied as f64 / rule.keys.requests.max(1) as f64),
            grouped(rule.keys_denied),
            counted(rule.keys.keys, "key"),
            share(rule.share_of_keys_denied)
        ),
    );
    let sentence = &rule.finding.sentence;
    let sentence = match rule.finding.kind {
        Kind::Abuse => paint.green(sentence),
        Kind::TooLow => paint.red(sentence),
        Kind::Mixed => paint.yellow(sentence),
        Kind::Quiet | Kind::NotEnoughData => sentence.clone(),
    };
    line(out, &format!("  {sentence}"));
    if let Some(waits) = &rule.waits {
        let wait = |micros: u64| lasting(Duration::from_micros(micros));
        let mut text = format!("  waits: half up to {}, 99 % up to {}", wait(waits.p50_us), wait(waits.p99_us));
        if waits.never > 0 {
            let _ = write!(text, "; {} can never pass", counted(waits.never, "request"));
        }
        if let Some((begins, denied)) = rule.worst {
            let span = lasting(Duration::from_secs(rule.timeline.seconds));
            let _ = write!(text, "; most at {} UTC: {} in {span}", minute_of(begins), grouped(denied));
        }
        line(out, &text);
    }
    for key in rule.who.iter().take(3) {
        line(out, &key_line(key, paint));
    }
    for (place, instead) in rule.instead.iter().enumerate() {
        // One limit may do for several shares.
        if place > 0 && rule.instead[place - 1].written == instead.written {
            continue;
        }
        let alone = if instead.exact { "" } else { ", tried on a sample of keys" };
        line(
            out,
            &format!(
                "  {} would deny {} of keys and {} of requests{}",
                paint.green(&instead.written),
                share(instead.share_of_keys_denied),
                share(instead.share_of_requests_denied),
                paint.dim(&format!("  (at most {}{alone})", share(instead.at_most)))
            ),
        );
    }
}

fn no_rule(out: &mut String, report: &Report, paint: Paint) {
    let Some(no_rule) = report.no_rule.as_ref().filter(|no_rule| no_rule.requests > 0) else { return };
    let text = format!("\nNo rule applies to {} ({})", counted(no_rule.requests, "request"), share(no_rule.share));
    line(out, &paint.bold(&text));
    for route in no_rule.routes.iter().take(LISTED) {
        line(
            out,
            &format!("  {:<56} {:>11} {:>7}", cut(&route.route, 56), grouped(route.requests), share(route.share)),
        );
    }
}

fn comparison(out: &mut String, compared: &ComparedReport, paint: Paint) {
    let (before, after) = (compared.denied, compared.denied_with_other);
    line(
        out,
        &paint.bold(&format!("\nWith the other rules: {} denied instead of {}", grouped(after), grouped(before))),
    );
    for (what, requests, keys) in [
        (paint.green("gain"), compared.gained, &compared.gaining),
        (paint.red("lose"), compared.lost, &compared.losing),
    ] {
        line(out, &format!("  {what}: {}", counted(requests, "request")));
        keys.iter().take(LISTED).for_each(|key| line(out, &format!("  {}", key_line(key, paint))));
    }
    for rule in &compared.rules {
        one_rule(out, rule, paint);
    }
}
