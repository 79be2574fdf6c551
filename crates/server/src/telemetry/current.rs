//! The traced request of the current task.

use std::cell::RefCell;

use http::{HeaderMap, HeaderValue};

use super::context::{Context, TRACEPARENT};
use super::span::Work;

tokio::task_local! {
    /// The traced request of this task, if any.
    pub(super) static CURRENT: RefCell<Work>;
}

/// Sets the trace context for the next server, if the request is traced here. Otherwise the client's own is passed
/// on.
pub(crate) fn inject(headers: &mut HeaderMap) {
    let context = CURRENT.try_with(|work| work.borrow().context);
    if let Ok(Context { trace, span }) = context {
        let (trace, span) = (u128::from_be_bytes(trace), u64::from_be_bytes(span));
        let value = format!("00-{trace:032x}-{span:016x}-01");
        headers.insert(TRACEPARENT, HeaderValue::try_from(value).expect("plain text"));
    }
}
