//! Delivers answers to JavaScript: at once, or later with one wake-up for many.
//!
//! The I/O thread never runs JavaScript. It calls a thread-safe function, which makes the event loop take all answers
//! that are ready. The function does not keep the process alive; `keep_alive` does while a caller waits.

use std::cell::RefCell;
use std::sync::Arc;

use napi::bindgen_prelude::{Env, External, Function, ToNapiValue};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{JsError, sys};
use napi_derive::napi;
use tollkeeper_engine::{Checked, Engine, Error, Estimate, Mailbox, Progress, Reply, Slots, Work};

use crate::clock::seconds;
use crate::errors::{Raised, misused, raise};
use crate::hold::{Estimated, Held};
use crate::layer::Layer;
use crate::verdict::{buckets, details, settlement};

/// What to turn an answer into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// What a caller of the limiter gets.
    Plain,
    /// What middleware gets.
    Http,
}

/// The caller that waits for an answer.
struct Waiter {
    ticket: u32,
    shape: Shape,
    engine: Arc<Engine>,
}

/// Calls JavaScript without arguments, from any thread, and does not keep the process alive.
type Wake = ThreadsafeFunction<(), (), (), napi::Status, false, true>;

/// Where the answers for one JavaScript thread arrive.
struct Port {
    mailbox: Arc<Mailbox<Waiter>>,
    wake: Arc<Wake>,
    /// Questions of this turn of the event loop, which go to the I/O thread together.
    asked: Vec<(Waiter, Work)>,
}

thread_local! {
    static PORT: RefCell<Option<Port>> = const { RefCell::new(None) };
}

/// Sets the function to call when there is something to take. Call it before the first question that needs a server.
#[napi]
pub fn listen(wake: Function<'_, (), ()>) -> napi::Result<()> {
    let wake: Arc<Wake> = Arc::new(wake.build_threadsafe_function().weak::<true>().build()?);
    let of_thread = wake.clone();
    let mailbox = Mailbox::new(move || {
        of_thread.call((), ThreadsafeFunctionCallMode::NonBlocking);
    });
    PORT.set(Some(Port { mailbox, wake, asked: Vec::new() }));
    Ok(())
}

/// Whether to keep the process alive, because a caller waits.
#[napi]
pub fn keep_alive(env: &Env, is_needed: bool) {
    PORT.with_borrow(|port| {
        let Some(port) = port else { return };
        // SAFETY: the function lives as long as the port, and this is the thread that created it.
        unsafe {
            if is_needed {
                sys::napi_ref_threadsafe_function(env.raw(), port.wake.raw());
            } else {
                sys::napi_unref_threadsafe_function(env.raw(), port.wake.raw());
            }
        }
    });
}

/// Sends the questions of this turn of the event loop: one wake-up of the I/O thread for all of them.
#[napi]
pub fn flush() -> Result<(), Raised> {
    PORT.with_borrow_mut(|port| {
        let Some(port) = port else { return Ok(()) };
        port.mailbox.expect_all(std::mem::take(&mut port.asked)).map_err(raise)
    })
}

/// All answers that are ready, each as ticket, whether it failed, and the answer or the error.
#[napi]
pub fn take() -> Taken {
    Taken(PORT.with_borrow(|port| port.as_ref().map(|port| port.mailbox.take()).unwrap_or_default()))
}

/// Answers taken from a mailbox.
pub struct Taken(Vec<(Waiter, Result<Reply, Error>)>);

impl ToNapiValue for Taken {
    unsafe fn to_napi_value(env: sys::napi_env, taken: Taken) -> napi::Result<sys::napi_value> {
        let mut all = Flat::new(env, taken.0.len() * 3)?;
        for (Waiter { ticket, shape, engine }, reply) in taken.0 {
            all.push(ticket)?;
            match answer(&engine, reply, shape) {
                Ok(answer) => {
                    all.push(false)?;
                    all.push(answer)?;
                }
                Err(error) => {
                    all.push(true)?;
                    // SAFETY: the environment that this was called in.
                    all.push_raw(unsafe { JsError::from(raise(error)).into_value(env) })?;
                }
            }
        }
        Ok(all.array)
    }
}

/// The answer if it is ready; nothing if it comes later, under this ticket.
pub(crate) fn answered(
    engine: &Arc<Engine>,
    progress: Progress,
    shape: Shape,
    ticket: u32,
) -> Result<Option<Answer>, Raised> {
    match progress {
        Progress::Ready(reply) => answer(engine, reply, shape).map(Some).map_err(raise),
        Progress::Pending(work) => PORT.with_borrow_mut(|port| {
            let port = port.as_mut().ok_or_else(|| misused("nobody listens for answers that come later"))?;
            port.asked.push((Waiter { ticket, shape, engine: engine.clone() }, work));
            Ok(None)
        }),
    }
}

fn answer(engine: &Arc<Engine>, reply: Result<Reply, Error>, shape: Shape) -> Result<Answer, Error> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(Error { answer: Some(answer), .. }) if shape == Shape::Http => {
            return Ok(Answer::Layer(Layer::Refusal(*answer)));
        }
        Err(error) => return Err(error),
    };
    Ok(match (reply, shape) {
        (Reply::Checked(checked), Shape::Plain) => Answer::Verdict(checked),
        (Reply::Checked(checked), Shape::Http) => Answer::Layer(Layer::Verdict(checked, None)),
        (Reply::Acquired(checked, slots), Shape::Plain) => Answer::Permit(checked, slots),
        (Reply::Acquired(checked, slots), Shape::Http) => Answer::Layer(Layer::Verdict(checked, Some(slots))),
        (Reply::Reserved(checked, estimate), _) => Answer::Reservation(engine.clone(), checked, estimate),
        (Reply::Settled(settled), _) => Answer::Text(settlement(&settled)),
        (Reply::Buckets(found), _) => Answer::Text(buckets(&found)),
        (Reply::Reset(had_state), _) => Answer::Flag(had_state),
        (Reply::Done, _) => Answer::Flag(true),
    })
}

/// An answer as `lib/` reads it. A verdict is a list: allowed, retryAfter, delay and the details as JSON, then what
/// it holds. A layer is a list: the limit headers in one text, the layer and, unless the request passes at once, its
/// delay or -1.
pub enum Answer {
    Verdict(Checked),
    Permit(Checked, Slots),
    Reservation(Arc<Engine>, Checked, Estimate),
    Layer(Layer),
    Text(String),
    Flag(bool),
}

impl ToNapiValue for Answer {
    unsafe fn to_napi_value(env: sys::napi_env, answer: Answer) -> napi::Result<sys::napi_value> {
        match answer {
            Answer::Verdict(checked) => Ok(verdict(env, &checked, 4)?.array),
            Answer::Permit(checked, slots) => {
                let mut list = verdict(env, &checked, 5)?;
                list.push(Held::new(slots))?;
                Ok(list.array)
            }
            Answer::Reservation(engine, checked, estimate) => {
                let mut list = verdict(env, &checked, 5)?;
                list.push(Estimated::new(engine, estimate))?;
                Ok(list.array)
            }
            Answer::Layer(layer) => {
                let outcome = match &layer {
                    Layer::Verdict(checked, _) if checked.verdict.is_allowed() => {
                        Some(seconds(checked.verdict.delay().as_micros())).filter(|delay| *delay > 0.0)
                    }
                    _ => Some(-1.0),
                };
                let mut list = Flat::new(env, 2)?;
                list.push(layer.limits())?;
                list.push(External::new(layer))?;
                outcome.map_or(Ok(()), |outcome| list.push(outcome))?;
                Ok(list.array)
            }
            // SAFETY: the environment that this was called in.
            Answer::Text(text) => unsafe { String::to_napi_value(env, text) },
            Answer::Flag(flag) => unsafe { bool::to_napi_value(env, flag) },
        }
    }
}

fn verdict(env: sys::napi_env, checked: &Checked, length: usize) -> napi::Result<Flat> {
    let mut list = Flat::new(env, length)?;
    list.push(checked.verdict.is_allowed())?;
    list.push(checked.verdict.retry_after().map(|wait| seconds(wait.as_micros())))?;
    list.push(seconds(checked.verdict.delay().as_micros()))?;
    list.push(details(checked))?;
    Ok(list)
}

/// A JavaScript array that is filled from the front.
struct Flat {
    env: sys::napi_env,
    array: sys::napi_value,
    length: u32,
}

impl Flat {
    fn new(env: sys::napi_env, capacity: usize) -> napi::Result<Flat> {
        let mut array = std::ptr::null_mut();
        // SAFETY: the environment that this was called in.
        napi::check_status!(unsafe { sys::napi_create_array_with_length(env, capacity, &mut array) })?;
        Ok(Flat { env, array, length: 0 })
    }

    fn push(&mut self, value: impl ToNapiValue) -> napi::Result<()> {
        // SAFETY: the environment that this was called in.
        let value = unsafe { ToNapiValue::to_napi_value(self.env, value) }?;
        self.push_raw(value)
    }

    fn push_raw(&mut self, value: sys::napi_value) -> napi::Result<()> {
        // SAFETY: an array and a value of this environment.
        napi::check_status!(unsafe { sys::napi_set_element(self.env, self.array, self.length, value) })?;
        self.length += 1;
        Ok(())
    }
}
