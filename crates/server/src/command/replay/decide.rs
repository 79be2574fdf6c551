//! One event after the other, each at its own time.

use tollkeeper::{Charge, Limiter, ManualClock, Timestamp, Verdict};

use crate::wire;

pub(super) struct Event {
    /// Where it stands, counted from 1; not known of a log, whose requests are put in order.
    pub(super) line: Option<u64>,
    pub(super) at_us: u64,
    pub(super) charges: Vec<Charge>,
}

pub(super) struct Decided {
    at_us: u64,
    verdict: Verdict,
}

/// The verdicts, up to the first event that could not be decided.
pub(super) async fn decide(
    events: Vec<Event>,
    limiter: &Limiter,
    clock: &ManualClock,
) -> (Vec<Decided>, Option<anyhow::Error>) {
    let mut decided = Vec::with_capacity(events.len());
    for Event { line, at_us, charges } in events {
        clock.set(Timestamp::from_micros(at_us));
        let error = match limiter.check_charges(charges).await {
            Ok(verdict) if verdict.is_degraded() => anyhow::anyhow!("the store did not answer"),
            Ok(verdict) => {
                decided.push(Decided { at_us, verdict });
                continue;
            }
            Err(error) => anyhow::Error::from(error),
        };
        let error = match line {
            Some(line) => error.context(format!("line {line}")),
            None => error,
        };
        return (decided, Some(error));
    }
    (decided, None)
}

pub(super) fn write_lines(out: &mut Vec<u8>, decided: &[Decided]) {
    for Decided { at_us, verdict } in decided {
        wire::write_replay_line(out, *at_us, verdict);
        out.push(b'\n');
    }
}
