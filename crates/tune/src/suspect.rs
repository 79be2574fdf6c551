//! Bots and scanners that stand out, each with its evidence. A busy client is not suspect for being busy: something it does has to be what
//! people and their programs do not do.

use schemars::JsonSchema;
use serde::Serialize;

use crate::facts::{Asks, Client, Facts};
use crate::finding::percent;
use crate::peaks::Peaks;
use crate::words::{counted, grouped};

/// What a key looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Suspicion {
    /// It looks for files that only attackers look for, or for what does not exist.
    Scanner,
    /// It tries passwords.
    PasswordGuessing,
    /// It says that it is a crawler.
    Crawler,
    /// A program that takes far more than others.
    Scraper,
}

/// A suspicion and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suspect {
    /// What it looks like.
    pub looks_like: Suspicion,
    /// Why, for people.
    pub evidence: String,
}

impl Suspicion {
    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Suspicion::Scanner => "scanner",
            Suspicion::PasswordGuessing => "password guessing",
            Suspicion::Crawler => "declared crawler",
            Suspicion::Scraper => "scraper",
        }
    }
}

/// What is known of a busy key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyNote {
    /// Requests since it is noted.
    pub(crate) noted: u64,
    pub(crate) denied: u64,
    pub(crate) peaks: Peaks,
    /// Requests whose answer is known.
    answered: u64,
    refused: u64,
    missing: u64,
    probes: u64,
    sign_ins: u64,
    failed_sign_ins: u64,
    crawler: u64,
    program: u64,
    browser: u64,
    routes: Distinct,
    agents: Distinct,
    /// Hours of the day in which it came.
    hours: u32,
}

/// What others do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usual {
    /// The requests of the key in the middle.
    pub(crate) median: u64,
    /// Whether most requests come from programs, as to an API: then a program does not stand out.
    pub(crate) are_programs: bool,
}

/// How many different values there were: linear counting (Whang 1990) in 256 bits, good to about 10 % up to 500 values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Distinct([u64; 4]);

impl Distinct {
    fn add(&mut self, hash: u64) {
        self.0[(hash >> 62) as usize] |= 1 << (hash & 63);
    }

    pub(crate) fn count(&self) -> u64 {
        let free = self.0.iter().map(|word| word.count_zeros()).sum::<u32>().max(1);
        (-256.0 * (f64::from(free) / 256.0).ln()).round() as u64
    }
}

impl KeyNote {
    pub(crate) fn add(&mut self, at_us: u64, facts: &Facts, is_denied: bool) {
        self.noted += 1;
        self.denied += u64::from(is_denied);
        self.peaks.add(at_us);
        self.answered += u64::from(facts.status > 0);
        self.refused += u64::from((400..500).contains(&facts.status));
        self.missing += u64::from(facts.status == 404);
        self.probes += u64::from(facts.asks == Asks::Probe);
        if facts.asks == Asks::SignIn {
            self.sign_ins += 1;
            self.failed_sign_ins += u64::from(matches!(facts.status, 400 | 401 | 403 | 422));
        }
        self.crawler += u64::from(facts.client == Client::Crawler);
        self.program += u64::from(matches!(facts.client, Client::Script | Client::Nameless));
        self.browser += u64::from(facts.client == Client::Browser);
        self.routes.add(facts.route);
        self.agents.add(facts.agent);
        self.hours |= 1 << (at_us / 3_600_000_000 % 24);
    }

    /// Whether enough is known of it to say what it looks like.
    pub(crate) fn is_telling(&self) -> bool {
        self.answered > 0
    }

    /// How many different user agents it had.
    pub(crate) fn agents(&self) -> u64 {
        self.agents.count()
    }

    /// How many different routes it asked for.
    pub(crate) fn routes(&self) -> u64 {
        self.routes.count()
    }

    /// Whether it stands out, compared with others.
    pub(crate) fn suspect(&self, usual: Usual) -> Option<Suspect> {
        let median = usual.median;
        let share = |count: u64| count as f64 / self.noted.max(1) as f64;
        let far_above = |times: u64| self.noted >= 200 && self.noted >= median.saturating_mul(times);
        let paths = self.routes();
        let (looks_like, evidence) = if self.probes >= 3 && share(self.probes) >= 0.05 {
            let probes = counted(self.probes, "request");
            (
                Suspicion::Scanner,
                format!("{probes} for files that only attackers look for, {} not found", percent(share(self.missing))),
            )
        } else if self.noted >= 50 && share(self.missing) >= 0.5 && paths >= 20 {
            (Suspicion::Scanner, format!("{} not found, on about {} routes", percent(share(self.missing)), paths))
        } else if self.sign_ins >= 20 && share(self.sign_ins) >= 0.5 && self.failed_sign_ins * 2 >= self.sign_ins {
            let failed = percent(self.failed_sign_ins as f64 / self.sign_ins as f64);
            (Suspicion::PasswordGuessing, format!("{} to sign in, {failed} refused", counted(self.sign_ins, "attempt")))
        } else if share(self.crawler) > 0.5 {
            (Suspicion::Crawler, format!("its user agent says so; it asks for {}", counted(paths, "route")))
        } else if !usual.are_programs && share(self.program) > 0.5 && far_above(20) {
            let times = grouped(self.noted / median.max(1));
            (Suspicion::Scraper, format!("a program by its user agent, {times} times the requests of a typical key"))
        } else if share(self.browser) > 0.5 && far_above(100) && self.hours.count_ones() >= 20 && self.agents() <= 2 {
            let hours = self.hours.count_ones();
            let times = self.noted / median.max(1);
            let claims = format!("claims to be one browser, but is active in {hours} hours of the day");
            (Suspicion::Scraper, format!("{claims}, with {times} times the requests of a typical key"))
        } else {
            return None;
        };
        Some(Suspect { looks_like, evidence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(requests: u64, facts: impl Fn(u64) -> Facts) -> KeyNote {
        let mut note = KeyNote::default();
        (0..requests).for_each(|place| note.add(place * 1_000_000, &facts(place), false));
        note
    }

    fn usual(median: u64) -> Usual {
        Usual { median, are_programs: false }
    }

    #[test]
    fn each_suspicion_has_its_evidence_and_a_busy_person_has_none() {
        let spread = |place: u64| place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let person = note(5_000, |place| Facts {
            status: 200,
            client: Client::Browser,
            route: spread(place % 9),
            ..Facts::default()
        });
        assert_eq!(person.suspect(usual(10)), None);
        let scanner =
            note(300, |place| Facts { status: 404, asks: Asks::Probe, route: spread(place), ..Facts::default() });
        let told = scanner.suspect(usual(10)).expect("suspect");
        assert_eq!(
            (told.looks_like, told.evidence.as_str()),
            (Suspicion::Scanner, "300 requests for files that only attackers look for, 100 % not found")
        );
        let guessing = note(40, |_| Facts { status: 401, asks: Asks::SignIn, ..Facts::default() });
        assert_eq!(guessing.suspect(usual(10)).expect("suspect").evidence, "40 attempts to sign in, 100 % refused");
        let scraper = note(2_000, |place| Facts {
            status: 200,
            client: Client::Script,
            route: spread(place),
            ..Facts::default()
        });
        assert_eq!(scraper.suspect(usual(10)).expect("suspect").looks_like, Suspicion::Scraper);
        assert_eq!(scraper.suspect(usual(1_000)), None, "others send as much");
        assert_eq!(scraper.suspect(Usual { median: 10, are_programs: true }), None, "a client of an API");
    }

    #[test]
    fn different_values_are_counted_within_their_error() {
        let mut distinct = Distinct::default();
        for value in 0..200u64 {
            distinct.add(crate::hash::hash_of(0, &value.to_le_bytes()));
        }
        assert!((160..=240).contains(&distinct.count()), "{}", distinct.count());
    }
}
