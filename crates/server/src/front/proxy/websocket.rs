//! A connection upgraded to a WebSocket: bytes are copied both ways until one side ends or both are silent.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tracing::debug;

use crate::front::connections::Stalling;

/// What a connection does after its upgrade. It runs where the connection was served, so that it keeps its place
/// within the connection limit.
#[derive(Clone, Default)]
pub(super) struct Sequel(Arc<Upgrade>);

#[derive(Default)]
struct Upgrade {
    begun: AtomicBool,
    carrying: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Sequel {
    /// Copies everything that follows to the upstream; `occupied` is held until that ends.
    pub(super) fn carry(&self, client: OnUpgrade, upstream: OnUpgrade, idle: Duration, occupied: impl Send + 'static) {
        let carrying = async move {
            carry(client, upstream, idle).await;
            drop(occupied);
        };
        *self.0.carrying.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(carrying));
        self.0.begun.store(true, Relaxed);
    }

    /// Whether the connection no longer carries HTTP.
    pub(super) fn has_begun(&self) -> bool {
        self.0.begun.load(Relaxed)
    }

    /// Runs to the end, if there was an upgrade.
    pub(super) async fn run(&self) {
        let carrying = self.0.carrying.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(carrying) = carrying {
            carrying.await;
        }
    }
}

async fn carry(client: OnUpgrade, upstream: OnUpgrade, idle: Duration) {
    match tokio::try_join!(client, upstream) {
        Ok((client, upstream)) => {
            // Everything passes this side, so if it is silent, both are.
            let mut client = Stalling::new(TokioIo::new(client), idle);
            if let Err(error) = copy_bidirectional(&mut client, &mut TokioIo::new(upstream)).await {
                debug!("a WebSocket ended: {error}");
            }
        }
        Err(error) => debug!("a WebSocket could not be established: {error}"),
    }
}
