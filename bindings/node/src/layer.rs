//! The verdicts on an HTTP request. Each layer that limits it (middleware, then a route) adds its verdict to the
//! outermost one, which writes the headers of all, so that none overwrites another's.
//!
//! Layers are kept in pages: JavaScript refers to a layer by its page and its number on it, so that the collector has one
//! object to finalize for many requests. A page is freed when no request refers to it any more. That is much later than
//! the decision, so a page keeps the rows of its verdicts side by side: memory that is freed late and piece by piece costs
//! more than the decision.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use tollkeeper::http::{Answer, AnswerStyle, PlainAnswer};
use tollkeeper::{Charge, Decision, Key, Row, Rule, Source, Terms, Timestamp, Verdict};
use tollkeeper_engine::{Ask, Checked, Engine, Estimate, Slots};

use crate::answers::{Answer as Answered, Audience, answered};
use crate::clock::seconds;
use crate::errors::Raised;
use crate::record::Record;

/// A verdict with what the request holds, or a refusal because its identity is contradictory or missing.
pub(crate) enum Layer {
    Verdict(Checked, Holds),
    Refusal(Answer),
}

/// What a request holds.
#[derive(Default)]
pub(crate) struct Holds {
    pub(crate) slots: Option<Slots>,
    /// What it was charged, if that may be given back. Boxed, because few are.
    pub(crate) charge: Option<Box<Provisional>>,
}

/// The charge of a request that counts, unless it turns out that it does not.
pub(crate) struct Provisional {
    pub(crate) engine: Arc<Engine>,
    pub(crate) estimate: Estimate,
}

/// Layers in the order of their answers.
pub struct Page(RefCell<Kept>);

/// How many layers a page has. A request that takes long keeps a whole page, so it is not a large one.
pub(crate) const PAGE: usize = 32;

impl Page {
    fn new() -> Rc<Page> {
        let (layers, rows) = (Vec::with_capacity(PAGE), Vec::with_capacity(PAGE));
        Rc::new(Page(RefCell::new(Kept { layers, rows, keys: String::with_capacity(PAGE * 16) })))
    }
}

/// What a page has.
struct Kept {
    layers: Vec<KeptLayer>,
    rows: Vec<KeptRow>,
    /// One after the other.
    keys: String,
}

enum KeptLayer {
    Verdict { rows: Range<usize>, now: Timestamp, style: AnswerStyle, holds: Holds },
    Refusal(Answer),
}

/// A row of a verdict.
struct KeptRow {
    rule: Arc<Rule>,
    variant: u16,
    key: Range<usize>,
    cost: u32,
    terms: Option<Arc<Terms>>,
    decision: Decision,
    source: Source,
}

impl Kept {
    fn push(&mut self, layer: Layer) {
        let layer = match layer {
            Layer::Verdict(Checked { verdict, now, style }, holds) => {
                KeptLayer::Verdict { rows: self.push_rows(&verdict), now, style, holds }
            }
            Layer::Refusal(answer) => KeptLayer::Refusal(answer),
        };
        self.layers.push(layer);
    }

    fn push_rows(&mut self, verdict: &Verdict) -> Range<usize> {
        let start = self.rows.len();
        for Row { charge, decision, source } in verdict.rows() {
            let key_start = self.keys.len();
            self.keys.push_str(&charge.key.value);
            self.rows.push(KeptRow {
                rule: charge.rule.clone(),
                variant: charge.key.variant,
                key: key_start..self.keys.len(),
                cost: charge.cost,
                terms: charge.terms().cloned(),
                decision: *decision,
                source: *source,
            });
        }
        start..self.rows.len()
    }

    /// The verdict of a layer; nothing for a refusal.
    fn checked(&self, number: u32) -> Option<Checked> {
        let KeptLayer::Verdict { rows, now, style, .. } = self.layers.get(number as usize)? else { return None };
        let rows = self.rows[rows.clone()].iter().map(|kept| {
            let key = Key { variant: kept.variant, value: self.keys[kept.key.clone()].to_string() };
            let charge = Charge::new(kept.rule.clone(), key, kept.cost);
            let charge = match &kept.terms {
                Some(terms) => charge.on(terms.clone()),
                None => charge,
            };
            Row { charge, decision: kept.decision, source: kept.source }
        });
        let verdict = Arc::new(Verdict::new(rows.collect()));
        Some(Checked { verdict, now: *now, style: style.clone() })
    }
}

/// The page that is being filled. Each copy of the JavaScript modules on a thread has its own: test runners load several.
pub struct Pages(RefCell<Rc<Page>>);

impl Pages {
    /// Starts another page unless this one has room for so many layers.
    pub(crate) fn make_room(&self, layers: usize) {
        let is_full = self.0.borrow().0.borrow().layers.len() + layers > PAGE;
        if is_full {
            self.0.replace(Page::new());
        }
    }

    /// Keeps a layer, and returns its text, see [`Layer::write`]. The first of a page makes JavaScript ask for the page: see
    /// [`page`].
    pub(crate) fn keep(&self, layer: Layer) -> String {
        self.make_room(1);
        let page = self.0.borrow();
        let mut kept = page.0.borrow_mut();
        let text = layer.write(kept.layers.len() as u8);
        kept.push(layer);
        text
    }
}

/// Where layers are kept.
#[napi]
pub fn pages() -> External<Rc<Pages>> {
    External::new(Rc::new(Pages(RefCell::new(Page::new()))))
}

/// The page that is being filled.
#[napi]
pub fn page(pages: &External<Rc<Pages>>) -> External<Rc<Page>> {
    External::new(pages.0.borrow().clone())
}

impl Layer {
    /// The answer as `lib/guard.js` reads it. It starts with the outcome and the number on its page, a character
    /// each. A request that passes (`0`) has the values of the limit headers, one per line. If it has to wait for its turn
    /// (`1`) the first line is the delay. One that does not pass (`2`) has a response, see [`respond`].
    fn write(&self, number: u8) -> String {
        let mut text = String::with_capacity(128);
        let mut begin = |outcome: char| text.extend([outcome, char::from(number)]);
        match self {
            Layer::Verdict(checked, _) if checked.verdict.is_allowed() => {
                match checked.verdict.delay().as_micros() {
                    0 => begin('0'),
                    delay => {
                        begin('1');
                        // Writing to a string cannot fail.
                        let _ = writeln!(text, "{}", seconds(delay));
                    }
                }
                limits(checked, &mut text);
            }
            Layer::Verdict(checked, _) => {
                begin('2');
                text.reserve(512);
                let PlainAnswer { status, headers, body } = checked.deny_plainly();
                let fields = headers.iter().map(|(name, value)| (*name, &**value));
                respond(status.as_u16(), fields, &body, &mut text);
            }
            Layer::Refusal(answer) => {
                begin('2');
                refuse(answer, &mut text);
            }
        }
        text
    }
}

/// The values of the limit headers, one per line. `retry-after` belongs to a denial, and comes with its response.
fn limits(checked: &Checked, into: &mut String) {
    for (index, header) in checked.limits().enumerate() {
        if index > 0 {
            into.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = header.write(into);
    }
}

/// A response: the status, then names and values of headers, each on its own line; an empty line, and the body.
fn respond<'f>(status: u16, fields: impl Iterator<Item = (&'f str, &'f str)>, body: &str, into: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(into, "{status}");
    for (name, value) in fields {
        for part in ["\n", name, "\n", value] {
            into.push_str(part);
        }
    }
    into.push_str("\n\n");
    into.push_str(body);
}

/// The response to a request without a verdict.
fn refuse(answer: &Answer, into: &mut String) {
    let fields = answer.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    respond(answer.status.as_u16(), fields, &String::from_utf8_lossy(&answer.body), into);
}

/// The response to a request that a layer denied, without limit headers: an outer layer has those of both.
#[napi]
pub fn denial(page: &External<Rc<Page>>, number: u32) -> String {
    let mut text = String::new();
    let kept = page.0.borrow();
    if let Some(checked) = kept.checked(number) {
        let PlainAnswer { status, headers, body } = checked.deny_plainly();
        let is_limit = |name: &str| checked.style.headers.names().contains(&name);
        let fields = headers.iter().filter(|(name, _)| !is_limit(name)).map(|(name, value)| (*name, &**value));
        respond(status.as_u16(), fields, &body, &mut text);
    } else if let Some(KeptLayer::Refusal(answer)) = kept.layers.get(number as usize) {
        refuse(answer, &mut text);
    }
    text
}

/// Adds an inner layer's verdict to an outer one; returns names and values of the limit headers of both, each on its own
/// line. Headers that the outer one wrote in another style have an empty value.
#[napi]
pub fn join(outer: &External<Rc<Page>>, number: u32, inner: &External<Rc<Page>>, inner_number: u32) -> String {
    let added = inner.0.borrow().checked(inner_number);
    let mut kept = outer.0.borrow_mut();
    let Some(mut all) = kept.checked(number) else { return String::new() };
    let before = all.style.headers.names();
    if let Some(checked) = added {
        all = all.and(&checked);
        let joined = kept.push_rows(&all.verdict);
        if let Some(KeptLayer::Verdict { rows, now, style, .. }) = kept.layers.get_mut(number as usize) {
            (*rows, *now, *style) = (joined, all.now, all.style.clone());
        }
    }
    let mut lines: Vec<String> =
        all.limits().flat_map(|header| [header.name.to_string(), header.to_string()]).collect();
    let stale = before.iter().filter(|name| !all.style.headers.names().contains(name));
    lines.extend(stale.flat_map(|name| [name.to_string(), String::new()]));
    lines.join("\n")
}

/// Releases the slots: the request has ended.
#[napi]
pub fn release(page: &External<Rc<Page>>, number: u32) {
    let released = match page.0.borrow_mut().layers.get_mut(number as usize) {
        Some(KeptLayer::Verdict { holds, .. }) => holds.slots.take(),
        _ => None,
    };
    drop(released);
}

/// Gives back what the request was charged, once: it does not count. Returns nothing if that ends later, under this ticket.
#[napi]
pub fn give_back(page: &External<Rc<Page>>, number: u32, ticket: u32) -> Result<Option<Answered>, Raised> {
    let charge = match page.0.borrow_mut().layers.get_mut(number as usize) {
        Some(KeptLayer::Verdict { holds, .. }) => holds.charge.take(),
        _ => None,
    };
    let Some(Provisional { engine, estimate }) = charge.map(|charge| *charge) else {
        return Ok(Some(Answered::Flag(false)));
    };
    answered(&engine, engine.ask(Ask::GiveBack(estimate)), Audience::Caller, ticket)
}

/// The verdict of a layer as from `check`; nothing for a refusal.
#[napi]
pub fn verdict(page: &External<Rc<Page>>, number: u32) -> Option<Record> {
    page.0.borrow().checked(number).map(|checked| crate::verdict::verdict(&checked))
}
