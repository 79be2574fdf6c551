//! Finding the rules of a request among 10 to 10,000: through the index, beside a look at every rule.

use std::collections::BTreeMap;
use std::hint::black_box;

use tollkeeper::{Descriptor, Policy, RuleSpec};
use tollkeeper_bench::{Contestant, Numbers, race};
use tollkeeper_core::{MatchValue, OneOrMany};

const REQUESTS: usize = 1_000;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(15);
    println!("| rules | index ns | spread | scan ns | spread | times faster |");
    println!("|---:|---:|---|---:|---|---:|");
    for count in [10, 100, 1_000, 10_000] {
        let policy = Policy::new((0..count).map(rule)).expect("valid rules");
        let mut numbers = Numbers::new(7);
        let requests: Vec<Descriptor> = (0..REQUESTS).map(|_| request(numbers.draw() as usize % count)).collect();
        for request in &requests {
            assert_eq!(policy.charges(request).expect("no costs").len(), scan(&policy, request), "both find the same");
        }
        let index = Contestant::new("index", || {
            for request in &requests {
                black_box(policy.charges(black_box(request)).expect("no costs"));
            }
            REQUESTS
        });
        // Few rounds of many rules: a scan of 10,000 takes a while.
        let scanned = &requests[..REQUESTS.min(100_000 / count)];
        let scan = Contestant::new("scan", || {
            for request in scanned {
                black_box(scan(&policy, black_box(request)));
            }
            scanned.len()
        });
        let mut both = [index, scan];
        race(rounds, &mut both);
        let [index, scan] = &both;
        let show = |contestant: &Contestant<'_>| {
            let (fastest, slowest) = contestant.spread();
            format!("{:.0} | {fastest:.0}..{slowest:.0}", contestant.median())
        };
        println!("| {count} | {} | {} | {:.1} |", show(index), show(scan), scan.median() / index.median());
    }
}

/// Rules as a large service has them: by plan and tenant (exact), by method (a list) and path (a glob).
fn rule(number: usize) -> RuleSpec {
    let text = |text: String| MatchValue::Text(text);
    let when: BTreeMap<String, OneOrMany> = match number % 3 {
        0 => BTreeMap::from([
            ("plan".into(), OneOrMany::One(text("free".into()))),
            ("tenant".into(), OneOrMany::One(text(format!("tenant-{number}")))),
        ]),
        1 => BTreeMap::from([("path".into(), OneOrMany::One(text(format!("/api/{number}/*"))))]),
        _ => BTreeMap::from([
            ("method".into(), OneOrMany::Many(vec![text("POST".into()), text("PUT".into())])),
            ("user_id".into(), OneOrMany::Many(vec![text(format!("{number}")), text(format!("admin-{number}"))])),
        ]),
    };
    RuleSpec {
        name: format!("rule-{number}"),
        key: "{user_id}".into(),
        limit: "10/s".into(),
        when,
        ..RuleSpec::default()
    }
}

/// A request that one to three rules apply to.
fn request(number: usize) -> Descriptor {
    Descriptor::new([
        ("plan", "free".to_string()),
        ("tenant", format!("tenant-{}", number / 3 * 3)),
        ("path", format!("/api/{}/orders/17", number / 3 * 3 + 1)),
        ("method", "POST".to_string()),
        ("user_id", format!("{}", number / 3 * 3 + 2)),
        ("ip", "203.0.113.9".to_string()),
    ])
}

fn scan(policy: &Policy, request: &Descriptor) -> usize {
    policy.rules().iter().filter(|rule| rule.matches(request) && rule.key().render(request).is_ok()).count()
}
