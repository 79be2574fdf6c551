//! What is known of a request: named attributes, and its cost.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Anything that can be asked for its attributes. Fronts look an attribute up only when a rule wants it.
pub trait Request {
    /// The value of an attribute, if the request has it.
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>>;

    /// What the request costs; each rule multiplies it by its own cost. 0 peeks.
    fn cost(&self) -> u32 {
        1
    }
}

impl<R: Request + ?Sized> Request for &R {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        (**self).attribute(name)
    }

    fn cost(&self) -> u32 {
        (**self).cost()
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
}

impl Default for Descriptor {
    fn default() -> Self {
        Descriptor { attributes: BTreeMap::new(), cost: 1 }
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

    /// The attributes by name.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }
}

impl From<BTreeMap<String, String>> for Descriptor {
    fn from(attributes: BTreeMap<String, String>) -> Self {
        Descriptor { attributes, cost: 1 }
    }
}

impl Request for Descriptor {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.get(name).map(|value| Cow::Borrowed(value.as_str()))
    }

    fn cost(&self) -> u32 {
        self.cost
    }
}
