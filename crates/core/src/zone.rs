//! Time zones by their names in the IANA database, such as `Europe/Berlin`.
//!
//! The database is part of the program and never read from the machine: all instances of one version agree on every
//! window, and a container needs no files.

use std::fmt;
use std::sync::{LazyLock, OnceLock};

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A zone of the database. `UTC` by default.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Zone(u16);

/// A zone, read from the database when it is first used.
struct Known {
    name: String,
    rules: OnceLock<TimeZone>,
}

/// UTC comes first.
static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let database = TimeZoneDatabase::bundled();
    let others = database.available().map(|name| name.as_str().to_string()).filter(|name| name != "UTC");
    let known = |name| Known { name, rules: OnceLock::new() };
    std::iter::once("UTC".to_string()).chain(others).map(known).collect()
});

impl Zone {
    pub(crate) const UTC: Zone = Zone(0);

    /// The zone of this name, in upper or lower case; otherwise what to write instead.
    pub(crate) fn named(name: &str) -> Result<Zone, String> {
        let found = KNOWN.iter().position(|known| known.name.eq_ignore_ascii_case(name));
        if let Some(zone) = found.and_then(|place| u16::try_from(place).ok()) {
            return Ok(Zone(zone));
        }
        let last = |name: &str| name.rsplit('/').next().unwrap_or_default().replace([' ', '_'], "").to_lowercase();
        let similar = KNOWN.iter().find(|known| known.name.contains('/') && last(&known.name) == last(name));
        let example = similar.map_or("Europe/Berlin", |known| &known.name);
        let hint = if similar.is_some() { "did you mean" } else { "write a name of the IANA database such as" };
        Err(format!("{name:?} is not a time zone; {hint} {example}"))
    }

    pub(crate) fn name(self) -> &'static str {
        KNOWN.get(usize::from(self.0)).map_or("UTC", |known| &known.name)
    }

    pub(crate) fn rules(self) -> &'static TimeZone {
        static UTC: TimeZone = TimeZone::UTC;
        let Some(known) = KNOWN.get(usize::from(self.0)).filter(|_| self != Zone::UTC) else { return &UTC };
        // Every name of the list is in the database.
        known.rules.get_or_init(|| TimeZoneDatabase::bundled().get(&known.name).unwrap_or(TimeZone::UTC))
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_names_and_slips_a_suggestion() {
        assert_eq!(Zone::named("europe/berlin").map(Zone::name), Ok("Europe/Berlin"));
        assert_eq!(Zone::named("UTC"), Ok(Zone::UTC));
        let error = |name| Zone::named(name).expect_err(name);
        assert_eq!(error("Berlin"), "\"Berlin\" is not a time zone; did you mean Europe/Berlin");
        assert_eq!(error("new york"), "\"new york\" is not a time zone; did you mean America/New_York");
        assert!(error("+02:00").contains("such as Europe/Berlin"));
    }

    #[test]
    fn every_zone_of_the_list_is_in_the_database() {
        for (place, known) in KNOWN.iter().enumerate() {
            let zone = Zone(place as u16);
            assert_eq!(Zone::named(&known.name), Ok(zone));
            assert!(zone == Zone::UTC || zone.rules().iana_name().is_some(), "{}", known.name);
        }
    }
}
