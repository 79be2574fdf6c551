//! The time limit for the head of a request on HTTP/1, and for the next ping on HTTP/2, without a timer for each.
//!
//! hyper asks for a new timer whenever it waits for a head, and drops it when the head has arrived. On HTTP/2 it polls one whenever
//! it does anything. Here all of them are one [`Alarm`] of their connection.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use crate::front::alarm::Alarm;

/// The timer of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads(Arc<Mutex<Alarm>>);

/// The deadline of one head.
struct Head {
    due: Instant,
    alarm: Arc<Mutex<Alarm>>,
}

impl Timer for Heads {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, due: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Head { due, alarm: self.0.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Future for Head {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner).poll(self.due.into(), cx)
    }
}

impl Sleep for Head {}
