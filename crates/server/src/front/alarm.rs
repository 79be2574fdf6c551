//! A timer for deadlines that move with every byte and are hardly ever reached.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Goes off at a deadline. To move the deadline later costs nothing: the timer stays where it is, and is set again if it
/// goes off too early. Setting a timer for every request would cost more than reading its head.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Set>);

#[derive(Debug)]
struct Set {
    timer: Pin<Box<Sleep>>,
    /// Who is woken.
    waker: Option<Waker>,
}

impl Alarm {
    /// Ready once it is `due`.
    pub(crate) fn poll(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let Set { timer, waker } = self.0.get_or_insert_with(|| Set { timer: Box::pin(sleep_until(due)), waker: None });
        if due < timer.deadline() {
            timer.as_mut().reset(due);
            *waker = None;
        }
        // Nearly always: it is set, has not gone off, and wakes the right task. Polling it costs more than to find that out.
        if !timer.is_elapsed() && waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        loop {
            *waker = Some(cx.waker().clone());
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_goes_off_at_the_deadline_that_was_asked_for_last() {
        let after = |ms| Instant::now() + Duration::from_millis(ms);
        let (mut alarm, later) = (Alarm::default(), after(40));
        // Whether that has passed already is the machine's business.
        poll_fn(|cx| Poll::Ready(alarm.poll(after(5), cx).is_ready())).await;
        poll_fn(|cx| alarm.poll(later, cx)).await;
        assert!(Instant::now() >= later, "not when it was set for at first");
        let (hour, sooner) = (after(3_600_000), after(20));
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(hour, cx).is_pending())).await);
        poll_fn(|cx| alarm.poll(sooner, cx)).await;
        assert!(Instant::now() >= sooner);
    }
}
