//! Rules changed over HTTP: what is accepted, what is refused, and what happens when two callers change them at once.

use serde_json::{Value, json};

use super::world::*;

fn rule(name: &str, limit: &str) -> Value {
    json!({"name": name, "key": "global", "limit": limit})
}

#[test]
fn rules_are_made_changed_removed_and_restored() {
    let postgres = Postgres::start();
    let service = Instance::on(&postgres.url());
    let answer = service.ask("GET /v1/rules", "", "");
    assert_eq!((answer.status, answer.header("etag").as_deref()), (200, Some("\"0\"")), "{answer}");
    assert_eq!(service.get("/v1/rules"), json!({"rules": [], "source": "postgres", "version": 0}));

    let everything = json!({
        "name": "all/of:it@v1.0", "scope": "user", "when": {"plan": ["free", "trial"], "path": "/api/*", "beta": true},
        "key": "{user_id|ip}", "limit": "6,000/min", "burst": "9,000", "algorithm": "gcra", "lease": "auto",
        "cost": [{"when": {"method": "POST"}, "cost": 10}, {"cost": "units"}], "mode": "shadow",
        "on_store_failure": "closed", "deny": {"status": 403, "content_type": "text/html", "body": "<b>${rule}</b>"},
        "active": false, "description": "ten a second — \"bursts\"\nof fifty",
    });
    let (status, answer) = service.json("POST /v1/rules?as=ann&message=new", "", &everything);
    assert_eq!((status, answer), (201, json!({"version": 1, "changed": true})));
    let listed = service.get("/v1/rules")["rules"][0].clone();
    for (field, value) in everything.as_object().unwrap() {
        let normal = match field.as_str() {
            "limit" => json!("6000/min"),
            "burst" => json!(9_000),
            _ => value.clone(),
        };
        assert_eq!(listed[field], normal, "{field}");
    }
    let again = service.json("POST /v1/rules", "", &everything);
    assert_eq!((again.0, &again.1["field"]), (409, &json!("name")), "{}", again.1);

    let (status, answer) = service.json("PUT /v1/rules/all%2Fof:it@v1.0", "", &json!({"key": "{ip}", "limit": "1/s"}));
    assert_eq!((status, answer["version"].as_i64()), (200, Some(2)));
    let (_, answer) = service.json("PUT /v1/rules/all/of:it@v1.0", "", &json!({"key": "{ip}", "limit": "1/1s"}));
    assert_eq!(answer, json!({"version": 2, "changed": false}), "the same, written otherwise");
    assert_eq!(service.json("PUT /v1/rules/b", "", &rule("b", "2/s")).0, 200);
    assert_eq!(service.json("DELETE /v1/rules/all/of:it@v1.0?message=gone", "", &Value::Null).0, 200);
    assert_eq!(service.limit("b"), "2/s");
    let (status, problem) = service.json("DELETE /v1/rules/c", "", &Value::Null);
    assert!(status == 404 && problem["detail"].as_str().unwrap().contains("there is none named \"c\""), "{problem}");

    let (status, answer) = service.json("POST /v1/rules/rollback", "", &json!({"version": 1}));
    assert_eq!((status, answer["version"].as_i64()), (200, Some(5)));
    let mut back = service.get("/v1/rules")["rules"].clone();
    assert_eq!(back.as_array().unwrap().len(), 1);
    assert_eq!(back[0].take(), listed, "as at version 1");
    for (version, status) in [(json!(9), 404), (json!(0), 404), (json!(-1), 404), (json!("1"), 400), (json!(1.5), 400)]
    {
        assert_eq!(service.json("POST /v1/rules/rollback", "", &json!({"version": version})).0, status, "{version}");
    }

    let history = service.get("/v1/rules/history");
    let shown: Vec<String> = history["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or("-").to_string();
            format!("{} {} {} {}", one["version"], text("changed_by"), text("action"), text("message"))
        })
        .collect();
    let expected = [
        "5 admin token rollback -",
        "4 admin token delete gone",
        "3 admin token put -",
        "2 admin token put -",
        "1 ann (admin token) create new",
    ];
    assert_eq!(shown, expected);
    let change = &history["versions"][3]["changes"][0];
    assert_eq!(
        (&change["name"], &change["before"]["rate"], &change["after"]["rate"]),
        (&json!("all/of:it@v1.0"), &json!(6_000), &json!(1))
    );
    let page = service.get("/v1/rules/history?limit=1&before=3");
    assert_eq!((page["versions"].as_array().unwrap().len(), &page["versions"][0]["version"]), (1, &json!(2)));
    for query in ["limit=0", "limit=101", "limit=x", "before=0", "befor=1", "limit=1&limit=2"] {
        assert_eq!(service.json(&format!("GET /v1/rules/history?{query}"), "", &Value::Null).0, 400, "{query}");
    }
}

#[test]
fn bad_input_names_the_field_and_changes_nothing() {
    let postgres = Postgres::start();
    let service = Instance::on(&postgres.url());
    for (body, field, said) in [
        ("", "", "there is nothing here"),
        ("{", "", "this is not JSON"),
        ("[]", "", "must be an object, not a list"),
        (r#"{"name": "a", "key": "global"}"#, "limit", "is missing; send for example"),
        (r#"{"name": "a", "key": "global", "limit": "ten/s"}"#, "limit", "\"ten\" is not a whole number"),
        (r#"{"name": "a", "key": "global", "limit": "1/s", "limt": 1}"#, "limt", "did you mean `limit`?"),
        (r#"{"name": "a", "name": "a", "key": "global", "limit": "1/s"}"#, "name", "is given twice"),
        (r#"{"name": "a", "key": "global", "limit": "1/s", "when": {"x": "1", "x": "2"}}"#, "when.x", "is given twice"),
        (r#"{"name": "a", "key": "{ip", "limit": "1/s"}"#, "key", "{ is never closed"),
        (r#"{"name": "a b", "key": "global", "limit": "1/s"}"#, "name", "contains ' '"),
        (r#"{"name": "a", "key": "global", "limit": "1/s", "burst": 1.5}"#, "burst", "1.5 is not a whole number"),
        (r#"{"name": "a", "key": "global", "limit": "1/s", "mode": "shadows"}"#, "mode", "did you mean `shadow`?"),
        (
            r#"{"name": "a", "key": "global", "limit": "1/s", "deny": {"status": 200}}"#,
            "deny.status",
            "200 is not an error status",
        ),
        (r#"{"name": "a", "key": "global", "limit": "1/s", "description": "a\u0000b"}"#, "description", "NUL"),
    ] {
        let problem = service.ask("POST /v1/rules", "", body).problem(400);
        assert_eq!(problem["field"].as_str().unwrap_or_default(), field, "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{body}: {problem}");
    }
    let (status, problem) = service.json("PUT /v1/rules/b", "", &rule("a", "1/s"));
    assert_eq!((status, &problem["field"]), (400, &json!("name")), "{problem}");
    for request in
        ["POST /v1/rules?who=ann", "POST /v1/rules?as=a&as=b", &format!("POST /v1/rules?as={}", "x".repeat(300))]
    {
        assert_eq!(service.json(request, "", &rule("a", "1/s")).0, 400, "{request}");
    }
    for tag in ["x", "\"x\"", "W/\"1\"", "-1", "\"1", ""] {
        let (status, problem) = service.json("POST /v1/rules", &format!("if-match: {tag}\r\n"), &rule("a", "1/s"));
        assert_eq!((status, &problem["field"]), (400, &json!("If-Match")), "{tag}: {problem}");
    }
    let large = json!({"name": "a", "key": "global", "limit": "1/s", "description": "x".repeat(70_000)});
    assert_eq!(service.json("POST /v1/rules", "", &large).0, 413);
    assert_eq!(service.json("GET /v1/rules/a", "", &Value::Null).0, 405);
    assert_eq!(postgres.sql("select version from rate_limit_rule_head"), "0");
}

#[test]
fn without_the_token_nobody_sees_or_changes_rules() {
    let postgres = Postgres::start();
    let service = Instance::with(&postgres.url(), &["--admin-token", "open-sesame-open-sesame"]);
    for request in [
        "GET /v1/rules",
        "POST /v1/rules",
        "PUT /v1/rules/a",
        "DELETE /v1/rules/a",
        "GET /v1/rules/history",
        "POST /v1/rules/rollback",
    ] {
        for wrong in ["", "authorization: Bearer open-sesame-open\r\n"] {
            assert_eq!(service.json(request, wrong, &rule("a", "1/s")).0, 401, "{request}");
        }
    }
    let right = "authorization: Bearer open-sesame-open-sesame\r\n";
    assert_eq!(service.json("PUT /v1/rules/a?as=ann", right, &rule("a", "1/s")).0, 200);
    assert_eq!(postgres.sql("select changed_by from rate_limit_rule_version"), "ann (admin token)");
}

/// Two people look at version 1 and each changes it: the second gets an error, instead of undoing the first change.
#[test]
fn of_editors_who_have_seen_the_same_version_one_wins() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(1)]);
    let service = std::sync::Arc::new(Instance::on(&url));
    let editors: Vec<_> = (2..10)
        .map(|limit| {
            let service = service.clone();
            std::thread::spawn(move || {
                let body = rule("a", &format!("{limit}/day"));
                (limit, service.json("PUT /v1/rules/a", "if-match: \"1\"\r\n", &body))
            })
        })
        .collect();
    let answers: Vec<(i32, (u16, Value))> = editors.into_iter().map(|editor| editor.join().unwrap()).collect();
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, (status, _))| *status == 200);
    assert_eq!((won.len(), lost.len()), (1, 7), "{lost:?}");
    for (_, (status, problem)) in &lost {
        assert_eq!(*status, 412, "{problem}");
        let said = "you have read version 1, and they are now at version 2";
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
    }
    service.comes_to("a", &format!("{}/day", won[0].0));
    assert_eq!(service.json("PUT /v1/rules/a", "if-match: \"2\"\r\n", &rule("a", "99/day")).0, 200);
}

/// Concurrent changes without an expected version all succeed, and none is lost.
#[test]
fn editors_of_different_rules_wait_for_each_other() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let services = std::sync::Arc::new([Instance::on(&url), Instance::on(&url)]);
    let editors: Vec<_> = (0..16)
        .map(|number| {
            let services = services.clone();
            std::thread::spawn(move || {
                services[number % 2].json("POST /v1/rules", "", &rule(&format!("r{number}"), "1/s"))
            })
        })
        .collect();
    let mut versions: Vec<i64> = editors
        .into_iter()
        .map(|editor| {
            let (status, answer) = editor.join().unwrap();
            assert_eq!(status, 201, "{answer}");
            answer["version"].as_i64().unwrap()
        })
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=16).collect::<Vec<i64>>());
    for service in services.iter() {
        wait_until("all are there", || service.get("/v1/rules")["rules"].as_array().unwrap().len() == 16);
    }
}

/// An operator types `begin; update ...` by hand and leaves the transaction open.
#[test]
fn an_editor_who_never_ends_keeps_others_from_changing_and_nobody_from_reading() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(1)]);
    let service = Instance::on(&url);
    let port = postgres.port();
    let lunch = std::thread::spawn(move || {
        let psql = format!("psql -X -q -h 127.0.0.1 -p {port} -U tollkeeper limits");
        let script = format!("(echo 'begin; update rate_limit_rule set rate = 7;'; sleep 8) | {psql}");
        std::process::Command::new("sh").args(["-c", &script]).status().unwrap()
    });
    postgres.wait_for("select count(*) > 0 from pg_stat_activity where state = 'idle in transaction'", "t");
    let (status, problem) = service.json("PUT /v1/rules/b", "", &rule("b", "1/s"));
    assert_eq!(status, 503, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("somebody else is changing the rules"), "{problem}");
    assert_eq!(service.limit("a"), "1/day", "what is not committed is not there");
    assert_eq!(service.metric("tollkeeper_rules_database_up"), 1.0);
    lunch.join().unwrap();
    assert_eq!(service.json("PUT /v1/rules/b", "", &rule("b", "1/s")).0, 200);
}
