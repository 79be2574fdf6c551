//! Requests shed under overload, by front.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::catalog;
use super::family::Family;

/// Where requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Http,
    Proxy,
    Grpc,
    Resp,
}

const FRONTS: [&str; 4] = ["http", "proxy", "grpc", "resp"];

#[derive(Debug, Default)]
pub(super) struct Shed([AtomicU64; FRONTS.len()]);

impl Shed {
    pub(super) fn count(&self, front: Front) {
        self.0[front as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn family(&self) -> Family {
        let mut family = Family::new(&catalog::SHED);
        for (front, count) in FRONTS.iter().zip(&self.0) {
            family.add([*front], count.load(Relaxed));
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fronts_are_numbered_as_listed() {
        use Front::{Grpc, Http, Proxy, Resp};
        assert_eq!([Http, Proxy, Grpc, Resp].map(|front| FRONTS[front as usize]), FRONTS);
    }
}
