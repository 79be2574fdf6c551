//! What a limit means: quotas, algorithms, rules, decisions and headers, in exact integer arithmetic.
//!
//! This crate does no I/O, reads no clock, takes no lock and uses no floating point. [`decide`] is the single
//! definition of every algorithm: every store and every script gives the same answers. Most users want the
//! `tollkeeper` crate, which adds stores and a clock.
//!
//! The terms: a [`Rule`] says who is limited, by what key, and how; its [`Quota`] is the algorithm and the numbers.
//! One rule applied to one request is a [`Charge`], and its answer a [`Decision`]. The answer for the whole request
//! is a [`Verdict`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod bucket;
mod calendar;
mod changes;
mod charge;
mod condition;
mod decision;
mod denial;
mod exception;
mod former;
mod headers;
mod key;
mod limit;
mod lint;
mod named_key;
mod network;
mod pace;
mod path_pattern;
mod pattern;
mod policy;
mod quota;
mod request;
mod rule;
mod rule_spec;
mod shorthand;
mod terms;
mod time;
mod verdict;
mod zone;

pub use algorithm::{Change, Counter, Entry, GivenBack, Lease, Log, Receipt, Refunds, State, Window, decide};
pub use bucket::Bucket;
pub use calendar::{Calendar, CalendarError, CalendarUnit, CalendarWindow};
pub use changes::Changes;
pub use charge::{BucketRef, Charge};
pub use condition::Condition;
pub use decision::{Decision, Hold, Outcome};
pub use denial::{Denial, Template};
pub use exception::{Exception, ExceptionKind, Grant};
pub use headers::{HeaderStyle, LimitHeader, each_limit_header, limit_headers, retry_after_seconds};
pub use key::{Key, KeyError, KeyTemplate};
pub use limit::{Limit, LimitError, parse_count, parse_span};
pub use named_key::{KeyedBy, NamedKey, UnclearKey};
pub use pace::Refill;
pub use pattern::Pattern;
pub use policy::{Policy, PolicyError, PolicyErrors, Requirement};
pub use quota::{Algorithm, Quota, QuotaBuilder, QuotaError};
pub use request::{Descriptor, Request, usual_spelling};
pub use rule::{Cost, CostError, LeaseSize, Rule, RuleError, RuleErrors, parse_cost};
pub use rule_spec::{
    CostCase, CostSpec, DenySpec, Enforcement, EstimatedCost, FailurePolicy, MatchValue, OneOrMany, RuleSpec, Scalar,
};
pub use shorthand::Shorthand;
pub use terms::Terms;
pub use time::{Span, Timestamp};
pub use verdict::{Annotation, Row, Source, Verdict, decide_all, is_denied};

/// The README's examples, run with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
