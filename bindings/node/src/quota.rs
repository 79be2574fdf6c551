//! An algorithm and its numbers.

use napi_derive::napi;

use crate::clock::seconds;
use crate::errors::{Raised, raise};

/// An algorithm and its numbers, checked to be counted exactly.
#[napi]
pub struct Quota(pub(crate) tollkeeper::Quota);

#[napi]
impl Quota {
    /// From a text such as `10/s burst 20`.
    #[napi(constructor)]
    pub fn new(text: String) -> Result<Quota, Raised> {
        tollkeeper_engine::quota(&text).map(Quota).map_err(raise)
    }

    /// The algorithm's name.
    #[napi(getter)]
    pub fn algorithm(&self) -> &'static str {
        self.0.algorithm().name()
    }

    /// N of `N per period`.
    #[napi(getter)]
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// The period in seconds.
    #[napi(getter)]
    pub fn period(&self) -> f64 {
        seconds(self.0.period().as_micros())
    }

    /// The most that can pass at once: the burst of a bucket, or N.
    #[napi(getter)]
    pub fn limit(&self) -> u32 {
        self.0.limit()
    }

    /// As people read it.
    #[napi]
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// As a one-line limit.
    #[napi]
    pub fn line(&self) -> String {
        self.0.to_shorthand()
    }
}
