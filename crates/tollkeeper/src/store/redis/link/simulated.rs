//! Servers and a network that exist only in a test: see `simulation.rs` for what is done with them.

pub(in crate::store::redis) mod chance;
pub(in crate::store::redis) mod data;
mod lua;
pub(in crate::store::redis) mod network;
mod slots;

use std::pin::Pin;
use std::task::{Context, Poll};

use network::Network;

/// A task that now and then lets others go first, so that each seed has its own order of events.
pub(in crate::store::redis) struct Shuffled<F> {
    network: Option<std::sync::Arc<Network>>,
    task: Pin<Box<F>>,
}

/// Outside a simulation the task is not held up.
pub(in crate::store::redis) fn shuffled<F: Future>(task: F) -> Shuffled<F> {
    Shuffled { network: Network::current(), task: Box::pin(task) }
}

impl<F: Future> Future for Shuffled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(network) = &self.network {
            if network.lets_others_go_first() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            network.show_time();
        }
        self.task.as_mut().poll(context)
    }
}
