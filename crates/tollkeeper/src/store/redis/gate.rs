//! Lets a host collect requests before they are sent.
//!
//! An event loop polls a request on its own thread, to answer at once what needs no call (a cached denial, a lease). The
//! others stop at the gate, and go on when they are polled again on the thread that makes the calls: all that the event
//! loop collected in a turn, one right after the other, so that they share a call.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use super::overload::Overload;
use crate::store::error::Overloaded;

thread_local! {
    static IS_CLOSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `poll` with the gate of this thread closed.
pub(super) fn closed<T>(poll: impl FnOnce() -> T) -> T {
    struct Reopen(bool);
    impl Drop for Reopen {
        fn drop(&mut self) {
            IS_CLOSED.set(self.0);
        }
    }
    let _reopen = Reopen(IS_CLOSED.replace(true));
    poll()
}

/// Waits while the gate of this thread is closed. There is nothing to wake it: whoever closed the gate polls again.
pub(super) async fn pass(overload: &Overload) -> Result<(), Overloaded> {
    if IS_CLOSED.get() {
        // Those that wait here are not alone, and do not go out one by one.
        let _place = overload.enter()?;
        poll_fn(|_| if IS_CLOSED.get() { Poll::Pending } else { Poll::Ready(()) }).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_stops_while_the_gate_is_closed() {
        let overload = Overload::new(Duration::from_millis(20));
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(pass(&overload)).poll(&mut context).is_ready());
        let mut stopped = pin!(pass(&overload));
        assert!(closed(|| stopped.as_mut().poll(&mut context)).is_pending());
        assert!(!overload.enter().expect("a place").is_alone(), "one waits at the gate");
        assert!(stopped.poll(&mut context).is_ready());
        assert!(overload.enter().expect("a place").is_alone());
    }
}
