//! The verdicts on an HTTP request. Each layer that limits it (middleware, then a route) adds its verdict to the
//! outermost one, which writes the headers of all, so that none overwrites another's.

use napi::bindgen_prelude::External;
use napi_derive::napi;
use tollkeeper::http::Answer;
use tollkeeper_engine::{Checked, Slots};

/// A verdict with the slots of the request, or a refusal because its identity is contradictory or missing.
pub enum Layer {
    Verdict(Checked, Option<Slots>),
    Refusal(Answer),
}

impl Layer {
    /// The limit headers in one text, a name or a value per line: one text crosses over at a fraction of the cost of a
    /// list. `retry-after` belongs to a denial, and comes with its response.
    pub(crate) fn limits(&self) -> String {
        let Layer::Verdict(checked, _) = self else { return String::new() };
        let mut text = String::with_capacity(128);
        for (name, value) in checked.limits() {
            let end = if text.is_empty() { "" } else { "\n" };
            for part in [end, name, "\n", &value] {
                text.push_str(part);
            }
        }
        text
    }
}

/// The response to a denied request.
#[napi(object)]
pub struct Denial {
    /// The status.
    pub status: u16,
    /// Headers, names and values in turn.
    pub headers: Vec<String>,
    /// The body.
    pub body: String,
}

/// The response to a denied request; `limits` says whether it includes limit headers.
#[napi]
pub fn denial(layer: &External<Layer>, limits: bool) -> Denial {
    let answer = match &**layer {
        Layer::Verdict(checked, _) => {
            let mut answer = checked.deny();
            if !limits {
                for name in checked.style.headers_for(&checked.verdict, checked.now).keys() {
                    answer.headers.remove(name);
                }
            }
            answer
        }
        Layer::Refusal(answer) => answer.clone(),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = answer.headers.iter().flat_map(|(name, value)| [name.to_string(), text(value.as_bytes())]).collect();
    Denial { status: answer.status.as_u16(), headers, body: text(&answer.body) }
}

/// Adds an inner layer's verdict to an outer one; returns the limit headers of both.
#[napi]
pub fn join(outer: &mut External<Layer>, inner: &External<Layer>) -> String {
    if let (Layer::Verdict(all, _), Layer::Verdict(checked, _)) = (&mut **outer, &**inner) {
        *all = all.and(checked);
    }
    outer.limits()
}

/// Releases the slots: the request has ended.
#[napi]
pub fn release(layer: &mut External<Layer>) {
    if let Layer::Verdict(_, slots) = &mut **layer {
        *slots = None;
    }
}

/// The verdict of a layer as from `check`; nothing for a refusal.
#[napi]
pub fn verdict(layer: &External<Layer>) -> Option<crate::answers::Answer> {
    match &**layer {
        Layer::Verdict(checked, _) => Some(crate::answers::Answer::Verdict(checked.clone())),
        Layer::Refusal(_) => None,
    }
}
