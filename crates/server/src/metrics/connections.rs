//! Connections by front: how many there are, and how many were refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::catalog;
use super::family::Family;

/// Those of every front.
#[derive(Debug, Default)]
pub(crate) struct AllConnections {
    pub(crate) http: Arc<Connections>,
    pub(crate) grpc: Arc<Connections>,
    pub(crate) resp: Arc<Connections>,
    pub(crate) proxy: Arc<Connections>,
}

impl AllConnections {
    pub(super) fn families(&self) -> [Family; 2] {
        let mut open = Family::new(&catalog::CONNECTIONS);
        let mut refused = Family::new(&catalog::CONNECTIONS_REFUSED);
        for (front, connections) in
            [("http", &self.http), ("grpc", &self.grpc), ("resp", &self.resp), ("proxy", &self.proxy)]
        {
            open.add([front], connections.open.load(Relaxed));
            refused.add([front], connections.refused.load(Relaxed));
        }
        [open, refused]
    }
}

/// Those of one front.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicU64,
    refused: AtomicU64,
}

impl Connections {
    pub(crate) fn open(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    pub(crate) fn close(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}
