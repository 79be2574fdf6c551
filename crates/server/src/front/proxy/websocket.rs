//! A connection that has become a WebSocket: bytes go both ways until one side ends or both are silent.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tracing::debug;

use crate::front::connections::Stalling;

/// What a connection goes on with when it is HTTP no more. Run where the connection was served, so that it keeps its
/// place among those allowed.
#[derive(Clone, Default)]
pub(super) struct Sequel(Arc<Upgrade>);

#[derive(Default)]
struct Upgrade {
    begun: AtomicBool,
    carrying: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Sequel {
    /// What follows is carried to the upstream; `occupied` is kept until that is over.
    pub(super) fn carry(&self, client: OnUpgrade, upstream: OnUpgrade, idle: Duration, occupied: impl Send + 'static) {
        let carrying = async move {
            carry(client, upstream, idle).await;
            drop(occupied);
        };
        *self.0.carrying.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(carrying));
        self.0.begun.store(true, Relaxed);
    }

    /// Whether bytes are no requests any more.
    pub(super) fn has_begun(&self) -> bool {
        self.0.begun.load(Relaxed)
    }

    /// Runs to the end, if there is anything to run.
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
            // Everything passes this side, so this side being silent means that both are.
            let mut client = Stalling::new(TokioIo::new(client), idle);
            if let Err(error) = copy_bidirectional(&mut client, &mut TokioIo::new(upstream)).await {
                debug!("a WebSocket ended: {error}");
            }
        }
        Err(error) => debug!("a WebSocket did not begin: {error}"),
    }
}
