//! One quota, any key, in this process: the shortest path to a decision.

use std::cell::RefCell;
use std::sync::Arc;

use napi::bindgen_prelude::{Either3, Float64Array, Float64ArraySlice, ToNapiValue, Uint8Array, Uint8ArraySlice};
use napi::sys;
use napi_derive::napi;
use tollkeeper::{Decision, FailurePolicy, Hold, Timestamp};
use tollkeeper_engine::{Error, Kind};

use crate::call::{Arguments, Callable, Callee, unexpected};
use crate::clock::{ManualClock, seconds};
use crate::errors::{Raised, raise};
use crate::quota::Quota;

/// One quota for every key.
#[napi]
pub struct Keyed(Arc<tollkeeper::Keyed>);

/// A key by its kind: `"1"` and `1` are two keys, and bytes are a third kind.
enum Key<'k> {
    Text(&'k str),
    Bytes(&'k [u8]),
    Number(f64),
}

/// A key where speed does not matter.
type AnyKey = Either3<String, f64, Uint8Array>;

fn of(key: &AnyKey) -> Key<'_> {
    match key {
        Either3::A(text) => Key::Text(text),
        Either3::B(number) => Key::Number(*number),
        Either3::C(bytes) => Key::Bytes(bytes),
    }
}

/// Runs code with a key.
macro_rules! with_key {
    ($key:expr, |$known:ident| $do:expr) => {
        match $key {
            Key::Text($known) => $do,
            Key::Bytes(bytes) => {
                let $known = &(1_u8, bytes);
                $do
            }
            Key::Number(number) => {
                // Adding zero makes one key of 0 and -0.
                let $known = &(2_u8, (number + 0.0).to_bits());
                $do
            }
        }
    };
}

#[napi]
impl Keyed {
    /// Limits each key by this quota.
    #[napi(constructor)]
    pub fn new(
        quota: &Quota,
        max_keys: Option<u32>,
        on_full: String,
        clock: Option<&ManualClock>,
    ) -> Result<Keyed, Raised> {
        let wrong = |problem: String| raise(Error::new(Kind::Config, problem));
        let keyed = tollkeeper::keyed(quota.0).map_err(|error| wrong(error.to_string()))?;
        let on_full = match on_full.as_str() {
            "local" => FailurePolicy::Local,
            "open" => FailurePolicy::Open,
            "closed" => FailurePolicy::Closed,
            other => {
                return Err(wrong(format!("onFull: {other:?} is not supported; use local, open or closed")));
            }
        };
        let keyed = keyed.with_clock(ManualClock::or_system(clock)).on_full(on_full);
        Ok(Keyed(Arc::new(match max_keys {
            Some(0) => return Err(wrong("maxKeys: must be at least 1".into())),
            Some(max_keys) => keyed
                .try_with_max_keys(max_keys as usize)
                .map_err(|error| wrong(format!("maxKeys: {error}; use fewer")))?,
            None => keyed,
        })))
    }

    /// A function that decides requests for keys that are strings or numbers: see [`Check`].
    #[napi]
    pub fn checker(&self, into: Float64Array) -> Callable<Check> {
        Callable(Check { keyed: self.0.clone(), into: RefCell::new(into) })
    }

    /// Decides a request for a key of bytes; the decision is written to `into`, see [`write`].
    #[napi]
    pub fn check_bytes(&self, key: Uint8ArraySlice<'_>, cost: u32, mut into: Float64ArraySlice<'_>) -> bool {
        let decision = with_key!(Key::Bytes(&key), |known| self.0.check_cost(known, cost));
        // SAFETY: JavaScript does not run in the meantime, so nothing else accesses it.
        write(&decision, unsafe { into.as_mut() })
    }

    /// The answer to a request of cost 1 now; nothing is charged.
    #[napi]
    pub fn peek(&self, key: AnyKey, mut into: Float64ArraySlice<'_>) -> bool {
        let decision = with_key!(of(&key), |known| self.0.peek(known));
        // SAFETY: JavaScript does not run in the meantime, so nothing else accesses it.
        write(&decision, unsafe { into.as_mut() })
    }

    /// Resets a key; false when there was nothing to reset.
    #[napi]
    pub fn reset(&self, key: AnyKey) -> bool {
        with_key!(of(&key), |known| self.0.reset(known))
    }

    /// Releases a slot; false when it was already free.
    #[napi]
    pub fn release(&self, key: AnyKey, at: f64, nth: u32) -> bool {
        let hold = Hold { at: Timestamp::from_micros(at as u64), nth };
        with_key!(of(&key), |known| self.0.release(known, hold))
    }

    /// The number of keys kept, some of which may be idle by now.
    #[napi(getter)]
    pub fn size(&self) -> f64 {
        self.0.len() as f64
    }
}

/// Decides a request: key, a string or a number, and cost. Returns whether it passes, and writes the decision to an array,
/// see [`write`].
pub struct Check {
    keyed: Arc<tollkeeper::Keyed>,
    into: RefCell<Float64Array>,
}

impl Callee for Check {
    const NAME: &'static str = "check";

    fn call(&self, arguments: &Arguments) -> Result<sys::napi_value, Raised> {
        let cost = arguments.whole(1)?;
        let decision = match arguments.as_text(0) {
            Some(text) => self.keyed.check_cost(text.as_str(), cost),
            None => with_key!(Key::Number(arguments.number(0)?), |known| self.keyed.check_cost(known, cost)),
        };
        let mut into = self.into.borrow_mut();
        // SAFETY: JavaScript does not run in the meantime, so nothing else accesses it.
        let is_allowed = write(&decision, unsafe { into.as_mut() });
        // SAFETY: the environment of the call.
        unsafe { bool::to_napi_value(arguments.env, is_allowed) }.map_err(unexpected)
    }
}

/// A decision as numbers: limit, remaining, retry_after (negative: never), reset_after, delay, and the slot
/// (negative: none) as time and number. `lib/keyed.js` reads them in this order.
fn write(decision: &Decision, into: &mut [f64]) -> bool {
    let (at, nth) = decision.hold.map_or((-1.0, 0.0), |hold| (hold.at.as_micros() as f64, f64::from(hold.nth)));
    let numbers = [
        f64::from(decision.limit),
        f64::from(decision.remaining),
        decision.retry_after().map_or(-1.0, |wait| seconds(wait.as_micros())),
        seconds(decision.reset_after.as_micros()),
        seconds(decision.delay().as_micros()),
        at,
        nth,
    ];
    into.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
    decision.is_allowed()
}
