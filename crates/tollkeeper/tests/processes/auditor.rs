//! An independent auditor of rate limits: it knows only when requests were sent and answered, and the numbers of the
//! limit.
//!
//! A request was decided at some unknown moment between sending and answer, both included. So the auditor looks for
//! what no choice of moments can explain, and never raises a false alarm:
//!
//! - **No excess.** Requests sent at or after `a` and answered at or before `b` were decided within `[a, b]`. Over
//!   every such interval, what was certainly admitted inside must be within the limit.
//! - **No needless denial.** Requests sent before the end of a denied request may have been decided before it. Even
//!   with all of them counted, a denial is wrong if there was still room.
//!
//! Together: what was admitted is exactly what the limit says, as precisely as the timestamps allow. All arithmetic
//! is in integers.

#![allow(dead_code, unreachable_pub)] // Each user takes a part.

#[path = "auditor/bucket.rs"]
mod bucket;
#[path = "auditor/peaks.rs"]
mod peaks;
#[cfg(test)]
#[path = "auditor/tests.rs"]
mod tests;
#[path = "auditor/windows.rs"]
mod windows;

use std::collections::BTreeSet;
use std::fmt;

/// One answered request, in microseconds of the clock that the store uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub asked_us: u64,
    pub answered_us: u64,
    pub cost: u32,
    pub admitted: bool,
}

/// `count` per `period_us`.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub count: u64,
    pub period_us: u64,
}

/// The limit that was promised.
#[derive(Clone, Copy, Debug)]
pub enum Law {
    /// At most `burst` at once, refilled continuously: over any time at most burst + rate * time.
    Bucket { burst: u64, rate: Rate },
    /// `count` in each window, windows starting at multiples of the period.
    FixedWindow(Rate),
    /// `count` in any window, excluding the moment a whole period ago.
    SlidingLog(Rate),
}

/// The report of a run without violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The cost admitted in all.
    pub admitted: u64,
    /// How many requests were denied.
    pub denials: u64,
    /// How much more could have been admitted at the tightest moment without the timestamps showing it.
    pub unseen_excess: u64,
    /// How much could have been withheld before the most informative denial; `None` when no denial is informative.
    pub unseen_loss: Option<u64>,
    /// The longest time without any answer: how long the callers or the store stalled.
    pub longest_silence_us: u64,
}

/// What no choice of moments can explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// In `[from_us, until_us]` certainly more was admitted than allowed; the excess is in tokens, rounded up.
    Excess { from_us: u64, until_us: u64, excess: u64 },
    /// This request was denied although there was room.
    NeedlessDenial(Request),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Excess { from_us, until_us, excess } => {
                write!(f, "{excess} too many were admitted between {from_us} and {until_us}")
            }
            Violation::NeedlessDenial(request) => write!(f, "denied though there was room: {request:?}"),
        }
    }
}

impl Law {
    /// Whether all answers were correct. `lost` is what may have been charged without an answer, as by requests in
    /// flight in a killed process.
    pub fn audit(&self, requests: &[Request], lost: u64) -> Result<Report, Violation> {
        let answers = Answers::new(requests);
        let (unseen_excess, unseen_loss) = match *self {
            Law::Bucket { burst, rate } => {
                (bucket::admissions(&answers, burst, rate)?, bucket::denials(&answers, burst, rate, lost)?)
            }
            Law::FixedWindow(rate) => (
                windows::fixed_window_admissions(&answers, rate)?,
                windows::fixed_window_denials(&answers, rate, lost)?,
            ),
            Law::SlidingLog(rate) => {
                (windows::sliding_log_admissions(&answers, rate)?, windows::sliding_log_denials(&answers, rate, lost)?)
            }
        };
        Ok(Report {
            admitted: answers.by_asked.iter().map(|request| u64::from(request.cost)).sum(),
            denials: answers.denied.len() as u64,
            unseen_excess,
            unseen_loss,
            longest_silence_us: longest_silence(requests),
        })
    }
}

/// How many windows certainly contain a denial. In a correct run these were used up: with costs of 1, exactly the
/// count.
pub fn exhausted_windows(requests: &[Request], rate: Rate) -> usize {
    let window = |at_us: u64| at_us / rate.period_us;
    let sure = |denial: &&Request| !denial.admitted && window(denial.asked_us) == window(denial.answered_us);
    requests.iter().filter(sure).map(|denial| window(denial.asked_us)).collect::<BTreeSet<_>>().len()
}

fn longest_silence(requests: &[Request]) -> u64 {
    let mut answers: Vec<u64> = requests.iter().map(|request| request.answered_us).collect();
    answers.sort();
    answers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// The requests in the orders that the checks need.
struct Answers {
    /// Admitted ones.
    by_asked: Vec<Request>,
    /// Positions in `by_asked`.
    by_answered: Vec<u32>,
    /// Denied ones in the order of their answers.
    denied: Vec<Request>,
}

impl Answers {
    fn new(requests: &[Request]) -> Answers {
        // Stable sorts: requests of a few sequential callers are a few sorted runs, which merge quickly.
        let (mut by_asked, mut denied): (Vec<Request>, Vec<Request>) =
            requests.iter().partition(|request| request.admitted);
        by_asked.sort_by_key(|request| request.asked_us);
        denied.sort_by_key(|request| request.answered_us);
        let mut by_answered: Vec<u32> = (0..by_asked.len() as u32).collect();
        by_answered.sort_by_key(|position| by_asked[*position as usize].answered_us);
        Answers { by_asked, by_answered, denied }
    }

    fn in_order_of_answers(&self) -> impl Iterator<Item = &Request> {
        self.by_answered.iter().map(|position| &self.by_asked[*position as usize])
    }
}
