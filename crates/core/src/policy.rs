//! All rules together, indexed so that matching a request does not look at rules that cannot match.
//!
//! Every rule is filed once, under the condition that the fewest rules share: under each exact value, or under the
//! literal prefix of a glob. A request looks up its own values, and only rules found there are compared in full.
//! Rules without a condition are compared for every request.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::charge::Charge;
use crate::condition::Condition;
use crate::key::Key;
use crate::request::Request;
use crate::rule::{CostError, Rule, RuleError};
use crate::rule_spec::RuleSpec;
use crate::time::Timestamp;

/// A set of rules, ready to match requests.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    by_name: HashMap<Arc<str>, usize>,
    by_attribute: Vec<AttributeIndex>,
    /// Rules that cannot be filed under a condition, by position.
    always: Vec<usize>,
    requirements: Vec<Requirement>,
    cost_attributes: BTreeSet<String>,
}

/// One faulty rule of several.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {}: {error}", .name.as_ref().map_or_else(|| format!("number {}", .index + 1), |name| format!("`{name}`")))]
pub struct PolicyError {
    /// Which rule, counted from 0.
    pub index: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The field and what is wrong with it.
    pub error: RuleError,
}

/// Every faulty rule, in file order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyErrors(Vec<PolicyError>);

impl PolicyErrors {
    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, PolicyError> {
        self.0.iter()
    }
}

impl IntoIterator for PolicyErrors {
    type Item = PolicyError;
    type IntoIter = std::vec::IntoIter<PolicyError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'e> IntoIterator for &'e PolicyErrors {
    type Item = &'e PolicyError;
    type IntoIter = std::slice::Iter<'e, PolicyError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One line for each.
impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}

/// Attributes that some rules require. Rules with the same requirement share an entry.
#[derive(Debug)]
pub struct Requirement {
    /// One of each inner list.
    pub attributes: Vec<Vec<String>>,
    /// The rules that need them, by position.
    pub rules: Vec<usize>,
}

#[derive(Debug)]
struct AttributeIndex {
    attribute: String,
    exact: HashMap<String, Vec<usize>>,
    /// The lengths of these values, a bit for each: a value of another length needs no look-up.
    exact_lengths: u64,
    /// Globs by their literal prefix.
    prefixes: HashMap<String, Vec<usize>>,
    /// The distinct lengths of the prefixes: a value is looked up once per length.
    prefix_lengths: Vec<usize>,
}

impl Policy {
    /// Builds every rule, or names all that are wrong.
    pub fn new<S: Into<RuleSpec>>(specs: impl IntoIterator<Item = S>) -> Result<Policy, PolicyErrors> {
        let mut rules: Vec<Arc<Rule>> = Vec::new();
        let mut errors = Vec::new();
        let mut positions: HashMap<String, usize> = HashMap::new();
        for (index, spec) in specs.into_iter().enumerate() {
            let spec = spec.into();
            let name = spec.name.clone();
            let named = (!name.is_empty()).then(|| name.clone());
            if let Some(first) = positions.get(&name) {
                let problem = format!("{name:?} is also the name of rule number {}; names are unique", first + 1);
                let error = RuleError { field: "name".into(), problem };
                errors.push(PolicyError { index, name: named, error });
                continue;
            }
            match spec.build() {
                Ok(rule) => rules.push(Arc::new(rule)),
                Err(wrong) => {
                    errors.extend(wrong.into_iter().map(|error| PolicyError { index, name: named.clone(), error }));
                }
            }
            positions.insert(name, index);
        }
        if errors.is_empty() { Ok(Policy::of(rules)) } else { Err(PolicyErrors(errors)) }
    }

    fn of(rules: Vec<Arc<Rule>>) -> Policy {
        let mut policy = Policy { requirements: requirements(&rules), ..Policy::default() };
        let popularity = popularity(&rules);
        let mut by_attribute: BTreeMap<&str, AttributeIndex> = BTreeMap::new();
        for (position, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.is_active()) {
            let fewest_shared = rule
                .when()
                .iter()
                // A missing value cannot be looked up.
                .filter(|condition| !condition.may_lack())
                .map(|condition| (filings(condition).map(|filing| popularity[&filing]).sum::<usize>(), condition))
                .min_by_key(|(shared, _)| *shared);
            let Some((_, condition)) = fewest_shared else {
                policy.always.push(position);
                continue;
            };
            let index = by_attribute.entry(condition.attribute()).or_insert_with(|| AttributeIndex {
                attribute: condition.attribute().to_string(),
                exact: HashMap::new(),
                exact_lengths: 0,
                prefixes: HashMap::new(),
                prefix_lengths: Vec::new(),
            });
            for filing in filings(condition) {
                index.file(filing, position);
            }
        }
        policy.by_attribute = by_attribute.into_values().collect();
        policy.cost_attributes = rules.iter().flat_map(|rule| rule.cost().attributes()).map(str::to_string).collect();
        policy.by_name = rules.iter().enumerate().map(|(position, rule)| (rule.shared_name(), position)).collect();
        policy.rules = rules;
        policy
    }

    /// The rules in file order, including inactive ones.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// A rule by name.
    pub fn rule(&self, name: &str) -> Option<&Arc<Rule>> {
        self.by_name.get(name).map(|position| &self.rules[*position])
    }

    /// The attributes that carry the cost of some rule.
    pub fn cost_attributes(&self) -> &BTreeSet<String> {
        &self.cost_attributes
    }

    /// These rules in place of others since `at`: what was missing in a bucket stays missing under the new numbers.
    #[must_use]
    pub fn in_place_of(mut self, former: &Policy, at: Timestamp) -> Policy {
        let before: HashMap<&str, &Arc<Rule>> = former.rules.iter().map(|rule| (rule.name(), rule)).collect();
        for rule in &mut self.rules {
            if let Some(before) = before.get(rule.name()) {
                let quota = rule.quota().in_place_of(before.quota(), at);
                Arc::make_mut(rule).quota = quota;
            }
        }
        self
    }

    /// What rules require of a request.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The requirements that a request does not meet, by position: the rules that need them do not apply. Those of rules that
    /// are not considered are left out.
    pub fn unmet<'p>(&'p self, request: &'p impl Request) -> impl Iterator<Item = usize> + 'p {
        let is_considered = |requirement: &Requirement| {
            requirement.rules.iter().any(|position| request.considers(self.rules[*position].name()))
        };
        let lacks = |requirement: &Requirement| {
            requirement.attributes.iter().any(|names| names.iter().all(|name| request.attribute(name).is_none()))
        };
        self.requirements
            .iter()
            .enumerate()
            .filter(move |(_, one)| is_considered(one) && lacks(one))
            .map(|(position, _)| position)
    }

    /// The charges of a request, in file order. Empty when no rule applies. An enforced rule whose cost attribute is
    /// not a number is an error; a shadow rule is left out then.
    pub fn charges(&self, request: &impl Request) -> Result<Vec<Charge>, CostError> {
        let mut charges = Vec::new();
        let mut key = Key::default();
        self.each_charge(request, &mut key, |position, key, cost| {
            charges.push(Charge::new(self.rules[position].clone(), std::mem::take(key), cost));
        })?;
        Ok(charges)
    }

    /// Calls `each` with the position of every rule that applies, in file order, its key and its cost: what [`Policy::charges`]
    /// returns, for callers that look at millions of requests. The key is written over for the next rule.
    pub fn each_charge(
        &self,
        request: &impl Request,
        key: &mut Key,
        mut each: impl FnMut(usize, &mut Key, u32),
    ) -> Result<(), CostError> {
        let mut candidates = Cow::Borrowed(self.always.as_slice());
        for index in &self.by_attribute {
            if let Some(value) = request.attribute(&index.attribute) {
                index.look_up(&value, &mut candidates);
            }
        }
        if let Cow::Owned(found) = &mut candidates {
            found.sort_unstable();
            found.dedup();
        }
        for (position, rule) in candidates.iter().map(|position| (*position, &self.rules[*position])) {
            if !request.considers(rule.name()) || !rule.matches(request) {
                continue;
            }
            if rule.key_into(request, key).is_err() {
                continue;
            }
            match rule.cost_of(request) {
                Ok(cost) => each(position, key, cost),
                Err(error) if rule.is_enforced() => return Err(error),
                // A shadow rule never stops a request, even with an invalid cost.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl AttributeIndex {
    fn file(&mut self, filing: Filing<'_>, position: usize) {
        let rules = match filing {
            Filing::Exact(_, value) => {
                self.exact_lengths |= length_bit(value);
                self.exact.entry(value.to_string()).or_default()
            }
            Filing::Prefix(_, prefix) => {
                if let Err(place) = self.prefix_lengths.binary_search(&prefix.len()) {
                    self.prefix_lengths.insert(place, prefix.len());
                }
                self.prefixes.entry(prefix.to_string()).or_default()
            }
        };
        if rules.last() != Some(&position) {
            rules.push(position);
        }
    }

    fn look_up(&self, value: &str, found: &mut Cow<'_, [usize]>) {
        if self.exact_lengths & length_bit(value) != 0
            && let Some(rules) = self.exact.get(value)
        {
            found.to_mut().extend(rules);
        }
        for length in &self.prefix_lengths {
            if let Some(rules) = value.get(..*length).and_then(|prefix| self.prefixes.get(prefix)) {
                found.to_mut().extend(rules);
            }
        }
    }
}

/// The last bit stands for all longer values.
fn length_bit(value: &str) -> u64 {
    1 << value.len().min(63)
}

/// Where a condition can be looked up: attribute, and value or prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Filing<'r> {
    Exact(&'r str, &'r str),
    Prefix(&'r str, &'r str),
}

fn filings(condition: &Condition) -> impl Iterator<Item = Filing<'_>> {
    condition.patterns().iter().map(|pattern| match pattern.exact() {
        Some(value) => Filing::Exact(condition.attribute(), value),
        None => Filing::Prefix(condition.attribute(), pattern.prefix()),
    })
}

/// How many rules could be filed under each value or prefix.
fn popularity(rules: &[Arc<Rule>]) -> HashMap<Filing<'_>, usize> {
    let mut popularity = HashMap::new();
    for filing in rules.iter().flat_map(|rule| rule.when().iter().flat_map(filings)) {
        *popularity.entry(filing).or_insert(0) += 1;
    }
    popularity
}

fn requirements(rules: &[Arc<Rule>]) -> Vec<Requirement> {
    let mut by_attributes: BTreeMap<BTreeSet<Vec<String>>, Vec<usize>> = BTreeMap::new();
    for (position, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.is_active()) {
        let needs: BTreeSet<Vec<String>> = rule.needs().collect();
        if !needs.is_empty() {
            by_attributes.entry(needs).or_default().push(position);
        }
    }
    by_attributes
        .into_iter()
        .map(|(attributes, rules)| Requirement { attributes: attributes.into_iter().collect(), rules })
        .collect()
}
