//! Metrics of rules from a database.

use tollkeeper::postgres::Failure;

use super::follow::Following;
use crate::metrics::{Family, catalog};

impl Following {
    /// The version in force, and why there is no newer one.
    pub(crate) fn families(&self) -> Vec<Family> {
        let status = self.status();
        let version = |version: i64| u64::try_from(version).unwrap_or_default();
        let refused = status.refused.map_or(0, |(refused, _)| version(refused));
        let mut errors = Family::new(&catalog::RULES_ERRORS);
        for (failure, name) in Failure::ALL {
            errors.add([name], self.errors(failure));
        }
        vec![
            Family::single(&catalog::RULES_VERSION, version(status.version)),
            Family::single(&catalog::RULES_REFUSED_VERSION, refused),
            Family::single(&catalog::RULES_DATABASE_UP, u64::from(status.unreachable.is_none())),
            errors,
        ]
    }
}
