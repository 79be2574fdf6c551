//! `TOLLKEEPER.CHECK` over rules.

use super::*;

fn rules() -> Vec<Value> {
    vec![
        json!({ "name": "everybody", "key": "global", "limit": "100/s" }),
        json!({ "name": "user", "scope": "user", "key": "{user_id}", "limit": "2/min" }),
        json!({ "name": "paced", "key": "{queue}", "limit": "10/s", "burst": 5, "algorithm": "leaky_bucket" }),
        json!({ "name": "slots", "key": "{tenant}", "limit": "1", "algorithm": "concurrency" }),
        json!({ "name": "priced", "key": "{tenant}", "limit": "10/s", "cost": "tokens", "when": { "plan": "paid" } }),
    ]
}

async fn gate() -> Gate {
    open(&rules(), 1_000, Limits::default(), None).await
}

#[tokio::test]
async fn a_verdict_by_position_and_by_name() {
    let gate = gate().await;
    let everybody = |remaining| format!("*11 $9 everybody $6 global :1 :100 :{remaining} :0 :10 :0 :0 $-1 $-1 ");
    let user = |allowed, remaining, retry, reset| {
        format!("*11 $4 user $2 42 :{allowed} :2 :{remaining} :{retry} :{reset} :0 :0 $4 user $-1 ")
    };
    let mut client = gate.connect().await;
    let row = user(1, 0, 0, 60_000);
    client
        .line(
            "TOLLKEEPER.CHECK user_id 42 COST 2",
            &format!("*7 :1 $-1 :0 :0 $5 store {}{row}", everybody(98).replace(":10 ", ":20 ")),
        )
        .await;
    let row = user(0, 0, 30_000, 60_000);
    let denied = format!("*7 :0 $4 user :30000 :0 $5 store {}{row}", everybody(98).replace(":10 ", ":20 "));
    client.line("tollkeeper.check user_id 42", &denied).await;
    let never = gate.ask("TOLLKEEPER.CHECK user_id 42 COST 3\r\n").await;
    assert!(never.starts_with("*7 :0 $4 user :-1 :0 "), "{never}");
    let named = gate.ask("HELLO 3\r\nTOLLKEEPER.CHECK user_id 42 cost 3\r\n").await;
    let named = &named[named.find("%6").expect("a map")..];
    assert!(named.starts_with("%6 $7 allowed #f $8 limiting $4 user $14 retry_after_ms _ $8 delay_ms :0 "), "{named}");
    assert!(named.contains("$5 rules *2 %11 $4 rule $9 everybody $3 key $6 global $7 allowed #t "), "{named}");
}

#[tokio::test]
async fn turns_and_slots_are_reported() {
    let gate = gate().await;
    let paced = gate.ask("TOLLKEEPER.CHECK queue q\r\nTOLLKEEPER.CHECK queue q\r\n").await;
    assert!(paced.contains("*7 :1 $-1 :0 :100 $5 store "), "{paced}");
    let slot = gate.ask("TOLLKEEPER.CHECK tenant acme\r\n").await;
    // The last part is a seal, which nobody else can make.
    assert!(slot.contains("$53 0.1767225600000000.0."), "{slot}");
}

#[tokio::test]
async fn no_rule_and_no_attributes_pass() {
    let gate = open(&[], 10, Limits::default(), None).await;
    assert_eq!(gate.ask("TOLLKEEPER.CHECK user_id 42\r\n").await, "*5 :1 $-1 :0 :0 $5 store ");
    assert_eq!(gate.ask("TOLLKEEPER.CHECK COST 5\r\n").await, "*5 :1 $-1 :0 :0 $5 store ");
}

#[tokio::test]
async fn what_cannot_be_decided_is_explained() {
    let gate = gate().await;
    for (words, answer) in [
        ("", "-ERR wrong number of arguments for 'tollkeeper.check' command "),
        ("a", "-ERR attribute `a` has no value; write name value pairs "),
        ("a 1 b", "-ERR attribute `b` has no value; write name value pairs "),
        ("a 1 a 2", "-ERR attribute `a` is given twice "),
        ("a 1 COST x", "-ERR COST x is not a whole number; 0 checks without charging "),
        ("a 1 COST -1", "-ERR COST -1 is not a whole number; 0 checks without charging "),
        ("a \"\\xff\"", "-ERR the value of attribute `a` is not UTF-8 "),
        (
            "tenant t plan paid tokens many",
            "-ERR attribute `tokens` is the cost of rule `priced` and must be a whole number, not `many` ",
        ),
    ] {
        assert_eq!(gate.ask(format!("TOLLKEEPER.CHECK {words}\r\n")).await, answer, "{words}");
    }
}
