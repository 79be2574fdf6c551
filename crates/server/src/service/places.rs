//! The places of a request from which the rules in force take their keys: each may hold only one value.
//!
//! They follow the rules: a rule that was added by a reload is guarded from its first request on.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderMap, Uri};
use tollkeeper::Policy;
use tollkeeper::http::{AttributeSource, Identity};

/// The places of the latest policy.
#[derive(Debug, Default)]
pub(crate) struct KeyPlaces(ArcSwapOption<Known>);

#[derive(Debug)]
struct Known {
    policy: Arc<Policy>,
    places: Vec<AttributeSource>,
}

impl KeyPlaces {
    /// The place in which a request has two values for the key of a rule, if there is one.
    pub(super) fn contradiction(
        &self,
        policy: &Arc<Policy>,
        identity: &Identity,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<AttributeSource> {
        let known = self.0.load();
        if let Some(known) = known.as_ref().filter(|known| Arc::ptr_eq(&known.policy, policy)) {
            return known.find(uri, headers);
        }
        let new = Arc::new(Known { policy: policy.clone(), places: places(policy, identity) });
        self.0.store(Some(new.clone()));
        new.find(uri, headers)
    }
}

impl Known {
    fn find(&self, uri: &Uri, headers: &HeaderMap) -> Option<AttributeSource> {
        self.places.iter().find(|place| place.is_contradicted(uri, headers)).cloned()
    }
}

/// Attributes that are mapped by `identify`, and the places of the rules at the start, are guarded by the identity itself.
fn places(policy: &Policy, identity: &Identity) -> Vec<AttributeSource> {
    let mut places: Vec<AttributeSource> = Vec::new();
    let keys = policy.rules().iter().filter(|rule| rule.is_active()).map(|rule| rule.key());
    for name in keys.flat_map(|key| key.needs().flatten()).filter(|name| !identity.maps(name)) {
        let is_guarded = |place: &AttributeSource| identity.is_single(place) || places.contains(place);
        if let Some(place) = name.parse().ok().filter(|place| !is_guarded(place)) {
            places.push(place);
        }
    }
    places
}
