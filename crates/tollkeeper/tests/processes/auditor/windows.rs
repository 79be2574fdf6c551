//! Checks windows: at most this much in each, aligned to the clock or anywhere.

use super::{Answers, Rate, Request, Violation, bucket};

/// What was certainly admitted in the windows k to m: at most count * (m - k + 1). That is the check of a bucket
/// whose time is the number of the window, and looking at several windows together catches requests that straddle a
/// boundary.
pub(super) fn fixed_window_admissions(answers: &Answers, rate: Rate) -> Result<u64, Violation> {
    let number = |at_us: u64| at_us / rate.period_us;
    let mut numbered = Answers { by_asked: answers.by_asked.clone(), by_answered: Vec::new(), denied: Vec::new() };
    for request in &mut numbered.by_asked {
        (request.asked_us, request.answered_us) = (number(request.asked_us), number(request.answered_us));
    }
    // Dividing keeps both orders.
    numbered.by_answered.clone_from(&answers.by_answered);
    let per_window = Rate { count: rate.count, period_us: 1 };
    bucket::admissions(&numbered, rate.count, per_window).map_err(|violation| match violation {
        Violation::Excess { from_us, until_us, excess } => Violation::Excess {
            from_us: from_us * rate.period_us,
            until_us: (until_us + 1) * rate.period_us - 1,
            excess,
        },
        other => other,
    })
}

/// A denial is justified if in one of the windows that it touches enough may have been admitted before its answer.
pub(super) fn fixed_window_denials(answers: &Answers, rate: Rate, lost: u64) -> Result<Option<u64>, Violation> {
    let totals = Totals::new(answers);
    windowed_denials(answers, rate, lost, |denial| {
        let windows = denial.asked_us / rate.period_us..=denial.answered_us / rate.period_us;
        let in_window = |window: u64| {
            let (start, last) = (window * rate.period_us, (window + 1) * rate.period_us - 1);
            totals.asked.until(last.min(denial.answered_us))
                - start.checked_sub(1).map_or(0, |at| totals.answered.until(at))
        };
        windows.map(in_window).max().unwrap_or(0)
    })
}

/// For each `a`: requests sent at or after it and answered before a + period, at most the count. Counted as "answered
/// before the end" minus "sent before the start", which is that or less (less by requests that took longer than a
/// period).
pub(super) fn sliding_log_admissions(answers: &Answers, rate: Rate) -> Result<u64, Violation> {
    let totals = Totals::new(answers);
    let mut highest = 0;
    for request in &answers.by_asked {
        let (from_us, until_us) = (request.asked_us, request.asked_us + rate.period_us - 1);
        let before = from_us.checked_sub(1).map_or(0, |at| totals.asked.until(at));
        let inside = totals.answered.until(until_us).saturating_sub(before);
        if inside > rate.count {
            return Err(Violation::Excess { from_us, until_us, excess: inside - rate.count });
        }
        highest = highest.max(inside);
    }
    Ok(rate.count - highest)
}

/// A denial is justified if enough may have been admitted in the period that ends with it.
pub(super) fn sliding_log_denials(answers: &Answers, rate: Rate, lost: u64) -> Result<Option<u64>, Violation> {
    let totals = Totals::new(answers);
    windowed_denials(answers, rate, lost, |denial| {
        let expired = denial.asked_us.checked_sub(rate.period_us).map_or(0, |at| totals.answered.until(at));
        totals.asked.until(denial.answered_us) - expired
    })
}

fn windowed_denials(
    answers: &Answers,
    rate: Rate,
    lost: u64,
    possibly_admitted: impl Fn(&Request) -> u64,
) -> Result<Option<u64>, Violation> {
    let mut smallest = None;
    for denial in &answers.denied {
        let used = possibly_admitted(denial) + lost + u64::from(denial.cost);
        if used <= rate.count {
            return Err(Violation::NeedlessDenial(*denial));
        }
        let loss = used - rate.count - 1;
        smallest = Some(smallest.map_or(loss, |smallest: u64| smallest.min(loss)));
    }
    Ok(smallest)
}

struct Totals {
    asked: Total,
    answered: Total,
}

impl Totals {
    fn new(answers: &Answers) -> Totals {
        Totals {
            asked: Total::new(answers.by_asked.iter().map(|request| (request.asked_us, request.cost))),
            answered: Total::new(answers.in_order_of_answers().map(|request| (request.answered_us, request.cost))),
        }
    }
}

/// Cost added up over time.
struct Total(Vec<(u64, u64)>);

impl Total {
    fn new(costs: impl Iterator<Item = (u64, u32)>) -> Total {
        let mut sum = 0;
        let add = |(at_us, cost)| {
            sum += u64::from(cost);
            (at_us, sum)
        };
        Total(costs.map(add).collect())
    }

    /// All up to this moment, inclusive.
    fn until(&self, at_us: u64) -> u64 {
        let count = self.0.partition_point(|(at, _)| *at <= at_us);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}
