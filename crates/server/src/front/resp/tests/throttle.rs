//! `CL.THROTTLE` against answers computed by hand from redis-cell's definition: a bucket of `max_burst + 1`, a token
//! every `period / count` seconds, waits in whole seconds rounded up.

use super::*;

/// At this many milliseconds: a command, and its five numbers.
type Case = (u64, &'static str, [i64; 5]);

async fn plays(cases: &[Case]) {
    let gate = gate().await;
    let mut client = gate.connect().await;
    let mut now = 0;
    for (at_ms, words, [limited, limit, remaining, retry_after, reset_after]) in cases {
        gate.clock.advance(Span::from_micros((at_ms - now) * 1_000));
        now = *at_ms;
        let answer = format!("*5 :{limited} :{limit} :{remaining} :{retry_after} :{reset_after} ");
        client.line(&format!("CL.THROTTLE {words}"), &answer).await;
    }
}

#[tokio::test]
async fn as_in_the_readme_of_redis_cell() {
    // 30 a minute is one every 2 s, and 16 at once.
    plays(&[
        (0, "user123 15 30 60 1", [0, 16, 15, -1, 2]),
        (0, "user123 15 30 60", [0, 16, 14, -1, 4]),
        (0, "user123 15 30 60 14", [0, 16, 0, -1, 32]),
        (0, "user123 15 30 60 1", [1, 16, 0, 2, 32]),
        (0, "user123 15 30 60 16", [1, 16, 0, 32, 32]),
        (1, "user123 15 30 60 1", [1, 16, 0, 2, 32]),
        (1_000, "user123 15 30 60 1", [1, 16, 0, 1, 31]),
        (1_001, "user123 15 30 60 1", [1, 16, 0, 1, 31]),
        (1_999, "user123 15 30 60 1", [1, 16, 0, 1, 31]),
        (2_000, "user123 15 30 60 1", [0, 16, 0, -1, 32]),
        (34_000, "user123 15 30 60 0", [0, 16, 16, -1, 0]),
    ])
    .await;
}

/// redis-cell's own test cases: five at once, one a second.
#[tokio::test]
async fn one_a_second() {
    plays(&[
        (0, "foo 4 1 1 6", [1, 5, 5, -1, 0]),
        (0, "foo 4 1 1 1", [0, 5, 4, -1, 1]),
        (0, "foo 4 1 1 1", [0, 5, 3, -1, 2]),
        (0, "foo 4 1 1 1", [0, 5, 2, -1, 3]),
        (0, "foo 4 1 1 1", [0, 5, 1, -1, 4]),
        (0, "foo 4 1 1 1", [0, 5, 0, -1, 5]),
        (0, "foo 4 1 1 1", [1, 5, 0, 1, 5]),
        (3_000, "foo 4 1 1 1", [0, 5, 2, -1, 3]),
        (3_100, "foo 4 1 1 1", [0, 5, 1, -1, 4]),
        (4_000, "foo 4 1 1 1", [0, 5, 1, -1, 4]),
        (8_000, "foo 4 1 1 1", [0, 5, 4, -1, 1]),
        (9_500, "foo 4 1 1 1", [0, 5, 4, -1, 1]),
        (9_500, "foo 4 1 1 0", [0, 5, 4, -1, 1]),
        (9_500, "foo 4 1 1 2", [0, 5, 2, -1, 3]),
        (9_500, "foo 4 1 1 5", [1, 5, 2, 3, 3]),
    ])
    .await;
}

/// Three in ten seconds: a token takes 3.333... s.
#[tokio::test]
async fn a_rate_that_does_not_divide_a_second() {
    plays(&[
        (0, "k 0 3 10", [0, 1, 0, -1, 4]),
        (3_333, "k 0 3 10", [1, 1, 0, 1, 1]),
        (3_334, "k 0 3 10", [0, 1, 0, -1, 4]),
        (3_334, "other 2 3 10 3", [0, 3, 0, -1, 10]),
        (3_334, "other 2 3 10", [1, 3, 0, 4, 10]),
        // Full again at 13.334 s, so 4.234 s are owed, and 7.567 s with one more.
        (9_100, "other 2 3 10", [0, 3, 0, -1, 8]),
        // 7.567 + 3.333 - 10 = 0.9 s too many.
        (9_100, "other 2 3 10", [1, 3, 0, 1, 8]),
        (9_100, "other 2 3 10 2", [1, 3, 0, 5, 8]),
    ])
    .await;
}

/// Waits are whole seconds rounded up, however short.
#[tokio::test]
async fn less_than_a_second_is_one() {
    plays(&[
        (0, "fast 0 1000 1", [0, 1, 0, -1, 1]),
        (0, "fast 0 1000 1", [1, 1, 0, 1, 1]),
        (1, "fast 0 1000 1", [0, 1, 0, -1, 1]),
        (2, "fast 0 1000 1 0", [0, 1, 1, -1, 0]),
    ])
    .await;
}

#[tokio::test]
async fn a_key_with_other_numbers_is_the_same_bucket() {
    plays(&[
        (0, "k 9 1 1 5", [0, 10, 5, -1, 5]),
        // The bucket is full again at 5 s, whatever its size: of 20 tokens 15 are there,
        (0, "k 19 1 1 0", [0, 20, 15, -1, 5]),
        // of 5 none, and at twice the rate 5 s are 10 tokens.
        (0, "k 4 1 1", [1, 5, 0, 1, 5]),
        (0, "k 4 1 1 0", [0, 5, 0, -1, 5]),
        // Of 3 none, and two more are owed.
        (0, "k 2 1 1 0", [1, 3, 0, 2, 5]),
        (0, "k 11 2 1 0", [0, 12, 2, -1, 5]),
        (1_000, "k 4 1 1", [0, 5, 0, -1, 5]),
    ])
    .await;
}

#[tokio::test]
async fn what_cannot_be_a_quota_is_refused_in_the_words_of_redis_cell() {
    let gate = gate().await;
    let usage =
        "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>] ";
    for (words, answer) in [
        ("", usage),
        ("k 1 1", usage),
        ("k 1 1 1 1 1", usage),
        ("k x 1 1", "-Cell error: Store error: Couldn't parse as integer: x "),
        ("k 1 1.5 1", "-Cell error: Store error: Couldn't parse as integer: 1.5 "),
        ("k 1 1 1 9223372036854775808", "-Cell error: Store error: Couldn't parse as integer: 9223372036854775808 "),
        ("k 1 0 1", "-Cell error: Store error: Zero rates are not supported "),
        ("k 1 1 0", "-Cell error: Store error: Zero rates are not supported "),
        ("k -1 1 1", "-ERR max_burst -1 is not between 0 and 4294967293 "),
        ("k 1 -1 1", "-ERR count -1 is not between 1 and 4294967294 "),
        ("k 1 1 -1", "-ERR period -1 is not between 1 and 2251799813 "),
        ("k 1 1 9223372036854775807", "-ERR period 9223372036854775807 is not between 1 and 2251799813 "),
        ("k 9223372036854775807 1 1", "-ERR max_burst 9223372036854775807 is not between 0 and 4294967293 "),
        ("k 4294967293 1 60", "-ERR burst 4294967294 at 1/1min is too large to count exactly; lower the burst "),
        ("k 1 1 1 -1", "-ERR quantity -1 is negative; tokens cannot be returned "),
    ] {
        assert_eq!(gate.ask(format!("CL.THROTTLE {words}\r\n")).await, answer, "{words}");
    }
    // An absurdly large quantity is just never granted.
    assert_eq!(gate.ask("CL.THROTTLE k 1 1 1 9223372036854775807\r\n").await, "*5 :1 :2 :2 :-1 :0 ");
}

/// Keys are bytes: a key that is not text is not confused with the text that represents it.
#[tokio::test]
async fn no_two_keys_share_a_bucket() {
    let gate = gate().await;
    let keys: [&[u8]; 7] = [b"\xff\x00", b"ff00", b"\xff", b"\xef\xbf\xbd", b"", b"\0", b"a b"];
    for key in keys {
        let fresh = gate.ask(command(&[b"CL.THROTTLE", key, b"0", b"1", b"60"])).await;
        assert_eq!(fresh, "*5 :0 :1 :0 :-1 :60 ", "{key:?}");
    }
}

/// A rules file may name a rule as it likes.
#[tokio::test]
async fn a_rule_of_that_name_is_another() {
    let rule = json!({ "name": "cl.throttle", "key": "{key}", "limit": "1/min" });
    let gate = open(&[rule], 1_000, Limits::default(), None).await;
    gate.ask("TOLLKEEPER.CHECK key k\r\n").await;
    assert_eq!(gate.ask("CL.THROTTLE k 0 1 60\r\n").await, "*5 :0 :1 :0 :-1 :60 ");
}

/// New keys with the same numbers share what 64 keys would get, instead of passing or failing all.
#[tokio::test]
async fn new_keys_share_buckets_when_the_store_is_full() {
    let gate = open(&[], 1, Limits::default(), None).await;
    let many: String = (0..2_000).map(|n| format!("CL.THROTTLE k{n} 0 1 60\r\n")).collect();
    let answers = gate.ask(many).await;
    assert_eq!(answers.matches("*5 :0 :1 :0 :-1 :60 ").count(), 1 + 64, "{answers}");
    assert_eq!(answers.matches("*5 :1 :1 :0 :60 :60 ").count(), 2_000 - 65, "{answers}");
}

/// Where even these have no room, because callers bring endless numbers, it is an error: no limit was reached.
#[tokio::test]
async fn a_full_store_is_an_error_and_no_denial() {
    let gate = open(&[], 1, Limits::default(), None).await;
    let mut answers = String::new();
    for batch in 0..20 {
        let many: String = (0..1_000).map(|n| format!("CL.THROTTLE k{n} {} 1 60\r\n", batch * 1_000 + n)).collect();
        answers += &gate.ask(many).await;
    }
    assert!(answers.contains("-OOM the memory store is full"), "{}", &answers[answers.len() - 500..]);
    assert!(!answers.contains("*5 :1"), "no limit was reached");
}

/// Groups of such errors counted as requests that lack what the rules need: every fifth request was said to lack `path`.
#[tokio::test]
async fn an_error_is_no_request_without_a_rule() {
    let rule = json!({"name": "login", "key": "{user}", "limit": "5/min", "when": {"path": "/login"}});
    let gate = open(&[rule], 1, Limits::default(), None).await;
    for batch in 0..20 {
        gate.ask((0..1_000).map(|n| format!("CL.THROTTLE k{n} {} 1 60\r\n", batch * 1_000 + n)).collect::<String>())
            .await;
    }
    gate.ask("TOLLKEEPER.CHECK user 42 path /other\r\n".repeat(30_000)).await;
    let Service { observer, limiter, metrics, .. } = &*gate.service;
    let report = serde_json::to_value(observer.report(limiter, metrics)).expect("JSON");
    let finding = report["findings"].as_array().and_then(|all| all.iter().find(|finding| finding["kind"] == "no_rule"));
    assert_eq!(finding.expect("30,000 of 50,000")["evidence"]["lacking"], json!([]));
}

#[tokio::test]
async fn whoever_is_limited_is_in_the_audit_and_among_the_hot_keys() {
    let gate = gate().await;
    gate.ask("CL.THROTTLE user:42 1 30 60\r\n".repeat(5)).await;
    let Service { observer, limiter, metrics, .. } = &*gate.service;
    let (page, source) = observer.violations(limiter, metrics, &Default::default()).await.expect("an answer");
    let denied: Vec<&str> = page.violations.iter().map(|one| one.key.as_str()).collect();
    assert_eq!((denied, source), (vec!["user:42"; 3], "memory"));
    let report = serde_json::to_value(observer.report(limiter, metrics)).expect("JSON");
    let rule = &report["rules"][0];
    assert_eq!((&rule["name"], &rule["denied"]), (&json!("(cl.throttle)"), &json!(3)));
    assert_eq!(rule["hot_by_traffic"][0], json!({"key": "user:42", "count": 5, "error": 0}));
}

/// `MULTI; CL.THROTTLE ...; EXEC`, which is how redis-py sends every pipeline by default, gave two errors and took a token.
#[tokio::test]
async fn a_transaction_is_executed_by_exec_or_not_at_all() {
    let gate = gate().await;
    let throttle = "CL.THROTTLE k 1 1 60\r\n";
    let executed = gate.ask(format!("MULTI\r\n{throttle}PING\r\n{throttle}EXEC\r\n")).await;
    let answers = "+OK +QUEUED +QUEUED +QUEUED *3 *5 :0 :2 :1 :-1 :60 +PONG *5 :0 :2 :0 :-1 :120 ";
    assert_eq!(executed, answers);

    let refused = gate.ask("MULTI\r\nCL.THROTTLE other 1 1 60\r\nCL.THROTTLE other 1 x 60\r\nNOSUCH\r\nEXEC\r\n").await;
    assert!(refused.starts_with("+OK +QUEUED -"), "{refused}");
    assert!(refused.ends_with("-EXECABORT Transaction discarded because of previous errors. "), "{refused}");
    let discarded = gate.ask("MULTI\r\nCL.THROTTLE other 1 1 60\r\nDISCARD\r\nEXEC\r\n").await;
    assert_eq!(discarded, "+OK +QUEUED +OK -ERR EXEC without MULTI ");
    assert_eq!(gate.ask("CL.THROTTLE other 1 1 60 0\r\n").await, "*5 :0 :2 :2 :-1 :0 ", "nothing was charged");

    // An invalid EXEC or a HELLO left the transaction in force, and it charged.
    for odd in ["EXEC x", "HELLO 9", "AUTH", "CLIENT SETNAME early", "WATCH k"] {
        let refused = gate.ask(format!("MULTI\r\nCL.THROTTLE odd 1 1 60\r\n{odd}\r\nEXEC\r\n")).await;
        assert!(refused.ends_with("-EXECABORT Transaction discarded because of previous errors. "), "{odd}: {refused}");
    }
    assert_eq!(gate.ask("CL.THROTTLE odd 1 1 60 0\r\n").await, "*5 :0 :2 :2 :-1 :0 ", "nothing was charged");

    let nested = gate.ask("WATCH k\r\nMULTI\r\nMULTI\r\nEXEC\r\nDISCARD\r\n").await;
    assert_eq!(nested, "+OK +OK -ERR MULTI calls can not be nested *0 -ERR DISCARD without MULTI ");
}

#[tokio::test]
async fn a_transaction_has_a_bound() {
    let gate = gate().await;
    let answers = gate.ask(format!("MULTI\r\n{}EXEC\r\n", "PING\r\n".repeat(1_025))).await;
    let refused = "-ERR a transaction has at most 1024 commands and 256 KiB";
    assert!(answers.contains(refused), "{answers}");
    assert!(answers.ends_with("-EXECABORT Transaction discarded because of previous errors. "), "{answers}");
    // Each of these fits, and a client could keep hundreds of them in memory.
    let large = format!("ECHO {}\r\n", "x".repeat(60_000)).repeat(5);
    let answers = gate.ask(format!("MULTI\r\n{large}PING\r\nEXEC\r\n")).await;
    assert_eq!(
        answers,
        format!(
            "+OK {}{refused} {refused} -EXECABORT Transaction discarded because of previous errors. ",
            "+QUEUED ".repeat(4)
        )
    );
}

#[tokio::test]
async fn del_resets_a_bucket() {
    let gate = gate().await;
    gate.ask("CL.THROTTLE a 0 1 60\r\nCL.THROTTLE b 0 1 60\r\n").await;
    assert_eq!(gate.ask("DEL a b c\r\n").await, ":2 ");
    assert_eq!(gate.ask("CL.THROTTLE a 0 1 60\r\n").await, "*5 :0 :1 :0 :-1 :60 ");
    assert_eq!(gate.ask("DEL\r\n").await, "-ERR wrong number of arguments for 'del' command ");
}

/// A connection keeps its last charge for the next command.
#[tokio::test]
async fn nothing_of_a_command_is_left_in_the_next_one() {
    let gate = gate().await;
    let long = [b'k'; 2_000];
    type Case<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a str);
    let cases: [Case; 8] = [
        (b"a longer key", b"9", b"3", ":0 :10 :7 :-1 :180"),
        (b"a", b"9", b"1", ":0 :10 :9 :-1 :60"),
        // Not text: kept as `ff`, apart from the text `ff`.
        (b"\xff", b"9", b"2", ":0 :10 :8 :-1 :120"),
        (b"ff", b"9", b"1", ":0 :10 :9 :-1 :60"),
        (&long, b"9", b"4", ":0 :10 :6 :-1 :240"),
        (b"b", b"4", b"0", ":0 :5 :5 :-1 :0"),
        (b"a", b"9", b"0", ":0 :10 :9 :-1 :60"),
        (b"\xff", b"9", b"1", ":0 :10 :7 :-1 :180"),
    ];
    let pipeline = cases.map(|(key, burst, quantity, _)| command(&[b"CL.THROTTLE", key, burst, b"1", b"60", quantity]));
    let answers = cases.map(|(.., numbers)| format!("*5 {numbers} "));
    assert_eq!(gate.ask(pipeline.concat()).await, answers.concat());
}

/// A connection compares the numbers of a command with those of the last one as they are written.
#[tokio::test]
async fn numbers_may_be_written_in_several_ways() {
    let gate = gate().await;
    let zeros = "0".repeat(40);
    let throttle = |burst: &str| format!("CL.THROTTLE \"a\" \"{burst}\" 1 60 0\r\n");
    let same = ":0 :10 :10 :-1 :0 ";
    let bursts = [("9", same), ("09", same), (&format!("{zeros}9"), same), (&format!("{zeros}4"), ":0 :5 :5 :-1 :0 ")];
    for (burst, expected) in bursts {
        assert_eq!(gate.ask(throttle(burst).repeat(2)).await, format!("*5 {expected}").repeat(2), "{burst}");
    }
    // On one connection.
    let pipeline: String = bursts.iter().rev().map(|(burst, _)| throttle(burst)).collect();
    let expected: String = bursts.iter().rev().map(|(_, expected)| format!("*5 {expected}")).collect();
    assert_eq!(gate.ask(pipeline).await, expected);
    let unread = gate.ask([throttle("9"), throttle("")].concat()).await;
    assert!(unread.starts_with(&format!("*5 {same}-Cell error")), "{unread}");
}
