//! The requests of a chunk of lines as rules see them: what a worker makes of its lines, without a piece of memory for each.
//!
//! The texts of keys and routes of a whole chunk stand in one string, and a request refers to them by their place.

use tollkeeper::{Algorithm, Key, Policy, Request, Rule};
use tollkeeper_logs::Entry;

use crate::facts::{Facts, Witness};
use crate::hash::hash_of;
use crate::reader::Worker;
use crate::request::{LogRequest, Naming};

/// Whether a log can tell what a rule would do: of requests at the same time it does not say when they ended.
pub(crate) fn is_tried(rule: &Rule) -> bool {
    rule.quota().algorithm() != Algorithm::Concurrency
}

/// Requests and their texts.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    texts: String,
    requests: Vec<Line>,
    charges: Vec<LineCharge>,
}

/// One request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) facts: Facts,
    /// The key of its address.
    pub(crate) client: Option<LineKey>,
    /// Its route, where the worker sees it for the first time.
    route: Option<Place>,
    /// Where its charges begin, where those of the rules to compare with do, and where these end.
    charges: [u32; 3],
}

/// What one rule takes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineCharge {
    /// The position of the rule.
    pub(crate) rule: u32,
    pub(crate) cost: u32,
    pub(crate) key: LineKey,
}

/// A key: its hash, and where its text stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineKey {
    pub(crate) hash: u64,
    pub(crate) variant: u16,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    length: u32,
}

impl Lines {
    pub(crate) fn request(&self, index: usize) -> &Line {
        &self.requests[index]
    }

    pub(crate) fn charges(&self, line: &Line) -> &[LineCharge] {
        &self.charges[line.charges[0] as usize..line.charges[1] as usize]
    }

    /// Those of the rules to compare with.
    pub(crate) fn compared(&self, line: &Line) -> &[LineCharge] {
        &self.charges[line.charges[1] as usize..line.charges[2] as usize]
    }

    pub(crate) fn key(&self, key: &LineKey) -> &str {
        self.text(key.place)
    }

    pub(crate) fn route(&self, line: &Line) -> Option<&str> {
        line.route.map(|place| self.text(place))
    }

    fn text(&self, place: Place) -> &str {
        &self.texts[place.at as usize..(place.at + place.length) as usize]
    }

    fn keep(&mut self, text: &str) -> Place {
        let at = self.texts.len() as u32;
        self.texts.push_str(text);
        Place { at, length: text.len() as u32 }
    }

    fn keep_key(&mut self, variant: u16, text: &str, client: Option<LineKey>) -> LineKey {
        let hash = hash_of(variant.into(), text.as_bytes());
        // Most keys are the address.
        let place = match client.filter(|client| self.key(client) == text) {
            Some(client) => client.place,
            None => self.keep(text),
        };
        LineKey { hash, variant, place }
    }

    fn charge(&mut self, policy: &Policy, request: &impl Request, asked: &mut Asked<'_>) -> Result<(), String> {
        let Asked { key, client } = asked;
        let charged = policy.each_charge(request, key, |position, key, cost| {
            if is_tried(&policy.rules()[position]) {
                let key = self.keep_key(key.variant, &key.value, *client);
                self.charges.push(LineCharge { rule: position as u32, cost, key });
            }
        });
        charged.map_err(|error| error.to_string())
    }

    /// Adds a request that did not come from a log.
    pub(crate) fn add(&mut self, policy: &Policy, request: &impl Request, route: &str) -> Result<(), String> {
        let from = self.charges.len() as u32;
        let client = request.attribute("ip").map(|ip| self.keep_key(0, &ip, None));
        self.charge(policy, request, &mut Asked { key: &mut Key::default(), client })?;
        let ends = self.charges.len() as u32;
        let facts = Facts { route: hash_of(0, route.as_bytes()), ..Facts::default() };
        let route = Some(self.keep(route));
        self.requests.push(Line { facts, client, route, charges: [from, ends, ends] });
        Ok(())
    }
}

/// What is used again for every request, and the key of its address.
struct Asked<'k> {
    key: &'k mut Key,
    client: Option<LineKey>,
}

/// What requests are asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Questions<'q> {
    pub(crate) naming: &'q Naming,
    pub(crate) policy: Option<&'q Policy>,
    /// Kinds of keys to count, where there are no rules.
    pub(crate) kinds: &'q [std::sync::Arc<Rule>],
    pub(crate) compared: Option<(&'q Policy, &'q Naming)>,
}

/// Turns entries into lines; each worker has its own.
#[derive(Debug)]
pub(crate) struct Clerk<'q> {
    questions: Questions<'q>,
    witness: Witness,
    key: Key,
    lines: Lines,
}

impl<'q> Clerk<'q> {
    pub(crate) fn new(questions: Questions<'q>) -> Clerk<'q> {
        Clerk { questions, witness: Witness::default(), key: Key::default(), lines: Lines::default() }
    }

    fn charges_of(
        &mut self,
        entry: &Entry<'_>,
        request: &LogRequest<'_, '_>,
    ) -> Result<(Option<LineKey>, [u32; 3]), String> {
        let Clerk { questions, key, lines, .. } = self;
        let from = lines.charges.len() as u32;
        let client = request.attribute("ip").map(|ip| lines.keep_key(0, &ip, None));
        match questions.policy {
            Some(policy) => lines.charge(policy, request, &mut Asked { key, client })?,
            None => {
                for (place, rule) in questions.kinds.iter().enumerate() {
                    let Ok(key) = rule.key_of(request) else { continue };
                    let key = lines.keep_key(key.variant, &key.value, client);
                    lines.charges.push(LineCharge { rule: place as u32, cost: 1, key });
                }
            }
        }
        let own = lines.charges.len() as u32;
        if let Some((policy, naming)) = questions.compared {
            lines.charge(policy, &LogRequest::new(entry, naming), &mut Asked { key, client })?;
        }
        Ok((client, [from, own, lines.charges.len() as u32]))
    }
}

impl Worker for Clerk<'_> {
    type Lines = std::sync::Arc<Lines>;

    fn add(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let before = self.lines.charges.len();
        let request = LogRequest::new(entry, self.questions.naming);
        let charged = self.charges_of(entry, &request);
        let (client, charges) = charged.inspect_err(|_| self.lines.charges.truncate(before))?;
        let (facts, route) = self.witness.see(entry, request.path().unwrap_or_default());
        let route = route.map(|route| self.lines.keep(route));
        self.lines.requests.push(Line { facts, client, route, charges });
        Ok(())
    }

    fn take(&mut self) -> Self::Lines {
        // The next chunk will be about as large.
        let next = Lines {
            texts: String::with_capacity(self.lines.texts.len()),
            requests: Vec::with_capacity(self.lines.requests.len()),
            charges: Vec::with_capacity(self.lines.charges.len()),
        };
        std::sync::Arc::new(std::mem::replace(&mut self.lines, next))
    }
}
