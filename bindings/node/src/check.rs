//! The two functions that decide: for attributes, and for the head of an HTTP request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use napi::bindgen_prelude::ToNapiValue;
use napi::sys;
use tollkeeper::{Descriptor, Request};
use tollkeeper_engine::{Ask, Engine, Error, Head, Progress, Subject};

use crate::answers::{Answer, Audience, answered};
use crate::call::{Arguments, Callee, Text, unexpected};
use crate::errors::Raised;
use crate::layer::Pages;

/// Decides a request: cost, ticket, the names of the rules to apply, if not all, and attributes: up to two as names and values, or more of
/// them as a flat list. Returns nothing if the answer comes later, under this ticket.
pub struct Check(pub(crate) Arc<Engine>);

impl Callee for Check {
    const NAME: &'static str = "check";

    fn call(&self, arguments: &Arguments) -> Result<sys::napi_value, Raised> {
        let (cost, ticket, rules) = (arguments.whole(0)?, arguments.whole(1)?, arguments.texts(2)?);
        let progress = match Few::read(arguments) {
            Some(few) if rules.is_none() => {
                let decided = self.0.check(&few.at(cost));
                decided.unwrap_or_else(|| self.ask(few.into_pairs(), cost, None))
            }
            Some(few) => self.ask(few.into_pairs(), cost, rules),
            None => self.ask(arguments.pairs(FIRST)?, cost, rules),
        };
        value(arguments, answered(&self.0, progress, Audience::Caller, ticket)?)
    }
}

impl Check {
    fn ask(&self, attributes: Vec<(String, String)>, cost: u32, rules: Option<Vec<String>>) -> Progress {
        self.0.ask(Ask::Check(Subject::Attributes(descriptor(attributes, cost, rules))))
    }
}

/// Where attributes start among the arguments.
const FIRST: usize = 3;

/// One or two attributes, still where they were read: nothing has to be allocated for a decision.
struct Few {
    one: (Text, Text),
    other: Option<(Text, Text)>,
}

impl Few {
    fn read(arguments: &Arguments) -> Option<Few> {
        let one = (arguments.as_text(FIRST)?, arguments.as_text(FIRST + 1)?);
        let other = arguments.as_text(FIRST + 2).zip(arguments.as_text(FIRST + 3));
        Some(Few { one, other })
    }

    fn at(&self, cost: u32) -> Costing<'_> {
        let other = self.other.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        Costing { one: (self.one.0.as_str(), self.one.1.as_str()), other, cost }
    }

    fn into_pairs(self) -> Vec<(String, String)> {
        let owned = |(name, value): (Text, Text)| (name.into_string(), value.into_string());
        std::iter::once(self.one).chain(self.other).map(owned).collect()
    }
}

/// A request by these attributes.
struct Costing<'f> {
    one: (&'f str, &'f str),
    other: Option<(&'f str, &'f str)>,
    cost: u32,
}

impl Request for Costing<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut all = std::iter::once(self.one).chain(self.other);
        all.find(|(known, _)| *known == name).map(|(_, value)| Cow::Borrowed(value))
    }

    fn cost(&self) -> u32 {
        self.cost
    }
}

/// Decides an HTTP request: the peer's address; method and target, if the rules need them; the headers that they need, as
/// the name and the value of the only one or as a list; attributes from the framework as a list; cost and ticket. The
/// answer is a layer, see `layer.rs`. Returns nothing if it comes later, under this ticket.
pub struct CheckHttp {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pages: Rc<Pages>,
    /// Whether charges may be given back.
    pub(crate) may_not_count: bool,
    /// The request that is being read: each uses the memory of the one before.
    pub(crate) head: RefCell<Head>,
}

impl Callee for CheckHttp {
    const NAME: &'static str = "checkHttp";

    fn call(&self, arguments: &Arguments) -> Result<sys::napi_value, Raised> {
        let CheckHttp { engine, pages, may_not_count, head } = self;
        let (cost, ticket) = (arguments.whole(6)?, arguments.whole(7)?);
        let mut head = head.borrow_mut();
        let progress = match read(engine, &mut head, arguments, cost)? {
            Ok(()) if *may_not_count => engine.reserve_http(&mut head),
            Ok(()) => engine.ask_http(&mut head),
            Err(error) => Progress::Ready(Err(error)),
        };
        value(arguments, answered(engine, progress, Audience::Middleware(pages), ticket)?)
    }
}

/// Reads the head of a request; the inner error is for the client.
fn read(engine: &Engine, head: &mut Head, arguments: &Arguments, cost: u32) -> Result<Result<(), Error>, Raised> {
    begin(head, arguments.text(0)?.as_ref().map(Text::as_str));
    head.set_cost(cost);
    if let Some(method) = arguments.text(1)? {
        head.set_method(method.as_bytes());
    }
    if let Some(target) = arguments.text(2)? {
        let target = latin1(target.as_str());
        let (path, query) = match target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (&target[..], &b""[..]),
        };
        if let Err(error) = head.set_target(path, query) {
            return Ok(Err(error));
        }
    }
    let mut add_header = |name: &[u8], value: &[u8]| {
        if let Some(name) = engine.header_name(name) {
            head.add_header(name, value);
        }
    };
    match (arguments.as_text(3), arguments.as_bytes(4)) {
        (Some(name), Some(value)) => add_header(name.as_bytes(), value.as_bytes()),
        _ => {
            for (name, value) in arguments.pairs(3)? {
                add_header(name.as_bytes(), &latin1(&value));
            }
        }
    }
    for (name, value) in arguments.pairs(5)? {
        head.know(name, value);
    }
    Ok(Ok(()))
}

/// An answer as the value of a call.
fn value(arguments: &Arguments, answer: Option<Answer>) -> Result<sys::napi_value, Raised> {
    // SAFETY: the environment of the call.
    unsafe { Option::<Answer>::to_napi_value(arguments.env, answer) }.map_err(unexpected)
}

/// A request by its attributes, decided by all rules or by these.
pub(crate) fn descriptor(attributes: Vec<(String, String)>, cost: u32, rules: Option<Vec<String>>) -> Descriptor {
    let request = Descriptor::new(attributes).with_cost(cost);
    match rules {
        Some(names) => request.with_rules(names),
        None => request,
    }
}

/// A head with the client's address from the server.
fn begin(head: &mut Head, address: Option<&str>) {
    let Some(text) = address.filter(|text| !text.is_empty()) else { return head.begin(None) };
    // A zone, as in `fe80::1%eth0`, only matters on this machine.
    match text.split('%').next().unwrap_or(text).parse::<IpAddr>() {
        Ok(address) => head.begin(Some(address)),
        Err(_) => {
            // The result of a caller's own `address` function. Clients cannot choose it.
            head.begin(None);
            head.know("ip", text);
        }
    }
}

/// Node passes bytes as Latin-1 strings.
fn latin1(text: &str) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return Cow::Borrowed(text.as_bytes());
    }
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect::<Vec<u8>>().into()
}
