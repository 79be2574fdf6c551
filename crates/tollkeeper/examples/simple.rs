//! Rules in process, without a server: how much each client may do, and when to retry.
//!
//! `cargo run -p tollkeeper --example simple`

use tollkeeper::{Descriptor, Limiter, ManualClock, MemoryStore, Policy, RuleSpec, Span, Verdict};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tollkeeper::CheckError> {
    let rules = [
        RuleSpec {
            name: "per-user".into(),
            key: "{user_id}".into(),
            limit: "1/s".into(),
            burst: Some("3".into()),
            ..RuleSpec::default()
        },
        RuleSpec { name: "everybody".into(), key: "global".into(), limit: "100/min".into(), ..RuleSpec::default() },
    ];
    let policy = Policy::new(rules).expect("these rules are valid");
    // A clock that the example moves, so that it need not sleep. `MemoryStore::new()` has the real one.
    let clock = ManualClock::default();
    let limiter = Limiter::new(policy, MemoryStore::with(MemoryStore::DEFAULT_MAX_KEYS, clock.clone()));

    let alice = Descriptor::new([("user_id", "alice")]);
    let bob = Descriptor::new([("user_id", "bob")]);
    for _ in 0..4 {
        show("alice", &limiter.check(&alice).await?);
    }
    show("bob  ", &limiter.check(&bob).await?);
    clock.advance(Span::SECOND);
    println!("a second later");
    show("alice", &limiter.check(&alice).await?);
    show("alice", &limiter.check(&alice.clone().with_cost(5)).await?);
    Ok(())
}

fn show(who: &str, verdict: &Verdict) {
    let left: Vec<String> = verdict
        .rows()
        .iter()
        .map(|row| format!("{} has {} left", row.charge.rule.name(), row.decision.remaining))
        .collect();
    let answer = match (verdict.limiting(), verdict.retry_after()) {
        (None, _) => "passes".to_string(),
        (Some(row), Some(wait)) => format!("is denied by {} for {wait}", row.charge.rule.name()),
        (Some(row), None) => format!("can never pass {} at that cost", row.charge.rule.name()),
    };
    println!("{who} {answer}; {}", left.join(", "));
}
