//! What is measured of rules that come from a database.

use super::{Failure, Following};
use crate::metrics::Page;

impl Following {
    /// Their version, and whether it could not be renewed.
    pub(crate) fn write(&self, page: &mut Page) {
        let status = self.status();
        page.family("tollkeeper_rules_version", "gauge", "The version of the rules in force.");
        page.sample("tollkeeper_rules_version", "", status.version);
        page.family(
            "tollkeeper_rules_refused_version",
            "gauge",
            "A newer version that holds a bad rule; 0 when there is none.",
        );
        page.sample("tollkeeper_rules_refused_version", "", status.refused.map_or(0, |(version, _)| version));
        page.family("tollkeeper_rules_database_up", "gauge", "1 when the database of the rules answered last.");
        page.sample("tollkeeper_rules_database_up", "", u8::from(status.away.is_none()));
        page.family("tollkeeper_rules_errors_total", "counter", "How often newer rules could not be had, by reason.");
        for (failure, name) in Failure::ALL {
            let labels = format!("reason=\"{name}\"");
            page.sample("tollkeeper_rules_errors_total", &labels, self.errors(failure));
        }
    }
}
