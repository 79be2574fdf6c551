//! Renewals: however slots are taken, renewed and released, never more than N are held at once.

use proptest::prelude::*;
use tollkeeper_core::{Hold, Quota, Span, State, Timestamp, decide};

#[derive(Clone, Debug)]
enum Step {
    Take,
    Renew(usize),
    Release(usize),
    Move(i64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Take),
        4 => (0_usize..20).prop_map(Step::Renew),
        1 => (0_usize..20).prop_map(Step::Release),
        4 => (0_i64..60).prop_map(Step::Move),
        1 => (-120_i64..0).prop_map(Step::Move),
    ]
}

proptest! {
    /// A client that took a slot and did not release it holds it for a period from its last renewal. Counted
    /// independently, there are never more than N holders, and every holder can renew, whatever the others do.
    #[test]
    fn never_more_than_n_are_held(limit in 1_u32..5, steps in prop::collection::vec(any_step(), 1..200)) {
        let period = Span::from_micros(100);
        let quota = Quota::concurrent(limit, period).build().unwrap();
        let (mut state, mut now) = (State::default(), Timestamp::from_micros(1_000_000));
        let (mut held, mut newest): (Vec<Hold>, Timestamp) = (Vec::new(), now);
        for step in steps {
            match step {
                Step::Take => {
                    let (decision, change) = decide(&quota, 1, &state, now);
                    state.apply(change);
                    held.extend(decision.hold);
                }
                Step::Renew(pick) if !held.is_empty() => {
                    let place = pick % held.len();
                    match state.renew(&quota, held[place], now) {
                        Some(renewed) => {
                            prop_assert!(renewed >= held[place]);
                            held[place] = renewed;
                        }
                        None => prop_assert!(false, "{:?} was lost before its time", held[place]),
                    }
                }
                Step::Release(pick) if !held.is_empty() => {
                    let hold = held.swap_remove(pick % held.len());
                    state.release(hold);
                }
                Step::Renew(_) | Step::Release(_) => {}
                Step::Move(micros) => {
                    let moved = Timestamp::from_micros(now.as_micros().saturating_add_signed(micros));
                    // A jump of a whole period renames holds, which another test covers.
                    now = if newest.since(moved) < period { moved } else { now };
                    // An expired hold stays expired, even if the clock runs back.
                    held.retain(|hold| hold.at + period > now);
                }
            }
            newest = held.iter().map(|hold| hold.at).max().map_or(newest, |last| last.max(newest));
            prop_assert!(held.len() <= limit as usize, "{} of {limit} are held", held.len());
        }
    }

    /// A renewal changes nothing for other clients: what is left, and what passes, is the same before and after.
    #[test]
    fn a_renewal_changes_no_answer_now(taken in 1_u32..6, pick in 0_usize..6, wait in 0_u64..150) {
        let quota = Quota::concurrent(6, Span::from_micros(100)).build().unwrap();
        let (mut state, start) = (State::default(), Timestamp::from_micros(1_000_000));
        let mut holds = Vec::new();
        for nth in 0..taken {
            let (decision, change) = decide(&quota, 1, &state, start + Span::from_micros(u64::from(nth) * 7));
            state.apply(change);
            holds.extend(decision.hold);
        }
        let now = start + Span::from_micros(35 + wait);
        let before = decide(&quota, 0, &state, now).0.remaining;
        state.renew(&quota, holds[pick % holds.len()], now);
        prop_assert_eq!(decide(&quota, 0, &state, now).0.remaining, before);
    }
}
