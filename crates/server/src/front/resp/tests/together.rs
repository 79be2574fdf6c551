//! Commands of a pipeline that are decided together, against the same commands one by one.

use proptest::prelude::*;

use super::*;

/// Commands that are decided together, and everything that may come between them.
const COMMANDS: &[&str] = &[
    "CL.THROTTLE a 2 1 60",
    "CL.THROTTLE b 2 1 60 2",
    "CL.THROTTLE a 2 1 60 0",
    "CL.THROTTLE c 40 1 60",
    "CL.THROTTLE a 4 1 60 0",
    "cl.throttle a 1 1 60",
    "CL.THROTTLE a 2 1",
    "CL.THROTTLE a 2 x 60",
    "CL.THROTTLE b 2 1 60 -1",
    "PING",
    "ECHO text",
    "DEL a",
    "NONSENSE",
    "MULTI",
    "EXEC",
    "DISCARD",
    "RESET",
    "TOLLKEEPER.CHECK user b",
];

/// What was counted, except how long decisions took.
fn counted(gate: &Gate) -> Vec<String> {
    let page = crate::metrics::text(crate::metrics::Exposition::Prometheus, &gate.service.families());
    let is_count = |line: &&str| {
        ["tollkeeper_requests_total", "tollkeeper_resp_requests_total", "tollkeeper_decisions_total"]
            .iter()
            .chain(&["tollkeeper_remaining_ratio", "tollkeeper_check_duration_seconds_count"])
            .any(|name| line.starts_with(name))
    };
    page.lines().filter(is_count).map(String::from).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// However many are decided together, they are answered alike, and the same is counted.
    #[test]
    fn commands_of_a_pipeline_are_decided_as_one_by_one(
        commands in prop::collection::vec(
            // Mostly those that are decided together: else there would seldom be enough of them in a row.
            prop_oneof![9 => prop::sample::select(&COMMANDS[..6]), 1 => prop::sample::select(COMMANDS)],
            1..300,
        )
    ) {
        tokio::runtime::Runtime::new().expect("threads").block_on(async {
            let pipeline: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
            let rules = [json!({ "name": "user", "key": "{user}", "limit": "5/min" })];
            let together = open(&rules, 1_000, Limits::default(), None).await;
            let one_by_one = open(&rules, 1_000, Limits { depth: 1, ..Limits::default() }, None).await;
            assert_eq!(together.ask(&pipeline).await, one_by_one.ask(&pipeline).await);
            assert_eq!(counted(&together), counted(&one_by_one));
        });
    }
}
