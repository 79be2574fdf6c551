//! What is known about a request: named attributes, and its cost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Anything with attributes. Fronts look up an attribute only when a rule needs it.
pub trait Request {
    /// The value of an attribute, if the request has it.
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>>;

    /// What the request costs; each rule multiplies it by its own cost. 0 peeks.
    fn cost(&self) -> u32 {
        1
    }

    /// Whether the rule of this name is considered. All are, by default.
    fn considers(&self, _rule: &str) -> bool {
        true
    }

    /// Whether an empty value is a value like any other, with a bucket of its own. By default it counts as absent, since an
    /// empty header identifies nobody.
    fn keeps_empty(&self) -> bool {
        false
    }
}

impl<R: Request + ?Sized> Request for &R {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        (**self).attribute(name)
    }

    fn cost(&self) -> u32 {
        (**self).cost()
    }

    fn considers(&self, rule: &str) -> bool {
        (**self).considers(rule)
    }

    fn keeps_empty(&self) -> bool {
        (**self).keeps_empty()
    }
}

/// An attribute as rules see it: an address under the name `ip` in its usual spelling, so that one client has one bucket
/// however its address is written. Anything else is left as it is.
///
/// ```
/// use tollkeeper_core::usual_spelling;
/// assert_eq!(usual_spelling("ip", "2001:DB8:0:0::1"), "2001:db8::1");
/// assert_eq!(usual_spelling("ip", "::ffff:192.0.2.7"), "192.0.2.7");
/// assert_eq!(usual_spelling("user", "2001:DB8::1"), "2001:DB8::1");
/// ```
pub fn usual_spelling<'v>(name: &str, value: &'v str) -> Cow<'v, str> {
    // An IPv4 address has only one spelling.
    if name != "ip" || !value.contains(':') {
        return Cow::Borrowed(value);
    }
    match value.parse::<IpAddr>() {
        Ok(address) => Cow::Owned(address.to_canonical().to_string()),
        Err(_) => Cow::Borrowed(value),
    }
}

/// A request as a flat map of names to strings.
///
/// ```
/// use tollkeeper_core::Descriptor;
/// let request = Descriptor::new([("user_id", "42"), ("plan", "free")]).with_cost(3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    attributes: BTreeMap<String, String>,
    cost: u32,
    /// The rules that are considered, if not all.
    rules: Option<Vec<String>>,
}

impl Default for Descriptor {
    fn default() -> Self {
        BTreeMap::new().into()
    }
}

impl Descriptor {
    /// A request of cost 1 with these attributes.
    pub fn new<N: Into<String>, V: Into<String>>(attributes: impl IntoIterator<Item = (N, V)>) -> Self {
        attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect::<BTreeMap<_, _>>().into()
    }

    /// The same request at another cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// The same request, decided by these rules only. Whether a policy has them is for [`Policy::rule`](crate::Policy::rule)
    /// to tell; names that it does not have are never considered.
    ///
    /// ```
    /// use tollkeeper_core::{Descriptor, Policy, Rule};
    ///
    /// let rule = |name| Rule::new(name).key("{ip}").limit("5/min");
    /// let policy = Policy::new([rule("login"), rule("search")])?;
    /// let request = Descriptor::new([("ip", "192.0.2.1")]).with_rules(["login"]);
    /// let charges = policy.charges(&request).expect("costs are numbers");
    /// assert_eq!(charges.len(), 1);
    /// assert_eq!(charges[0].rule.name(), "login");
    /// # Ok::<(), tollkeeper_core::PolicyErrors>(())
    /// ```
    #[must_use]
    pub fn with_rules<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.rules = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// The names of the rules to apply, if not all.
    pub fn rules(&self) -> Option<&[String]> {
        self.rules.as_deref()
    }

    /// The attributes by name.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }
}

impl From<BTreeMap<String, String>> for Descriptor {
    fn from(attributes: BTreeMap<String, String>) -> Self {
        Descriptor { attributes, cost: 1, rules: None }
    }
}

impl Request for Descriptor {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.get(name).map(|value| usual_spelling(name, value))
    }

    fn cost(&self) -> u32 {
        self.cost
    }

    fn considers(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|names| names.iter().any(|name| name == rule))
    }
}
