//! What was said to an HTTP request. Whatever limits it (a middleware, then a route) adds to the outermost layer, which has the
//! headers of all: none overwrites another's.

use napi::bindgen_prelude::External;
use napi_derive::napi;
use tollkeeper::http::Answer;
use tollkeeper_engine::{Checked, Slots};

/// A verdict with what the request occupies, or a refusal because of what a request says of itself.
pub enum Layer {
    Verdict(Checked, Option<Slots>),
    Refusal(Answer),
}

impl Layer {
    /// The limit headers, names and values in turn. `retry-after` belongs to a denial, and comes with its answer.
    pub(crate) fn limits(&self) -> Vec<String> {
        match self {
            Layer::Verdict(checked, _) => {
                let headers = checked.headers().into_iter().filter(|(name, _)| name != "retry-after");
                headers.flat_map(|(name, value)| [name, value]).collect()
            }
            Layer::Refusal(_) => Vec::new(),
        }
    }
}

/// What a denied request gets.
#[napi(object)]
pub struct Denial {
    /// The status.
    pub status: u16,
    /// Headers, names and values in turn.
    pub headers: Vec<String>,
    /// The body.
    pub body: String,
}

/// The answer to a denied request; `limits` says whether limit headers are in it.
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
pub fn join(outer: &mut External<Layer>, inner: &External<Layer>) -> Vec<String> {
    if let (Layer::Verdict(all, _), Layer::Verdict(checked, _)) = (&mut **outer, &**inner) {
        *all = all.and(checked);
    }
    outer.limits()
}

/// Gives the slots back: the request is over.
#[napi]
pub fn release(layer: &mut External<Layer>) {
    if let Layer::Verdict(_, slots) = &mut **layer {
        *slots = None;
    }
}

/// The verdict of a layer as `check` has it; nothing for a refusal.
#[napi]
pub fn verdict(layer: &External<Layer>) -> Option<crate::answers::Answer> {
    match &**layer {
        Layer::Verdict(checked, _) => Some(crate::answers::Answer::Verdict(checked.clone())),
        Layer::Refusal(_) => None,
    }
}
