//! Rate limiting that is exact: the simple door is [`keyed`], the full one [`Limiter`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod exceptions;
#[cfg(feature = "http")]
pub mod http;
mod keyed;
mod limiter;
mod permit;
mod reservation;
mod store;
#[cfg(feature = "tower")]
pub mod tower;

pub use clock::{Clock, ManualClock};
pub use exceptions::ExceptionError;
pub use keyed::{Keyed, keyed};
pub use limiter::{Inspected, Limiter, Together};
pub use permit::Permit;
pub use reservation::{Actual, Reservation, SettleError, Settled, Settlement, Ticket};
#[cfg(feature = "redis")]
pub use store::{BreakerState, ConnectError, DURATION_BOUNDS, RedisOptions, RedisStore, RedisTls, Server, Traffic};
pub use store::{MAX_HOLD, MemoryStore, Store, StoreError};
pub use tollkeeper_core::{
    Algorithm, BucketRef, Changes, Charge, CostError, Decision, Descriptor, Enforcement, Exception, ExceptionKind,
    FailurePolicy, Grant, HeaderStyle, Hold, Key, Limit, LimitError, Outcome, Policy, PolicyError, PolicyErrors, Quota,
    QuotaBuilder, QuotaError, Request, Row, Rule, RuleError, RuleErrors, RuleSpec, Source, Span, Terms, Timestamp,
    Verdict, limit_headers, parse_span, retry_after_seconds,
};

/// For tests that run the scripts as they are; no part of the API.
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod redis_wire {
    pub use crate::store::redis::{
        Answer, Ask, Batch, CHARGE, CHARGE_BUCKETS, CHARGE_ONE, Call, REFUND, RELEASE, RENEW, Reply, ReplyError,
        SETTLE, Script, read_log, read_string, refunded_key, state_key,
    };
}

/// The README's examples, run with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
