//! Connections by front: how many there are, how many were refused, and why.

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
            for (reason, count) in REASONS.iter().zip(&connections.refused) {
                refused.add([front, *reason], count.load(Relaxed));
            }
        }
        [open, refused]
    }
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its address has as many as it may.
    PerAddress,
    /// It came without TLS to a port with TLS.
    PlainText,
    /// The TLS handshake failed or took too long.
    TlsHandshake,
    /// Its client opened HTTP/2 streams only to reset them.
    StreamResets,
}

const REASONS: [&str; 4] = ["per_address", "plain_text", "tls_handshake", "stream_resets"];

/// Those of one front.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicU64,
    refused: [AtomicU64; REASONS.len()],
}

impl Connections {
    pub(crate) fn open(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    pub(crate) fn close(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn refuse(&self, why: Refused) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_as_listed() {
        use Refused::{PerAddress, PlainText, StreamResets, TlsHandshake};
        let all = [PerAddress, PlainText, TlsHandshake, StreamResets];
        assert_eq!(all.map(|reason| REASONS[reason as usize]), REASONS);
    }
}
