//! Responses of the HTTP API: a counter for every route and status, so that none has to be looked up.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::catalog;
use super::family::Family;

#[derive(Debug)]
pub(super) struct Responses {
    routes: &'static [&'static str],
    counts: Box<[AtomicU64]>,
}

impl Responses {
    const STATUSES: Range<u16> = 100..600;
    const UNKNOWN: &'static str = "unknown";

    pub(super) fn new(routes: &'static [&'static str]) -> Responses {
        let size = (routes.len() + 1) * Self::STATUSES.len();
        Responses { routes, counts: (0..size).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn count(&self, route: &str, status: u16) {
        let row = self.routes.iter().position(|known| *known == route).unwrap_or(self.routes.len());
        if Self::STATUSES.contains(&status) {
            let column = usize::from(status - Self::STATUSES.start);
            self.counts[row * Self::STATUSES.len() + column].fetch_add(1, Relaxed);
        }
    }

    pub(super) fn family(&self) -> Family {
        let mut family = Family::new(&catalog::HTTP_REQUESTS);
        let routes = self.routes.iter().copied().chain([Self::UNKNOWN]);
        for (route, counts) in routes.zip(self.counts.chunks(Self::STATUSES.len())) {
            for (status, count) in Self::STATUSES.zip(counts) {
                let count = count.load(Relaxed);
                if count > 0 {
                    family.add([route, &status.to_string()], count);
                }
            }
        }
        family
    }
}
