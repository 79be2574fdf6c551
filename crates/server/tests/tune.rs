//! `tollkeeper tune` as people run it: from a log to a rules file that `validate` accepts, rules tried on a log, and exit codes for CI.

use std::io::Write as _;
use std::process::Command;

use serde_json::Value;
use tollkeeper_testkit::{Folder, binary, file};

use crate::cli::{run, stderr, stdout};

fn sample(lines: &str) -> String {
    stdout(&run(&["tune", "--sample", lines], b""))
}

#[test]
fn a_log_becomes_a_rules_file_that_validate_accepts() {
    let folder = Folder::new();
    let rules = folder.path().join("rules.yaml").display().to_string();
    let log = sample("100000");
    let told = run(&["tune", "-", "--write", &rules], log.as_bytes());
    assert!(told.status.success(), "{}", stderr(&told));
    let text = stdout(&told);
    assert!(text.starts_with("format: combined\n"), "{text}");
    for part in
        ["By address", "Hours of the day", "GET /products/{id}", "scraper", "password guessing", "Suggested limits"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let valid = run(&["validate", &rules], b"");
    assert!(valid.status.success(), "{}", stderr(&valid));
    assert!(!stderr(&valid).contains("warning"), "{}", stderr(&valid));
    let again = run(&["tune", "-", "--write", &rules], log.as_bytes());
    assert_eq!(again.status.code(), Some(2), "an existing file stays");
    assert!(stderr(&again).contains("exists already"), "{}", stderr(&again));

    // Enforced, the suggestion stops the scraper and spares nearly everybody else.
    let enforced = file(&std::fs::read_to_string(&rules).unwrap().replace("mode: shadow", "mode: enforce"), "yaml");
    let tried = run(&["tune", "-", "-c", &enforced, "--json", "--max-denied-keys", "1%"], log.as_bytes());
    assert!(tried.status.success(), "{}", stderr(&tried));
    let report: Value = serde_json::from_str(&stdout(&tried)).unwrap();
    let rule = &report["rules"][0];
    assert_eq!(rule["rule"], "per-address");
    assert!(rule["who"].as_array().unwrap().iter().any(|key| key["key"] == "203.0.113.7"), "{}", rule["who"]);
    assert_eq!(rule["finding"]["kind"], "abuse", "{}", rule["finding"]);
}

#[test]
fn exit_codes_and_mistakes() {
    let log = file(&sample("5000"), "log");
    let strict = file("rules: [{name: strict, key: '{ip}', limit: 1/h}]", "yaml");
    let loose = file("rules: [{name: loose, key: '{ip}', limit: 1000/s}]", "yaml");
    let code = |args: &[&str]| run(args, b"").status.code().unwrap();
    assert_eq!(code(&["tune", &log, "-c", &strict]), 0, "a report is not a verdict");
    assert_eq!(code(&["tune", &log, "-c", &strict, "--max-denied-keys", "1%"]), 1);
    assert_eq!(code(&["tune", &log, "-c", &loose, "--max-denied-keys", "1%"]), 0);
    for (args, part) in [
        (vec!["tune", "no-such.log"], "no-such.log"),
        (vec!["tune", "/no-such-folder/*.log"], "no file matches"),
        (vec!["tune", &log, "--max-denied-keys", "1%"], "--config"),
        (vec!["tune", &log, "-c", &strict, "--write", "x.yaml"], "--config"),
        (vec!["tune", &log, "--format", "ngnix"], "not a known format"),
        (vec!["tune", &log, "--utc-offset", "2"], "+02:00"),
        (vec!["tune", &log, "--html", "/no-such-folder/x.html"], "/no-such-folder/x.html"),
        (vec!["tune", "no-such.log", "--write", &strict], "exists already"),
    ] {
        let output = run(&args, b"");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
    let unknown = run(&["tune", "-"], b"what is this\nand this\n");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr(&unknown).contains("no known format reads its first lines, such as \"what is this\""),
        "{}",
        stderr(&unknown)
    );
    let nothing = run(&["tune", "-"], b"");
    assert!(nothing.status.success() && stdout(&nothing).contains("no request"), "{}", stdout(&nothing));
    assert!(stdout(&nothing).starts_with("format: none, because nothing was found\n"), "{}", stdout(&nothing));
}

/// A pipeline passed when nothing had been tried: its log was empty or in another format. And `1` was taken for 100 %.
#[test]
fn a_pipeline_does_not_pass_by_reading_nothing() {
    let rules = file("rules: [{name: strict, key: '{ip}', limit: 1/h}]", "yaml");
    let tried = |log: &str, most: &str| {
        let output = run(&["tune", "-", "--format", "combined", "-c", &rules, "--max-denied-keys", most], log);
        (output.status.code(), stderr(&output))
    };
    for log in ["", "{\"at_us\": 1}\n"] {
        let (code, said) = tried(log, "1%");
        assert!(code == Some(2) && said.contains("no request was read, so nothing was tried"), "{said}");
    }
    let (code, said) = tried(&sample("100"), "1");
    assert!(code == Some(2) && said.contains("write 1% or 100%"), "{said}");
}

/// Logs are opened to detect their format. Those that were opened again to be read lost their first lines if they were pipes, such as
/// `<(zcat access.log.gz)`: without a word, up to 64 KiB in `tune` and 4 KiB in `replay`.
#[test]
fn pipes_are_read_from_their_first_line() {
    let rules = file("rules: [{name: per-address, key: '{ip}', limit: 10/h}]", "yaml");
    let log = sample("2000");
    let event = |at: u64| format!("{{\"at_us\": {at}, \"attributes\": {{\"ip\": \"192.0.2.1\"}}}}\n");
    let events: String = (0..50).map(event).collect();
    for input in [&log, &events] {
        let given = stdout(&run(&["tune", "-", "-c", &rules], input));
        assert_eq!(stdout(&run(&["tune", "/dev/stdin", "-c", &rules], input)), given);
        let decided = stdout(&run(&["replay", "-c", &rules], input));
        assert_eq!(decided.lines().count(), input.lines().count());
        for name in ["/dev/stdin", "-"] {
            assert_eq!(stdout(&run(&["replay", "-c", &rules, "--input", name], input)), decided, "{name}");
        }
    }
}

/// `replay` said nothing about a log that was cut off; nor did it name a folder, or say what to do about a format that it did not know.
#[test]
fn replay_says_what_it_cannot_read() {
    let rules = file("rules: [{name: per-address, key: '{ip}', limit: 10/h}]", "yaml");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(sample("3000").as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let cut = run(&["replay", "-c", &rules], &gzip[..gzip.len() / 2]);
    assert!(cut.status.success() && stdout(&cut).lines().count() > 1_000, "{}", stderr(&cut));
    assert!(stderr(&cut).contains("what came before it was read"), "{}", stderr(&cut));
    // A short log whose checksum is wrong: its first bytes, by which its format is found, are all of it.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(sample("100").as_bytes()).unwrap();
    let mut gzip = gzip.finish().unwrap();
    let checksum = gzip.len() - 8;
    gzip[checksum] ^= 1;
    let damaged = run(&["replay", "-c", &rules], &gzip);
    assert!(stdout(&damaged).lines().count() == 100, "{}", stdout(&damaged));
    assert!(stderr(&damaged).contains("what came before it was read"), "{}", stderr(&damaged));
    let folder = Folder::new();
    let name = folder.path().display().to_string();
    let output = run(&["replay", "-c", &rules, "--input", &name], "");
    assert!(stderr(&output).contains(&format!("{name} is a folder")), "{}", stderr(&output));
    let unknown = run(&["replay", "-c", &rules], "what is this\n");
    assert!(unknown.status.code() == Some(2) && stderr(&unknown).contains("--format"), "{}", stderr(&unknown));
}

/// The last report was lost when the next one could not even begin.
#[test]
fn a_report_stays_when_its_log_or_rules_cannot_be_read() {
    let page = file("the last report", "html");
    for args in [["tune", "no-such.log"], ["tune", &file("what is this", "log")]] {
        assert_eq!(run(&[&args[..], &["--html", &page]].concat(), "").status.code(), Some(2));
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "the last report");
    }
}

/// Addresses and API keys are personal or secret; a fingerprint without salt could be tried against all addresses there are.
#[test]
fn keys_are_fingerprints_where_they_are_secrets_or_it_is_asked_for() {
    let log = sample("3000") + "bad line with 203.0.113.7\n";
    let hidden = run(&["tune", "-", "--json", "--anonymise"], log.as_bytes());
    let text = stdout(&hidden);
    assert!(!text.contains("203.0.113.7") && text.contains("\"key-"), "{text}");
    let again = stdout(&run(&["tune", "-", "--json", "--anonymise"], log.as_bytes()));
    let first = |text: &str| serde_json::from_str::<Value>(text).unwrap()["clients"][0]["busiest"][0]["key"].clone();
    assert_ne!(first(&text), first(&again), "salted for each run");

    let line = |second: u32, key: &str| {
        format!("192.0.2.1 [2026-01-01T00:00:{second:02}Z] \"GET /x HTTP/1.1\" 200 \"{key}\"\n")
    };
    let log: String =
        (0..60).map(|second| line(second, if second % 3 == 0 { "secret-a" } else { "secret-b" })).collect();
    let format = r#"$remote_addr [$time_iso8601] "$request" $status "$http_x_api_key""#;
    let told = run(&["tune", "-", "--json", "--format", format], log.as_bytes());
    let text = stdout(&told);
    assert!(!text.contains("secret-a") && text.contains("sha256:"), "{text}{}", stderr(&told));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["clients"][1]["name"], "header.x-api-key");
    assert_eq!(report["clients"][1]["keys"], 2);
}

/// What identifies clients in the file of `--compare` was once taken for a plain name, and API keys were shown.
#[test]
fn a_secret_of_the_other_rules_is_a_fingerprint_too() {
    let plain = file("rules: [{name: per-address, key: '{ip}', limit: 100/s}]", "yaml");
    let keyed = file(
        "identify: {customer: header.x-api-key}\nrules: [{name: per-customer, key: '{customer}', limit: 1/h}]",
        "yaml",
    );
    let line =
        r#"{"ts":1767225600,"remote_ip":"192.0.2.1","method":"GET","uri":"/","status":200,"http_x_api_key":"hunter2"}"#;
    let log = format!("{line}\n").repeat(3);
    let told = run(&["tune", "-", "-c", &plain, "--compare", &keyed, "--json"], log.as_bytes());
    let text = stdout(&told);
    assert!(text.contains("sha256:") && !text.contains("hunter2"), "{text}{}", stderr(&told));
}

/// `header.x-user` and `cookie.user` were once both `per-user`, which no rules file may have twice, and a name with a `|` in it was two.
#[test]
fn suggested_rules_are_valid_whatever_a_log_calls_its_fields() {
    let folder = Folder::new();
    let rules = folder.path().join("rules.yaml").display().to_string();
    let format = r#"$remote_addr [$time_iso8601] "$request" $status "$http_x_user" "$cookie_user""#;
    let line = |second: u32| {
        format!(
            "192.0.2.{second} [2026-01-01T00:00:{second:02}Z] \"GET / HTTP/1.1\" 200 \"ann{second}\" \"c{second}\"\n"
        )
    };
    let log: String = (0..60).map(line).collect();
    let told = run(&["tune", "-", "--format", format, "--write", &rules], log.as_bytes());
    assert!(told.status.success(), "{}", stderr(&told));
    let written = std::fs::read_to_string(&rules).unwrap();
    assert!(written.contains("name: per-user\n") && written.contains("name: per-user-2\n"), "{written}");

    let events: String = (0..60)
        .map(|second| {
            format!(
                "{{\"at_us\":1{second:02}000000,\"attributes\":{{\"ip\":\"192.0.2.{second}\",\"user|x}}\":\"1\"}}}}\n"
            )
        })
        .collect();
    let odd = folder.path().join("odd.yaml").display().to_string();
    let told = run(&["tune", "-", "--write", &odd], events.as_bytes());
    assert!(told.status.success(), "{}", stderr(&told));
    assert!(run(&["validate", &odd], b"").status.success());
}

/// What is drawn in a terminal of this size, with its control sequences.
fn drawn(rows: u32, columns: u32, args: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tune/terminal.py");
    let size = [rows, columns].map(|number| number.to_string());
    let output = Command::new("python3").arg(script).args(size).arg(binary()).args(args).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

#[test]
fn a_terminal_gets_a_progress_bar_and_a_screen_in_colour() {
    let log = file(&sample("60000"), "log");
    let rules = file(
        "rules:
  - { name: per-address, key: '{ip}', limit: 20/min, burst: 10 }
  - { name: login, key: '{ip}', limit: 5/min, when: { path: /login } }
  - { name: everybody, key: global, limit: 5000/s }",
        "yaml",
    );
    for args in [vec!["tune", &log], vec!["tune", &log, "-c", &rules]] {
        let text = drawn(60, 140, &args);
        for part in [" lines, ", "/s  ", " left", "MiB"] {
            assert!(text.contains(part), "{part:?} of the progress bar is missing in {text}");
        }
        let summary = &text[text.find("format: ").expect("a summary")..];
        assert!(summary.contains("\u{1b}[1m") && summary.contains("\u{1b}[31mscraper\u{1b}[0m"), "{summary}");
        let lines = summary.lines().count();
        assert!(lines <= 60, "{lines} lines do not fit a screen:\n{summary}");
    }
}

#[test]
fn rules_see_what_the_configuration_names() {
    let rules = file(
        "identify: {user_id: header.x-user-id}
rules:
  - {name: per-user, key: '{user_id}', limit: 2/min, when: {path: /x}}
  - {name: slots, key: '{ip}', limit: '3', algorithm: concurrency}",
        "yaml",
    );
    let events: String = (0..10)
        .map(|second| {
            let user = if second % 2 == 0 { "ann" } else { "bob" };
            format!("{{\"ts\":{},\"remote_ip\":\"192.0.2.1\",\"method\":\"GET\",\"uri\":\"/x?{second}\",\"status\":200,\"http_x_user_id\":\"{user}\"}}\n", 1_767_225_600 + second)
        })
        .collect();
    let told = run(&["tune", "-", "-c", &rules, "--json"], events.as_bytes());
    let report: Value = serde_json::from_str(&stdout(&told)).unwrap_or_else(|_| panic!("{}", stderr(&told)));
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["keys"]["keys"], &rule["denied"], &rule["keys_denied"]),
        (&2.into(), &6.into(), &2.into()),
        "{rule}"
    );
    assert_eq!(report["denied"], 6);
    assert!(report["notes"].to_string().contains("a concurrency limit cannot be tried"), "{}", report["notes"]);
    let text = stdout(&run(&["tune", "-", "-c", &rules, "--compare", &rules], events.as_bytes()));
    assert!(text.contains("With the other rules: 6 denied instead of 6"), "{text}");
}

#[test]
fn replay_reads_access_logs_and_sums_up() {
    let log = file(&sample("3000"), "log");
    let rules = file("rules: [{name: per-address, key: '{ip}', limit: 10/h}]", "yaml");
    let lines = stdout(&run(&["replay", "-c", &rules, "--input", &log], b""));
    assert_eq!(lines.lines().count(), 3_000);
    let decided: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(decided.is_sorted_by_key(|line| line["at_us"].as_u64().unwrap()));
    let denied = decided.iter().filter(|line| line["allowed"] == false).count();
    let piped = stdout(&run(&["replay", "-c", &rules], std::fs::read(&log).unwrap().as_slice()));
    assert_eq!(piped, lines, "from standard input too");
    let told = stdout(&run(&["replay", "-c", &rules, "--input", &log, "--summary"], b""));
    let expected = tollkeeper_tune::words::counted(denied as u64, "request");
    assert!(told.contains(&format!("These rules would have denied {expected}")), "{denied}: {told}");

    let event = |at: u64| format!("{{\"at_us\": {at}, \"attributes\": {{\"ip\": \"192.0.2.1\"}}}}\n");
    let events: String = (0..12).map(|second| event(second * 1_000_000)).collect();
    let told = stdout(&run(&["replay", "-c", &rules, "--summary"], events.as_bytes()));
    assert!(told.starts_with("format: tollkeeper replay\n") && told.contains("denied 2 requests"), "{told}");
}

/// Logs in JSON without a field that begins with `time` or is called `ts` were once taken for events, and refused.
#[test]
fn replay_reads_every_format_that_tune_reads() {
    let rules = file("rules: [{name: per-address, key: '{ip}', limit: 1/h}]", "yaml");
    for (line, format) in [
        (
            r#"{"start_time":"2026-01-01T00:00:00Z","method":"GET","path":"/p","response_code":200,"response_flags":"-","x_forwarded_for":"192.0.2.1"}"#,
            "envoy json",
        ),
        (
            r#"{"ClientIP":"192.0.2.1","ClientRequestURI":"/a","EdgeResponseStatus":200,"EdgeStartTimestamp":1767225600000000000}"#,
            "cloudflare",
        ),
        (
            r#"{"@timestamp":"2026-01-01T00:00:00Z","remote_addr":"192.0.2.1","request":"GET / HTTP/1.1","status":"200"}"#,
            "json",
        ),
        (
            r#"{"id":1,"at":"2026-01-01T00:00:00Z","rule":"x","key":"192.0.2.1","user_id":null,"ip":"192.0.2.1","endpoint":"GET /","retry_after_ms":5,"count":1,"mode":"enforce"}"#,
            "tollkeeper violations",
        ),
        (r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#, "common"),
    ] {
        let log = format!("{line}\n{line}\n");
        let told = run(&["replay", "-c", &rules], log.as_bytes());
        let lines = stdout(&told);
        let allowed: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["allowed"].clone()).collect();
        assert_eq!(allowed, [true, false], "{format}: {}", stderr(&told));
        let summary = stdout(&run(&["tune", "-", "-c", &rules], log.as_bytes()));
        assert!(
            summary.starts_with(&format!("format: {format}\n")) && summary.contains("denied 1 request"),
            "{summary}"
        );
    }
    // Times that name no zone.
    let line =
        "192.0.2.1:5 [01/Jan/2026:02:00:00.000] in b/s 0/0/1/2/3 200 5 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"\n";
    let told = stdout(&run(&["replay", "-c", &rules, "--utc-offset", "+02:00"], line.as_bytes()));
    assert!(told.starts_with("{\"at_us\":1767225600000000,"), "{told}");
    let mistaken = run(&["replay", "-c", &rules], br#"{"at": 3, "attributes": {}}"#);
    assert!(stderr(&mistaken).contains("at_us"), "an event with a mistake: {}", stderr(&mistaken));
}

#[test]
fn violations_count_as_many_requests_as_they_stand_for() {
    let line = |second: u32, count: u32| {
        format!(
            "{{\"id\":{second},\"at\":\"2026-01-01T00:00:{second:02}.000Z\",\"rule\":\"login\",\"key\":\"192.0.2.1\",\"user_id\":null,\"ip\":\"192.0.2.1\",\"endpoint\":\"POST /login\",\"cost\":1,\"remaining\":0,\"retry_after_ms\":900,\"count\":{count},\"shadow\":false,\"mode\":\"enforce\",\"blocked\":null,\"instance\":\"a:1\"}}\n"
        )
    };
    let log = line(0, 1) + &line(1, 50) + &line(2, 4_000_000_000);
    let told = run(&["tune", "-", "--json"], log.as_bytes());
    let report: Value = serde_json::from_str(&stdout(&told)).unwrap_or_else(|_| panic!("{}", stderr(&told)));
    assert_eq!((&report["read"]["requests"], &report["read"]["unreadable"]), (&51.into(), &1.into()));
    assert_eq!(report["routes"][0]["route"], "POST /login");
    let reason = report["read"]["first_unreadable"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("4000000000 requests"), "{reason}");
}

#[test]
fn simulated_clients_react_to_rules() {
    let folder = Folder::new();
    let svg = folder.path().join("picture.svg").display().to_string();
    let told = run(&["simulate", "--json", "--svg", &svg], b"");
    assert!(told.status.success(), "{}", stderr(&told));
    let report: Value = serde_json::from_str(&stdout(&told)).unwrap();
    let group =
        |name: &str| report["groups"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
    let served = |name: &str| group(name)["served"].as_f64().unwrap() / group(name)["wanted"].as_f64().unwrap();
    assert!(served("people") > 0.98 && served("app") > 0.9, "{} {}", served("people"), served("app"));
    assert!(served("scraper") < 0.5, "{}", served("scraper"));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("scraper"));
    let text = stdout(&run(&["simulate"], b""));
    assert!(text.contains("scraper") && text.contains("per-address"), "{text}");

    let printed = stdout(&run(&["simulate", "--print-default"], b""));
    let same = file(&printed, "yaml");
    assert!(run(&["simulate", &same], b"").status.success());
    let wrong = file(&printed.replace("rate: 6/min", "rat: 6/min"), "yaml");
    let refused = run(&["simulate", &wrong], b"");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("rat"), "{}", stderr(&refused));
}
