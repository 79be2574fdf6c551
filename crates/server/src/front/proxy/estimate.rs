//! Costs given by the upstream: an estimate is charged with the request, and settled by a header of the response, or
//! by one of its trailers if the cost is known only at the end.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tollkeeper::{Actual, Reservation};
use tracing::warn;

/// The prefix of response attributes.
const RESPONSE: &str = "response.";

/// How long a response may take to give the cost; after that, less is refunded.
pub(super) const HOLD: Duration = Duration::from_secs(3_600);

/// Whether the response gives the cost of some requests.
pub(super) fn is_needed(cost_attributes: &BTreeSet<String>) -> bool {
    // Sorted: if any name has the prefix, the first one not before it does.
    cost_attributes
        .range::<str, _>((Bound::Included(RESPONSE), Bound::Unbounded))
        .next()
        .is_some_and(|name| name.starts_with(RESPONSE))
}

/// The charge of a request, to be settled once. If dropped before, the estimate stays charged.
#[derive(Debug)]
pub(super) struct Estimate(Reservation);

impl Estimate {
    /// `None` if the response cannot give the actual cost.
    pub(super) fn of(reservation: Reservation) -> Option<Estimate> {
        let is_expected = reservation.carriers().any(|name| name.starts_with(RESPONSE));
        is_expected.then(|| Estimate(reservation))
    }

    /// Settles with the costs in these headers. Returns the estimate if they have none.
    pub(super) fn settle_by(self, headers: &HeaderMap) -> Option<Estimate> {
        let mut actual = Actual::default();
        let mut is_found = false;
        for name in self.0.carriers().filter(|name| name.starts_with(RESPONSE)) {
            let Some(value) = headers.get(&name[RESPONSE.len()..]) else { continue };
            match number(value) {
                Some(cost) => {
                    actual = actual.attribute(name, cost);
                    is_found = true;
                }
                None => warn!("the upstream's {name} is not a whole number, so the estimate stays charged"),
            }
        }
        if !is_found {
            return Some(self);
        }
        // The client need not wait for it.
        crate::background::spawn(async move {
            if let Err(error) = self.0.settle(actual).await {
                warn!("an estimate could not be corrected and stays charged: {error}");
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
