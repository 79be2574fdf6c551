//! The verdicts on an HTTP request. Each layer that limits it (middleware, then a route) adds its verdict to the
//! outermost one, which writes the headers of all, so that none overwrites another's.
//!
//! Layers are kept in pages: JavaScript refers to a layer by its page and its number on it, so that the collector has one
//! object to finalize for many requests. A page is freed when no request refers to it any more.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use tollkeeper::http::{Answer, PlainAnswer};
use tollkeeper_engine::{Checked, Slots};

use crate::clock::seconds;
use crate::record::Record;

/// A verdict with the slots of the request, or a refusal because its identity is contradictory or missing.
pub(crate) enum Layer {
    Verdict(Checked, Option<Slots>),
    Refusal(Answer),
}

/// Layers in the order of their answers.
pub struct Page(RefCell<Vec<Layer>>);

/// How many layers a page has. A request that takes long keeps a whole page, so it is not a large one.
pub(crate) const PAGE: usize = 32;

impl Page {
    fn new() -> Rc<Page> {
        Rc::new(Page(RefCell::new(Vec::with_capacity(PAGE))))
    }
}

/// The page that is being filled. Each copy of the JavaScript modules on a thread has its own: test runners load several.
pub struct Pages(RefCell<Rc<Page>>);

impl Pages {
    /// Starts another page unless this one has room for so many layers.
    pub(crate) fn make_room(&self, layers: usize) {
        let is_full = self.0.borrow().0.borrow().len() + layers > PAGE;
        if is_full {
            self.0.replace(Page::new());
        }
    }

    /// Keeps a layer, and returns its text, see [`Layer::write`]. The first of a page makes JavaScript ask for the page: see
    /// [`page`].
    pub(crate) fn keep(&self, layer: Layer) -> String {
        self.make_room(1);
        let page = self.0.borrow();
        let mut layers = page.0.borrow_mut();
        let text = layer.write(layers.len() as u8);
        layers.push(layer);
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
    for (index, (_, value)) in checked.limits().into_iter().enumerate() {
        if index > 0 {
            into.push('\n');
        }
        into.push_str(&value);
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
    match page.0.borrow().get(number as usize) {
        Some(Layer::Verdict(checked, _)) => {
            let PlainAnswer { status, headers, body } = checked.deny_plainly();
            let is_limit = |name: &str| checked.style.headers.names().contains(&name);
            let fields = headers.iter().filter(|(name, _)| !is_limit(name)).map(|(name, value)| (*name, &**value));
            respond(status.as_u16(), fields, &body, &mut text);
        }
        Some(Layer::Refusal(answer)) => refuse(answer, &mut text),
        None => {}
    }
    text
}

/// Adds an inner layer's verdict to an outer one; returns the values of the limit headers of both, in the style of the
/// inner one.
#[napi]
pub fn join(outer: &External<Rc<Page>>, number: u32, inner: &External<Rc<Page>>, inner_number: u32) -> String {
    let added = match inner.0.borrow().get(inner_number as usize) {
        Some(Layer::Verdict(checked, _)) => Some(checked.clone()),
        _ => None,
    };
    let mut text = String::new();
    if let Some(Layer::Verdict(all, _)) = outer.0.borrow_mut().get_mut(number as usize) {
        if let Some(checked) = added {
            *all = all.and(&checked);
        }
        limits(all, &mut text);
    }
    text
}

/// Releases the slots: the request has ended.
#[napi]
pub fn release(page: &External<Rc<Page>>, number: u32) {
    let released = match page.0.borrow_mut().get_mut(number as usize) {
        Some(Layer::Verdict(_, slots)) => slots.take(),
        _ => None,
    };
    drop(released);
}

/// The verdict of a layer as from `check`; nothing for a refusal.
#[napi]
pub fn verdict(page: &External<Rc<Page>>, number: u32) -> Option<Record> {
    match page.0.borrow().get(number as usize) {
        Some(Layer::Verdict(checked, _)) => Some(crate::verdict::verdict(checked)),
        _ => None,
    }
}
