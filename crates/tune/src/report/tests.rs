//! Whole runs over the generated log.

mod cores;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tollkeeper::{Clock, Descriptor, Limiter, ManualClock, MemoryStore, Policy, Timestamp};
use tollkeeper_logs::Format;

use super::*;
use crate::generator::write_sample;
use crate::input::Source;
use crate::request::{LogRequest, Naming};
use crate::text::{Paint, summary};

/// A folder that is gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tollkeeper-tune-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("written");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn generated(lines: u64) -> String {
    let mut out = Vec::new();
    write_sample(lines, 7, &mut out).expect("written");
    String::from_utf8(out).expect("text")
}

fn plain(_: &Rule, _: u16, key: &str) -> String {
    key.to_owned()
}

fn report_of(files: &[String], policy: Option<Policy>, workers: usize) -> Report {
    compared_report(files, policy, None, workers)
}

fn compared_report(files: &[String], policy: Option<Policy>, other: Option<Policy>, workers: usize) -> Report {
    let sources = Source::named(files).expect("files");
    let logs = Log::open(sources, None, 0).expect("logs");
    let options = Options {
        naming: Naming::default(),
        policy,
        compared: other.map(|policy| (policy, Naming::default())),
        workers,
        max_keys: 200_000,
    };
    Report::of(logs, options, &Progress::default(), &plain)
}

/// All or nothing across rules of different keys: an address, a route and everybody.
fn rules() -> Policy {
    Policy::new([
        Rule::new("per-address").key("{ip}").limit("10/min").burst(5),
        Rule::new("login").key("{ip}").limit("1/min").when("path", "/login"),
        Rule::new("everybody").key("global").limit("1/s").burst(5),
    ])
    .expect("rules")
}

#[test]
fn the_answer_is_the_same_on_any_number_of_cores() {
    let folder = Folder::new();
    let log = generated(30_000);
    let (first, second) = log.split_at(log[..log.len() / 2].rfind('\n').expect("lines") + 1);
    // Later first, and two that overlap.
    let files = [
        folder.file("b.log", second.as_bytes()),
        folder.file("a.log", first.as_bytes()),
        folder.file("c.log", first.as_bytes()),
    ];
    let told = |workers| serde_json::to_string(&report_of(&files, Some(rules()), workers)).expect("JSON");
    let one = told(1);
    assert_eq!(told(2), one);
    assert_eq!(told(7), one);
    let told = |workers| serde_json::to_string(&report_of(&files, None, workers)).expect("JSON");
    assert_eq!(told(1), told(5));
}

/// An independent path: each line read on its own and asked of a limiter, one after the other.
#[test]
fn decisions_are_those_of_a_limiter_that_is_asked_one_by_one() {
    let folder = Folder::new();
    let log = generated(30_000);
    let report = report_of(&[folder.file("access.log", log.as_bytes())], Some(rules()), 3);
    let clock = ManualClock::default();
    let limiter = Limiter::new(rules(), MemoryStore::with(200_000, Clock::from(clock.clone())));
    let mut format = Format::named("combined").expect("known");
    let mut seconds: Vec<(u64, Vec<Descriptor>)> = Vec::new();
    for line in log.lines() {
        let entry = format.read(line).expect("readable").expect("a request");
        let ip = entry.ip.clone().unwrap_or_default();
        let ip = match ip.parse().expect("an address") {
            std::net::IpAddr::V6(_) => tollkeeper::http::group(ip.parse().expect("an address"), 64),
            std::net::IpAddr::V4(_) => ip.into_owned(),
        };
        let request = Descriptor::new([("ip", ip.as_str()), ("path", entry.path().unwrap_or_default())]);
        match seconds.last_mut().filter(|(at, _)| *at == entry.at_us) {
            Some((_, requests)) => requests.push(request),
            None => seconds.push((entry.at_us, vec![request])),
        }
    }
    let (mut denied, mut by_rule) = (0, [0; 3]);
    for (at, requests) in seconds {
        for (place, request) in requests.iter().enumerate() {
            clock.set(Timestamp::from_micros(at + place as u64 * 1_000_000 / requests.len() as u64));
            let verdict = limiter.try_check(request).expect("decided");
            denied += u64::from(!verdict.is_allowed());
            for row in verdict.rows().iter().filter(|row| !row.decision.is_allowed()) {
                let name = row.charge.rule.name();
                by_rule[report.rules.iter().position(|rule| rule.rule == name).expect("known")] += 1;
            }
        }
    }
    assert_eq!(report.denied, Some(denied));
    assert_eq!(report.rules.iter().map(|rule| rule.denied).collect::<Vec<_>>(), by_rule);
    assert!(by_rule.iter().all(|denied| *denied > 0), "{by_rule:?}");
}

#[test]
fn files_may_be_compressed_and_are_merged_by_time() {
    let folder = Folder::new();
    let log = generated(20_000);
    let whole = report_of(&[folder.file("whole.log", log.as_bytes())], Some(rules()), 2);
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let part = |from: usize, to: usize| lines[from..to].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(part(0, 8_000).as_bytes()).expect("packed");
    let packed =
        |text: String| ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    // Two frames, as `cat a.zst b.zst` makes them.
    let zstd = [packed(part(8_000, 9_000)), packed(part(9_000, 15_000))].concat();
    folder.file("x.log.2.gz", &gzip.finish().expect("packed"));
    folder.file("x.log.1.zst", &zstd);
    folder.file("x.log", part(15_000, 20_000).as_bytes());
    let pattern = format!("{}/x.log*", folder.0.display());
    let merged = report_of(&[pattern], Some(rules()), 2);
    assert_eq!(merged.read.formats, [("combined".to_owned(), 3)]);
    assert_eq!((merged.read.requests, merged.read.too_late), (20_000, 0));
    // A second that two files share is in the order of the files.
    let difference = merged.denied.expect("rules").abs_diff(whole.denied.expect("rules"));
    assert!(difference <= 5, "{difference}");
}

/// A cut-off zstd file was reported in the words of its decoder: `Failed to parse block header: BlockContentReadError(Error { kind...`.
#[test]
fn a_log_that_is_cut_off_is_read_up_to_there() {
    let folder = Folder::new();
    let log = generated(20_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(log.as_bytes()).expect("packed");
    let zstd = ruzstd::encoding::compress_to_vec(log.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    for (packed, error) in
        [(gzip.finish().expect("packed"), "incomplete deflate stream"), (zstd, "incomplete zstd stream")]
    {
        let name = folder.file("cut.log", &packed[..packed.len() / 2]);
        let report = report_of(std::slice::from_ref(&name), None, 2);
        assert!((5_000..15_000).contains(&report.read.requests), "{}", report.read.requests);
        assert_eq!(report.read.broken, [format!("{name}: {error}; what came before it was read")]);
    }
}

/// The first chunk of a log was once handed out before the next log was opened, so that lines of servers that log at the same time were late.
#[test]
fn logs_of_the_same_time_are_merged_wherever_they_begin() {
    let folder = Folder::new();
    let log = generated(900);
    let lines: Vec<&str> = log.lines().collect();
    let dealt = |name: &str, of: &dyn Fn(usize) -> bool| {
        let mine = lines.iter().enumerate().filter(|(place, _)| of(*place)).map(|(_, line)| format!("{line}\n"));
        folder.file(name, mine.collect::<String>().as_bytes())
    };
    // Two from the beginning on, and one that begins in the middle.
    let late = |place: usize| place >= 450 && place % 3 == 2;
    let files = [
        dealt("a.log", &|place| !late(place) && place % 2 == 0),
        dealt("b.log", &|place| !late(place) && place % 2 == 1),
        dealt("c.log", &late),
    ];
    let (one, several) = (folder.file("all.log", log.as_bytes()), report_of(&files, None, 2));
    assert_eq!((several.read.requests, several.read.too_late), (900, 0));
    assert_eq!(several.read.formats, [("combined".to_owned(), 3)]);
    let one = report_of(&[one], None, 2);
    let rates = |report: &Report| serde_json::to_value(&report.clients[0].rates).expect("JSON");
    assert_eq!((rates(&several), several.timeline.spans), (rates(&one), one.timeline.spans));
}

#[test]
fn bad_lines_are_counted_and_shown() {
    let folder = Folder::new();
    let mut log = generated(100);
    log.insert_str(log.find('\n').expect("lines") + 1, "hello\n\n");
    log.push_str(&"x".repeat(3_000_000));
    let report = report_of(&[folder.file("access.log", log.as_bytes())], None, 2);
    assert_eq!((report.read.requests, report.read.unreadable), (100, 2));
    let shown: Vec<(u64, &str)> =
        report.read.first_unreadable.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
    assert_eq!(shown[0], (2, "\" - \" after $remote_addr is missing"));
    assert!(shown[1].1.contains("longer than"), "{shown:?}");
    let text = summary(&report, Paint::Plain);
    assert!(text.starts_with("format: combined\n"), "{text}");
    assert!(text.contains("times are whole seconds"), "{text}");
}

/// A line that was too long to be read was not counted in the numbers of later lines.
#[test]
fn lines_have_their_numbers_behind_one_that_is_too_long() {
    let folder = Folder::new();
    let log = generated(300);
    let good: Vec<&str> = log.lines().collect();
    let text = format!("{}\n{}\nbad\n{}\nbad\n", good[..100].join("\n"), "x".repeat(1 << 21), good[100..].join("\n"));
    let read = report_of(&[folder.file("long.log", text.as_bytes())], None, 2).read;
    assert_eq!((read.lines, read.requests, read.unreadable), (303, 300, 3));
    let shown: Vec<(u64, bool)> =
        read.first_unreadable.iter().map(|bad| (bad.line, bad.reason.starts_with("longer than"))).collect();
    assert_eq!(shown, [(101, true), (102, false), (303, false)]);
}

/// Quotes within what a reason quotes were once taken for its end, and an address between them was shown.
#[test]
fn hidden_lines_show_nothing_of_what_they_say() {
    let folder = Folder::new();
    let secret = "198.51.100.77";
    let line = |rest: &str| format!("{secret} - - [05/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" {rest}\n");
    let odd = [
        line("200 5 \"-\" \"x\" \"198.51.100.77\" y"),
        line("\"198.51.100.77\" 5 \"-\" \"x\""),
        line(r#"2\"198.51.100.77\"0 5 "-" "x""#),
    ];
    let file = folder.file("odd.log", (line("200 5 \"-\" \"x\"").repeat(5) + &odd.concat()).as_bytes());
    let logs = Log::open(Source::named(&[file]).expect("a file"), Format::named("combined").ok().as_ref(), 0);
    let options =
        Options { naming: Naming::default(), policy: None, compared: None, workers: 1, max_keys: crate::MAX_KEYS };
    let hidden = |_: &Rule, _: u16, _: &str| "key-1".to_owned();
    let mut report = Report::of(logs.expect("a log"), options, &Progress::default(), &hidden);
    assert_eq!(report.read.unreadable, 3);
    assert!(serde_json::to_string(&report.read).expect("JSON").contains(secret));
    report.hide_lines();
    let shown = serde_json::to_string(&report).expect("JSON") + &summary(&report, Paint::Plain);
    assert!(!shown.contains(secret), "{shown}");
}

#[test]
fn those_who_are_not_people_stand_out_and_are_left_out_of_suggestions() {
    let folder = Folder::new();
    let report = report_of(&[folder.file("access.log", generated(30_000).as_bytes())], None, 2);
    let looks = |key: &str| {
        report.suspects.iter().find(|one| one.key == key).and_then(|one| one.suspect.as_ref()).map(|one| one.looks_like)
    };
    use crate::suspect::Suspicion::{Crawler, PasswordGuessing, Scanner, Scraper};
    assert_eq!(looks("203.0.113.7"), Some(Scraper));
    assert_eq!(looks("198.51.100.23"), Some(Scanner));
    assert_eq!(looks("192.0.2.66"), Some(PasswordGuessing));
    assert_eq!(looks("192.0.2.10"), Some(Crawler));
    assert_eq!(looks("198.51.100.200"), None, "an office is busy, not suspect");
    assert!(report.suspects.iter().all(|one| !one.key.starts_with("10.")), "{:?}", report.suspects);
    let routes: Vec<&str> = report.routes.iter().map(|one| one.route.as_str()).collect();
    assert!(routes.contains(&"GET /products/{id}") && routes.contains(&"GET /users/{id}/orders"), "{routes:?}");

    let suggestion = report.suggestion.as_ref().expect("suggested");
    let names: Vec<&str> = suggestion.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["per-address", "sign-in"]);
    assert_eq!(suggestion.rules[1].paths, ["/login"]);
    assert!(suggestion.yaml.contains("mode: shadow"), "{}", suggestion.yaml);
}

#[test]
fn a_limit_that_denies_few_keys_does_so_when_it_is_run() {
    let folder = Folder::new();
    let file = [folder.file("access.log", generated(20_000).as_bytes())];
    let policy = |limit: &str, burst: u32| {
        Policy::new([Rule::new("per-address").key("{ip}").limit(limit).burst(u64::from(burst))]).expect("rules")
    };
    let report = report_of(&file, Some(policy("2/min", 1)), 2);
    let rule = &report.rules[0];
    assert!(rule.share_of_keys_denied > 0.05 && rule.instead.len() == 3, "{:?}", rule.instead);
    for instead in &rule.instead {
        assert!(instead.exact && instead.share_of_keys_denied <= instead.at_most, "{instead:?}");
        let burst = instead.burst.expect("a bucket");
        let run = report_of(&file, Some(policy(&instead.limit, burst)), 2);
        assert_eq!(run.rules[0].share_of_keys_denied, instead.share_of_keys_denied, "{instead:?}");
        let share = run.rules[0].denied as f64 / run.rules[0].keys.requests as f64;
        assert_eq!(share, instead.share_of_requests_denied, "{instead:?}");
    }
}

#[test]
fn who_gains_and_who_loses() {
    let folder = Folder::new();
    let file = [folder.file("access.log", generated(20_000).as_bytes())];
    let policy = |limit: &str, when: Option<&str>| {
        let rule = Rule::new("per-address").key("{ip}").limit(limit);
        let rule = match when {
            Some(path) => rule.when("path", path),
            None => rule,
        };
        Policy::new([rule]).expect("rules")
    };
    let report = compared_report(&file, Some(policy("1/min", None)), Some(policy("1/min", Some("/login"))), 2);
    let compared = report.compared.as_ref().expect("compared");
    assert_eq!(compared.denied - compared.gained + compared.lost, compared.denied_with_other);
    assert!(compared.gaining.iter().any(|key| key.key == "203.0.113.7"), "the scraper never signs in");
    assert_eq!(report.no_rule.as_ref().expect("rules").requests, 0);
    let other = report_of(&file, Some(policy("1/min", Some("/login"))), 1);
    let no_rule = other.no_rule.expect("rules");
    assert!(no_rule.requests > 0 && no_rule.routes.iter().any(|one| one.route == "GET /products/{id}"), "{no_rule:?}");
}

#[test]
fn the_finding_tells_abuse_from_customers() {
    let folder = Folder::new();
    let file = [folder.file("access.log", generated(20_000).as_bytes())];
    let finding = |limit: &str| {
        let policy = Policy::new([Rule::new("per-address").key("{ip}").limit(limit)]).expect("rules");
        report_of(&file, Some(policy), 2).rules.remove(0).finding
    };
    use crate::finding::Kind;
    let abuse = finding("130/h");
    assert_eq!(abuse.kind, Kind::Abuse, "{}", abuse.sentence);
    assert!(abuse.sentence.contains("look") && abuse.sentence.contains("abuse"), "{}", abuse.sentence);
    let low = finding("1/day");
    assert_eq!(low.kind, Kind::TooLow, "{}", low.sentence);
    assert!(low.sentence.contains("in 24 hours") && low.sentence.contains("would have denied"), "{}", low.sentence);
    assert_eq!(finding("1000000/s").kind, Kind::Quiet);
}

/// A worker used to hand on the text of a route with the first line on it that it read. With one worker and two logs, that line could come later
/// than others on the same route, which were then counted as beyond the table of routes.
#[test]
fn routes_are_known_in_whatever_order_their_lines_are_read() {
    let folder = Folder::new();
    let line = |minute: u32, path: &str| {
        format!("10.0.0.1 - - [01/Jan/2026:00:{minute:02}:30 +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"x\"\n")
    };
    // The first log begins earlier, so it is read first; its last line is later than the second log.
    let first = line(0, "/first") + &line(5, "/both");
    let second = line(1, "/both") + &line(2, "/both");
    let files = [folder.file("a.log", first.as_bytes()), folder.file("b.log", second.as_bytes())];
    let report = report_of(&files, None, 1);
    let routes: Vec<(&str, u64)> = report.routes.iter().map(|one| (one.route.as_str(), one.requests)).collect();
    assert_eq!(routes, [("GET /both", 3), ("GET /first", 1)]);
    assert!(report.notes.iter().all(|note| !note.contains("did not fit")), "{:?}", report.notes);
}

/// Of a key that is not one of the busiest, only its denials were noted: "busiest minute 1" for a key that was denied at its eleventh request.
#[test]
fn a_denied_key_is_shown_with_the_rate_of_all_its_requests() {
    let folder = Folder::new();
    let line = |second: usize, ip: &str| {
        let time = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
        format!("{ip} - - [01/Jan/2026:{time} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n")
    };
    // Far more keys than there is room for among the busiest, each with more requests than the one that is denied.
    let mut log: String = (0..20).map(|_| line(0, "192.0.2.1")).collect();
    log.extend((0..30_000).map(|number| line(60 + number * 2, &format!("10.0.{}.{}", number % 4, number % 250))));
    let policy = Policy::new([Rule::new("per-address").key("{ip}").limit("10/min")]).expect("rules");
    let report = report_of(&[folder.file("access.log", log.as_bytes())], Some(policy), 2);
    let who = &report.rules[0].who;
    assert_eq!((who.len(), who[0].key.as_str(), who[0].requests), (1, "192.0.2.1", 10), "{who:?}");
    assert_eq!((who[0].denied, who[0].most), (10, [20, 20, 20]));
}
