//! Several requests decided as one: all or nothing over all of them.
//!
//! Stores assume that a request charges a bucket only once. Two of these requests may use the same one, so their
//! charges are added up, and each request gets the bucket's answer to the sum.

use std::collections::HashMap;
use std::sync::Arc;

use tollkeeper_core::{Charge, Key, Quota, Row, Verdict};

/// The answer to several requests that pass or fail together.
#[derive(Clone, Debug)]
pub struct Together {
    /// The answer for all of them, with one row per bucket.
    pub whole: Verdict,
    /// The answer for each, by its own rules, in order. One may be allowed although the whole is not; nothing was
    /// charged then.
    pub parts: Vec<Verdict>,
}

/// What the store is to decide.
pub(super) enum Joined {
    /// The charges of the only request, each for another bucket: nothing is shared.
    Single(Vec<Charge>),
    Several(Vec<Charge>, Parts),
}

/// For each request, which of the joined charges it contributes to, and its own cost.
pub(super) type Parts = Vec<Vec<(usize, u32)>>;

/// The charges of all requests with every bucket named once, and which requests share them.
pub(super) fn join(requests: Vec<Vec<Charge>>) -> Joined {
    /// Up to so many charges, looking through all of them is quicker than hashing each.
    const FEW: usize = 8;
    let requests = match <[Vec<Charge>; 1]>::try_from(requests) {
        Ok([charges]) if charges.len() <= FEW && are_distinct(&charges) => return Joined::Single(charges),
        Ok(single) => single.into(),
        Err(several) => several,
    };
    let all = requests.iter().map(Vec::len).sum();
    let mut places: Option<HashMap<(Arc<str>, Key), usize>> = (all > FEW).then(HashMap::new);
    let mut joined: Vec<Charge> = Vec::with_capacity(all);
    let mut add = |charge: Charge| {
        let cost = charge.cost;
        let place = match &mut places {
            Some(places) => *places.entry((charge.rule.shared_name(), charge.key.clone())).or_insert(joined.len()),
            None => joined.iter().position(|other| are_of_one_bucket(other, &charge)).unwrap_or(joined.len()),
        };
        match joined.get_mut(place) {
            Some(same) => {
                same.cost = same.cost.saturating_add(cost);
                if is_stricter(charge.quota(), same.quota()) {
                    *same = charge.with_cost(same.cost);
                }
            }
            None => joined.push(charge),
        }
        (place, cost)
    };
    let parts = requests.into_iter().map(|charges| charges.into_iter().map(&mut add).collect()).collect();
    Joined::Several(joined, parts)
}

fn are_distinct(charges: &[Charge]) -> bool {
    (1..charges.len()).all(|last| charges[..last].iter().all(|other| !are_of_one_bucket(other, &charges[last])))
}

fn are_of_one_bucket(one: &Charge, other: &Charge) -> bool {
    one.key == other.key && one.rule.name() == other.rule.name()
}

impl Together {
    /// From the rows of one request, which is the whole.
    pub(super) fn single(rows: Vec<Row>) -> Together {
        let whole = Verdict::new(rows);
        Together { parts: vec![whole.clone()], whole }
    }

    /// From the rows of joined charges, in order.
    pub(super) fn new(rows: Vec<Row>, parts: Parts) -> Together {
        let own = |(place, cost): (usize, u32)| {
            let mut row = rows[place].clone();
            row.charge.cost = cost;
            row
        };
        let parts = parts.into_iter().map(|part| Verdict::new(part.into_iter().map(own).collect())).collect();
        Together { parts, whole: Verdict::new(rows) }
    }
}

/// Of two quotas for one bucket, as callers with their own limits may send them, the lower one applies.
fn is_stricter(quota: &Quota, than: &Quota) -> bool {
    let order = |quota: &Quota| (quota.limit(), std::cmp::Reverse(quota.period()));
    order(quota) < order(than)
}
