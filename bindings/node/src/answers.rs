//! Delivers answers to JavaScript: at once, or later with one wake-up for many.
//!
//! The I/O thread never runs JavaScript. It calls a thread-safe function, which makes the event loop take all answers
//! that are ready. The function does not keep the process alive; `keep_alive` does while a caller waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use napi::bindgen_prelude::{Env, External, Function, Null, ToNapiValue};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{JsError, sys};
use napi_derive::napi;
use tollkeeper_engine::{Engine, Error, Estimate, Kind, Level, Mailbox, Progress, Reply, Slots, Work, take_lines};

use crate::call::string;
use crate::errors::{Raised, misused, raise};
use crate::exception::shown;
use crate::hold::{Estimated, Held};
use crate::layer::{Holds, Layer, PAGE, Pages, Provisional};
use crate::record::Record;
use crate::verdict::{buckets, settlement, verdict};

/// What to turn an answer into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Http,
}

/// Whom an answer is for.
#[derive(Clone, Copy)]
pub(crate) enum Audience<'p> {
    /// A caller of the limiter.
    Caller,
    /// Middleware, whose layers are kept here.
    Middleware(&'p Pages),
}

impl Audience<'_> {
    fn shape(&self) -> Shape {
        match self {
            Audience::Caller => Shape::Plain,
            Audience::Middleware(_) => Shape::Http,
        }
    }
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
    /// Where layers are kept.
    pages: Rc<Pages>,
    /// Answers that JavaScript has not asked for yet.
    arrived: VecDeque<(Waiter, Result<Reply, Error>)>,
    /// Whether JavaScript has been woken for lines of the log that it has not taken yet.
    is_woken_for_lines: bool,
}

thread_local! {
    static PORT: RefCell<Option<Port>> = const { RefCell::new(None) };
}

/// Sets the function to call when there is something to take. Call it before the first question that needs a server.
#[napi]
pub fn listen(wake: Function<'_, (), ()>, pages: &External<Rc<Pages>>) -> napi::Result<()> {
    let wake: Arc<Wake> = Arc::new(wake.build_threadsafe_function().weak::<true>().build()?);
    let of_thread = wake.clone();
    let mailbox = Mailbox::new(move || {
        of_thread.call((), ThreadsafeFunctionCallMode::NonBlocking);
    });
    let pages = Rc::clone(pages);
    let (asked, arrived) = (Vec::new(), VecDeque::new());
    PORT.set(Some(Port { mailbox, wake, asked, pages, arrived, is_woken_for_lines: false }));
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

/// Answers that are ready, each as ticket, whether it failed, and the answer or the error. Not more than fit on a page:
/// JavaScript asks again until there are none.
#[napi]
pub fn take() -> Taken {
    Taken(PORT.with_borrow_mut(|port| port.as_mut().map(Port::take).unwrap_or_default()))
}

/// What the library has logged since, as warnings of Node; nothing if there is nothing. That a server answers again is no warning.
#[napi]
pub fn take_warnings() -> Option<Vec<String>> {
    PORT.with_borrow_mut(|port| port.iter_mut().for_each(|port| port.is_woken_for_lines = false));
    let lines = take_lines().into_iter().filter(|line| line.level == Level::Warning);
    let texts: Vec<String> = lines.map(|line| line.text).collect();
    (!texts.is_empty()).then_some(texts)
}

impl Port {
    /// Has JavaScript take the lines of the log in a later turn of the event loop.
    fn wake_for_lines(&mut self) {
        if !self.is_woken_for_lines {
            self.is_woken_for_lines = true;
            self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    fn take(&mut self) -> Vec<(u32, Result<Answer, Error>)> {
        if self.arrived.is_empty() {
            self.arrived = self.mailbox.take().into();
        }
        let count = self.arrived.len().min(PAGE);
        self.pages.make_room(count);
        let answer = |(Waiter { ticket, shape, engine }, reply)| {
            let audience = match shape {
                Shape::Plain => Audience::Caller,
                Shape::Http => Audience::Middleware(&self.pages),
            };
            (ticket, answer(&engine, reply, audience))
        };
        self.arrived.drain(..count).map(answer).collect()
    }
}

/// Answers by ticket.
pub struct Taken(Vec<(u32, Result<Answer, Error>)>);

impl ToNapiValue for Taken {
    unsafe fn to_napi_value(env: sys::napi_env, taken: Taken) -> napi::Result<sys::napi_value> {
        let mut all = Flat::new(env, taken.0.len() * 3)?;
        for (ticket, answer) in taken.0 {
            all.push(ticket)?;
            all.push(answer.is_err())?;
            match answer {
                Ok(answer) => all.push(answer)?,
                // SAFETY: the environment that this was called in.
                Err(error) => all.push_raw(unsafe { JsError::from(raise(error)).into_value(env) })?,
            }
        }
        Ok(all.array)
    }
}

/// The answer if it is ready; nothing if it comes later, under this ticket.
pub(crate) fn answered(
    engine: &Arc<Engine>,
    progress: Progress,
    audience: Audience<'_>,
    ticket: u32,
) -> Result<Option<Answer>, Raised> {
    match progress {
        Progress::Ready(reply) => {
            if engine.has_lines() {
                PORT.with_borrow_mut(|port| port.iter_mut().for_each(Port::wake_for_lines));
            }
            answer(engine, reply, audience).map(Some).map_err(raise)
        }
        Progress::Pending(work) => PORT.with_borrow_mut(|port| {
            let port = port.as_mut().ok_or_else(|| misused("nobody listens for answers that come later"))?;
            port.asked.push((Waiter { ticket, shape: audience.shape(), engine: engine.clone() }, work));
            Ok(None)
        }),
    }
}

fn answer(engine: &Arc<Engine>, reply: Result<Reply, Error>, audience: Audience<'_>) -> Result<Answer, Error> {
    if let Audience::Middleware(pages) = audience {
        let layer = match reply {
            Ok(Reply::Checked(checked)) => Layer::Verdict(checked, Holds::default()),
            Ok(Reply::Acquired(checked, slots)) => {
                Layer::Verdict(checked, Holds { slots: Some(slots), ..Holds::default() })
            }
            Ok(Reply::ReservedHttp(checked, slots, estimate)) => {
                let charge = (!estimate.is_empty()).then(|| Box::new(Provisional { engine: engine.clone(), estimate }));
                Layer::Verdict(checked, Holds { slots: Some(slots), charge })
            }
            Ok(_) => return Err(Error::new(Kind::Usage, "middleware only checks requests")),
            Err(Error { answer: Some(answer), .. }) => Layer::Refusal(*answer),
            Err(error) => return Err(error),
        };
        return Ok(Answer::Text(pages.keep(layer)));
    }
    Ok(match reply? {
        Reply::Checked(checked) => Answer::Verdict(verdict(&checked)),
        // A caller of the limiter has attributes.
        Reply::ReservedHttp(checked, ..) => Answer::Verdict(verdict(&checked)),
        Reply::Acquired(checked, slots) => Answer::Permit(verdict(&checked), slots),
        Reply::Reserved(checked, estimate) => Answer::Reservation(engine.clone(), verdict(&checked), estimate),
        Reply::Settled(settled) => Answer::Text(settlement(&settled)),
        Reply::Buckets(found) => Answer::Text(buckets(&found)),
        Reply::Reset(had_state) => Answer::Flag(had_state),
        Reply::Done => Answer::Flag(true),
        Reply::CheckedMany(each) => {
            let shed = each.iter().find_map(|decided| decided.as_ref().err().map(ToString::to_string));
            Answer::Verdicts(each.iter().map(|decided| decided.as_ref().ok().map(verdict)).collect(), shed)
        }
        Reply::Exception(exception) => Answer::Text(shown(exception.as_deref())),
        Reply::Exceptions(all) => Answer::Text(shown(&all)),
    })
}

/// An answer as `lib/` reads it. Verdicts and layers are texts, see `verdict.rs` and `layer.rs`: one text crosses over at a
/// fraction of the cost of a list. What is held comes in a list with the verdict, and a batch in one after the reason to shed.
pub enum Answer {
    Text(String),
    Verdict(Record),
    Permit(Record, Slots),
    Reservation(Arc<Engine>, Record, Estimate),
    /// Of a batch: nothing for a request that was shed, and why one was.
    Verdicts(Vec<Option<Record>>, Option<String>),
    Flag(bool),
}

impl ToNapiValue for Answer {
    unsafe fn to_napi_value(env: sys::napi_env, answer: Answer) -> napi::Result<sys::napi_value> {
        match answer {
            Answer::Text(text) => string(env, &text),
            // SAFETY: the environment that this was called in.
            Answer::Verdict(record) => unsafe { Record::to_napi_value(env, record) },
            Answer::Permit(verdict, slots) => {
                let mut list = Flat::new(env, 2)?;
                list.push(verdict)?;
                list.push(Held::new(slots))?;
                Ok(list.array)
            }
            Answer::Reservation(engine, verdict, estimate) => {
                let mut list = Flat::new(env, 2)?;
                list.push(verdict)?;
                list.push(Estimated::new(engine, estimate))?;
                Ok(list.array)
            }
            Answer::Verdicts(verdicts, shed) => {
                let mut list = Flat::new(env, verdicts.len() + 1)?;
                list.push(shed)?;
                for verdict in verdicts {
                    match verdict {
                        Some(record) => list.push(record)?,
                        None => list.push(Null)?,
                    }
                }
                Ok(list.array)
            }
            // SAFETY: the environment that this was called in.
            Answer::Flag(flag) => unsafe { bool::to_napi_value(env, flag) },
        }
    }
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
