//! Reads JSON strictly: every mistake is named with its place, its value and what to do.
//!
//! What is wrong with the content is a complaint kept beside serde's error, because that knows no places.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{self, Display};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::explain::nearest;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// The place, such as `checks[3].cost`; empty when it is the whole.
    pub(crate) field: String,
    /// What is wrong with it and what to do.
    pub(crate) problem: String,
}

impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}

/// Where the reader is: a list on the stack that becomes text only when something is wrong.
#[derive(Clone, Copy)]
enum Place<'p> {
    Whole,
    Field(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Field(Place::Whole, name) => f.write_str(&shortened(name)),
            Place::Field(parent, name) => write!(f, "{parent}.{}", shortened(name)),
            Place::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A place, and where a complaint about it goes.
#[derive(Clone, Copy)]
pub(super) struct At<'p> {
    complaint: &'p RefCell<Option<Invalid>>,
    place: Place<'p>,
}

impl<'p> At<'p> {
    /// The beginning, with a place for the complaint.
    pub(super) fn whole(complaint: &'p RefCell<Option<Invalid>>) -> At<'p> {
        At { complaint, place: Place::Whole }
    }

    pub(super) fn field<'s>(&'s self, name: &'s str) -> At<'s> {
        At { complaint: self.complaint, place: Place::Field(&self.place, name) }
    }

    pub(super) fn item<'s>(&'s self, index: usize) -> At<'s> {
        At { complaint: self.complaint, place: Place::Item(&self.place, index) }
    }

    pub(super) fn invalid(&self, problem: impl Display) -> Invalid {
        Invalid { field: self.place.to_string(), problem: problem.to_string() }
    }

    /// Ends the reading.
    pub(super) fn refuse<E: de::Error>(&self, problem: impl Display) -> E {
        self.complaint.replace(Some(self.invalid(problem)));
        E::custom("refused")
    }
}

/// One kind of value that is wanted somewhere; whatever else stands there is refused.
pub(super) trait Wanted<'b>: Sized {
    type Value;

    /// Refuses what stands there instead, given as people would call it.
    fn refuse<E: de::Error>(self, seen: impl Display) -> E;

    fn text<E: de::Error>(self, text: Cow<'b, str>) -> Result<Self::Value, E> {
        Err(self.refuse(quoted(&text)))
    }

    fn whole<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Err(self.refuse(number))
    }

    fn list<A: SeqAccess<'b>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(self.refuse("a list"))
    }

    fn object<A: MapAccess<'b>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(self.refuse("an object"))
    }
}

/// Reads what is wanted.
pub(super) struct Want<W>(pub(super) W);

impl<'b, W: Wanted<'b>> DeserializeSeed<'b> for Want<W> {
    type Value = W::Value;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<W::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'b, W: Wanted<'b>> Visitor<'b> for Want<W> {
    type Value = W::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<W::Value, E> {
        Err(self.0.refuse("null"))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<W::Value, E> {
        Err(self.0.refuse(value))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<W::Value, E> {
        self.0.whole(number)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<W::Value, E> {
        match u64::try_from(number) {
            Ok(number) => self.0.whole(number),
            Err(_) => Err(self.0.refuse(number)),
        }
    }

    /// `1.0` and `1e3` are whole numbers too, as far as a double is exact.
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<W::Value, E> {
        const EXACT: f64 = (1u64 << 53) as f64;
        if number.fract() == 0.0 && (0.0..EXACT).contains(&number) {
            return self.0.whole(number as u64);
        }
        Err(self.0.refuse(number))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'b str) -> Result<W::Value, E> {
        self.0.text(Cow::Borrowed(text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<W::Value, E> {
        self.0.text(Cow::Owned(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'b>>(self, list: A) -> Result<W::Value, A::Error> {
        self.0.list(list)
    }

    fn visit_map<A: MapAccess<'b>>(self, object: A) -> Result<W::Value, A::Error> {
        self.0.object(object)
    }
}

/// The name of a field.
pub(super) struct Name;

impl<'b> Wanted<'b> for Name {
    type Value = Cow<'b, str>;

    fn refuse<E: de::Error>(self, _: impl Display) -> E {
        E::custom("a name is a string")
    }

    fn text<E: de::Error>(self, text: Cow<'b, str>) -> Result<Cow<'b, str>, E> {
        Ok(text)
    }
}

/// Fills a field in, unless it was there before: readers of JSON differ on which of two counts.
pub(super) fn once<'b, A: MapAccess<'b>, W: Wanted<'b>>(
    at: At<'_>,
    field: &mut Option<W::Value>,
    object: &mut A,
    want: W,
) -> Result<(), A::Error> {
    if field.is_some() {
        return Err(at.refuse(TWICE));
    }
    *field = Some(object.next_value_seed(Want(want))?);
    Ok(())
}

pub(super) const TWICE: &str = "is given twice; leave one out";

/// Any string.
pub(super) struct Text<'p>(pub(super) At<'p>);

impl<'b> Wanted<'b> for Text<'_> {
    type Value = Cow<'b, str>;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        self.0.refuse(format_args!("must be a string, not {seen}"))
    }

    fn text<E: de::Error>(self, text: Cow<'b, str>) -> Result<Cow<'b, str>, E> {
        Ok(text)
    }
}

/// A whole number up to `max`.
pub(super) struct Whole<'p> {
    pub(super) at: At<'p>,
    pub(super) max: u64,
    /// What the number means, for those who got it wrong.
    pub(super) what: &'static str,
}

impl<'b> Wanted<'b> for Whole<'_> {
    type Value = u64;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        self.at.refuse(format_args!("must be a whole number from 0 to {} ({}), not {seen}", self.max, self.what))
    }

    fn whole<E: de::Error>(self, number: u64) -> Result<u64, E> {
        if number > self.max { Err(self.refuse(number)) } else { Ok(number) }
    }
}

/// What to say about a name that is not known, with the one that was probably meant.
pub(crate) fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("is not known; did you mean `{nearest}`?"),
        None => format!("is not known; what can be here is {}", known.join(", ")),
    }
}

/// A text from outside, short enough to be repeated.
fn shortened(text: &str) -> Cow<'_, str> {
    const MAX: usize = 60;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A text from outside as it is shown in a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}
