//! Checks a bucket: over any time at most burst + rate * time.

use super::peaks::Peaks;
use super::{Answers, Rate, Violation};

/// For all `a <= b`: the cost of requests sent at or after `a` and answered at or before `b` is at most
/// `burst + rate * (b - a)`.
///
/// Only the times of sends matter as `a`, and those of answers as `b`: any other interval can shrink to such a one
/// with the same requests. Going through the answers in order, `Peaks` keeps the greatest (cost since a) + rate * a
/// over all `a`, so that each answer takes one comparison.
pub(super) fn admissions(answers: &Answers, burst: u64, rate: Rate) -> Result<u64, Violation> {
    let mut peaks = Peaks::new(answers.by_asked.iter().map(|request| request.asked_us), rate);
    let allowed = i128::from(burst) * i128::from(rate.period_us);
    let mut highest = 0;
    for position in &answers.by_answered {
        let request = &answers.by_asked[*position as usize];
        peaks.add_and_open(*position as usize, request.cost);
        let peak = peaks.highest_at(request.answered_us);
        if peak > allowed {
            let excess = tokens(peak - allowed + i128::from(rate.period_us) - 1, rate);
            return Err(Violation::Excess { from_us: peaks.start_of_highest(), until_us: request.answered_us, excess });
        }
        highest = highest.max(peak);
    }
    Ok(tokens(allowed - highest, rate))
}

/// For each denial, at some moment `d` within it the bucket held less than its cost, that is: for some `a <= d` the
/// cost admitted in `[a, d]` is more than burst - cost + rate * (d - a). At most, that cost is all requests sent
/// before the denial's answer and answered at or after `a`, and `d` may be as early as the sending of the denied
/// request.
///
/// Here the moments that matter as `a` are those of answers, and the denial's own.
pub(super) fn denials(answers: &Answers, burst: u64, rate: Rate, lost: u64) -> Result<Option<u64>, Violation> {
    let mut rank = vec![0; answers.by_asked.len()];
    for (order, position) in answers.by_answered.iter().enumerate() {
        rank[*position as usize] = order;
    }
    let mut peaks = Peaks::new(answers.in_order_of_answers().map(|request| request.answered_us), rate);
    let (mut asked, mut answered, mut under_way) = (0, 0, 0);
    let mut smallest = None;
    for denial in &answers.denied {
        while let Some(request) = answers.by_asked.get(asked).filter(|next| next.asked_us <= denial.answered_us) {
            peaks.add(rank[asked], request.cost);
            (asked, under_way) = (asked + 1, under_way + i128::from(request.cost));
        }
        while let Some(position) = answers.by_answered.get(answered) {
            let request = &answers.by_asked[*position as usize];
            if request.answered_us > denial.answered_us {
                break;
            }
            peaks.open(answered);
            (answered, under_way) = (answered + 1, under_way - i128::from(request.cost));
        }
        let spread = i128::from(rate.count) * i128::from(denial.answered_us - denial.asked_us);
        let now = under_way * i128::from(rate.period_us) + spread;
        let used = peaks.highest_at(denial.asked_us).max(now) + i128::from(lost) * i128::from(rate.period_us);
        let room_left_by = (i128::from(burst) - i128::from(denial.cost)) * i128::from(rate.period_us);
        if used <= room_left_by {
            return Err(Violation::NeedlessDenial(*denial));
        }
        let loss = tokens(used - room_left_by - 1, rate);
        smallest = Some(smallest.map_or(loss, |smallest: u64| smallest.min(loss)));
    }
    Ok(smallest)
}

/// Whole tokens in a product of tokens and microseconds of the period.
fn tokens(product: i128, rate: Rate) -> u64 {
    u64::try_from(product / i128::from(rate.period_us)).unwrap_or(0)
}
