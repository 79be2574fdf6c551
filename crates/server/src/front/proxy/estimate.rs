//! Costs that the upstream tells: an estimate is charged on the way there, and corrected by a header of the response, or by
//! one of its trailers where the cost is known at the end only.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tollkeeper::{Actual, Reservation};
use tracing::warn;

/// What attributes of the response begin with.
const RESPONSE: &str = "response.";

/// How long a response may take to tell it; later than that, less is given back.
pub(super) const HOLD: Duration = Duration::from_secs(3_600);

/// Whether the response tells what some requests cost.
pub(super) fn is_needed(cost_attributes: &BTreeSet<String>) -> bool {
    // Sorted: the first that is not before the prefix has it, or none does.
    cost_attributes.range(RESPONSE.to_string()..).next().is_some_and(|name| name.starts_with(RESPONSE))
}

/// What a request was charged, to be corrected once. Dropped before that, the estimate stays.
#[derive(Debug)]
pub(super) struct Estimate(Reservation);

impl Estimate {
    /// Of what was charged, if the response can tell what it did cost.
    pub(super) fn of(reservation: Reservation) -> Option<Estimate> {
        let is_told = reservation.carriers().any(|name| name.starts_with(RESPONSE));
        is_told.then(|| Estimate(reservation))
    }

    /// Settles by what these headers tell. Comes back if they tell nothing.
    pub(super) fn settle_by(self, headers: &HeaderMap) -> Option<Estimate> {
        let mut actual = Actual::default();
        let mut is_told = false;
        for name in self.0.carriers().filter(|name| name.starts_with(RESPONSE)) {
            let Some(value) = headers.get(&name[RESPONSE.len()..]) else { continue };
            match number(value) {
                Some(cost) => {
                    actual = actual.attribute(name, cost);
                    is_told = true;
                }
                None => warn!("the upstream's {name} is not a whole number, so the estimate stays charged"),
            }
        }
        if !is_told {
            return Some(self);
        }
        // The client need not wait for it.
        tokio::spawn(async move {
            if let Err(error) = self.0.settle(actual).await {
                warn!("an estimate stays charged: {error}");
            }
        });
        None
    }
}

fn number(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?.trim();
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_by_the_response_are_found_among_others() {
        let needed = |names: &[&str]| is_needed(&names.iter().map(|name| name.to_string()).collect());
        assert!(needed(&["a", "response.x-tokens", "z"]));
        assert!(!needed(&["a", "tokens", "z"]) && !needed(&["responses"]) && !needed(&[]));
    }
}
