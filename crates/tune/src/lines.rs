//! The requests of a chunk of lines as rules see them: what a worker makes of its lines, without a piece of memory for each.
//!
//! The texts of keys and routes of a whole chunk stand in one string, and a request refers to them by their place.

use tollkeeper::{Algorithm, Key, Policy, Request, Rule};
use tollkeeper_logs::Entry;

use crate::facts::{Facts, Witness};
use crate::hash::{ByHash, hash_of, rehash};
use crate::reader::Worker;
use crate::request::{LogRequest, Naming, Networks};

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
    /// The text of its route.
    route: Place,
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
    /// The hash of the bucket: of the rule and the key.
    pub(crate) bucket: u64,
}

impl LineCharge {
    fn new(rule: usize, cost: u32, key: LineKey) -> LineCharge {
        LineCharge { rule: rule as u32, cost, key, bucket: rehash(rule as u64, key.hash) }
    }

    /// One of the first rule for a key without a text.
    #[cfg(test)]
    pub(crate) fn of_hash(hash: u64) -> LineCharge {
        LineCharge::new(0, 1, LineKey { hash, variant: 0, place: Place::default() })
    }
}

/// A key: its hash, and where its text stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineKey {
    pub(crate) hash: u64,
    pub(crate) variant: u16,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default)]
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

    pub(crate) fn route(&self, line: &Line) -> &str {
        self.text(line.route)
    }

    fn text(&self, place: Place) -> &str {
        &self.texts[place.at as usize..(place.at + place.length) as usize]
    }

    fn keep(&mut self, text: &str) -> Place {
        let at = self.texts.len() as u32;
        self.texts.push_str(text);
        Place { at, length: text.len() as u32 }
    }

    fn keep_key(&mut self, variant: u16, text: &str, known: [Option<LineKey>; 2]) -> LineKey {
        match known.into_iter().flatten().find(|known| self.key(known) == text) {
            Some(known) if known.variant == variant => known,
            Some(known) => LineKey { hash: hash_of(variant.into(), text.as_bytes()), variant, place: known.place },
            None => LineKey { hash: hash_of(variant.into(), text.as_bytes()), variant, place: self.keep(text) },
        }
    }

    fn charge(&mut self, policy: &Policy, request: &impl Request, asked: &mut Asked<'_>) -> Result<(), String> {
        let Asked { key, client, last } = asked;
        last.resize(policy.rules().len(), None);
        let charged = policy.each_charge(request, key, |position, key, cost| {
            if is_tried(&policy.rules()[position]) {
                let key = self.keep_key(key.variant, &key.value, [*client, last[position]]);
                last[position] = Some(key);
                self.charges.push(LineCharge::new(position, cost, key));
            }
        });
        charged.map_err(|error| error.to_string())
    }

    /// The key of a request's address, and where its charges are, which are added.
    fn ask(
        &mut self,
        questions: &Questions<'_>,
        entry: &Entry<'_>,
        request: &LogRequest<'_, '_>,
        kept: &mut Kept,
    ) -> Result<(Option<LineKey>, [u32; 3]), String> {
        let Kept { key, last: [last, last_compared] } = kept;
        let from = self.charges.len() as u32;
        let client = request.attribute("ip").map(|ip| self.keep_key(0, &ip, [None; 2]));
        match questions.policy {
            Some(policy) => self.charge(policy, request, &mut Asked { key, client, last })?,
            None => {
                for (place, rule) in questions.kinds.iter().enumerate() {
                    let Ok(key) = rule.key_of(request) else { continue };
                    let key = self.keep_key(key.variant, &key.value, [client, None]);
                    self.charges.push(LineCharge::new(place, 1, key));
                }
            }
        }
        let own = self.charges.len() as u32;
        if let Some((policy, naming)) = questions.compared {
            let asked = &mut Asked { key, client, last: last_compared };
            self.charge(policy, &LogRequest::new(entry, naming), asked)?;
        }
        Ok((client, [from, own, self.charges.len() as u32]))
    }

    /// Adds a request that did not come from a log.
    pub(crate) fn add(&mut self, policy: &Policy, request: &impl Request, route: &str) -> Result<(), String> {
        let from = self.charges.len() as u32;
        let client = request.attribute("ip").map(|ip| self.keep_key(0, &ip, [None; 2]));
        let Kept { mut key, last: [mut last, _] } = Kept::default();
        self.charge(policy, request, &mut Asked { key: &mut key, client, last: &mut last })?;
        let ends = self.charges.len() as u32;
        let facts = Facts { route: hash_of(0, route.as_bytes()), ..Facts::default() };
        let route = self.keep(route);
        self.requests.push(Line { facts, client, route, charges: [from, ends, ends] });
        Ok(())
    }
}

/// What is kept from one request to the next.
#[derive(Debug, Default)]
struct Kept {
    key: Key,
    /// The last key of each rule, and of each to compare with: some rules have one key for all requests.
    last: [Vec<Option<LineKey>>; 2],
}

/// What charges are made with: the key of the request's address, and what is kept of other requests.
struct Asked<'k> {
    key: &'k mut Key,
    client: Option<LineKey>,
    last: &'k mut Vec<Option<LineKey>>,
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
    networks: Networks,
    kept: Kept,
    lines: Lines,
    /// Where the text of each route stands in `lines`.
    routes: ByHash<Place>,
}

impl<'q> Clerk<'q> {
    pub(crate) fn new(questions: Questions<'q>) -> Clerk<'q> {
        let (witness, kept, lines) = (Witness::default(), Kept::default(), Lines::default());
        Clerk { questions, witness, networks: Networks::new(questions.naming), kept, lines, routes: ByHash::default() }
    }
}

impl Worker for Clerk<'_> {
    type Lines = std::sync::Arc<Lines>;

    fn add(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let Clerk { questions, witness, networks, kept, lines, routes } = self;
        let before = lines.charges.len();
        let request = LogRequest::new(entry, questions.naming).with(networks);
        let charged = lines.ask(questions, entry, &request, kept);
        let (client, charges) = charged.inspect_err(|_| lines.charges.truncate(before))?;
        let path = request.path().unwrap_or_default();
        let facts = witness.see(entry, path);
        let route = *routes.entry(facts.route).or_insert_with(|| lines.keep(witness.route(entry, path)));
        lines.requests.push(Line { facts, client, route, charges });
        Ok(())
    }

    fn take(&mut self) -> Self::Lines {
        self.routes.clear();
        self.kept.last.iter_mut().for_each(Vec::clear);
        // The next chunk will be about as large.
        let next = Lines {
            texts: String::with_capacity(self.lines.texts.len()),
            requests: Vec::with_capacity(self.lines.requests.len()),
            charges: Vec::with_capacity(self.lines.charges.len()),
        };
        std::sync::Arc::new(std::mem::replace(&mut self.lines, next))
    }
}
