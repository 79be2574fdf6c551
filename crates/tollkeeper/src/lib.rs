//! Rate limiting for Rust services: exact, all or nothing over several rules, in memory or shared through Redis.
//!
//! # Quick start
//!
//! One limit, any key, no rules, no `async`:
//!
//! ```
//! let limiter = tollkeeper::keyed("10/s burst 20")?;
//! let decision = limiter.check("203.0.113.9");
//! if !decision.is_allowed() {
//!     // 429 Too Many Requests; `decision.retry_after()` is the exact wait.
//! }
//! # Ok::<(), tollkeeper::QuotaError>(())
//! ```
//!
//! Middleware for axum, with limit headers on every response, `Retry-After` and problem+json on a 429 (feature `axum`):
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use std::net::SocketAddr;
//! use axum::{Router, routing::get};
//! use tollkeeper::tower::TollkeeperLayer;
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(TollkeeperLayer::per_ip("100/min burst 20")?);
//! let service = app.into_make_service_with_connect_info::<SocketAddr>();
//! // axum::serve(listener, service).await?;
//! # }
//! # Ok::<(), tollkeeper::QuotaError>(())
//! ```
//!
//! Several rules for one request. If one denies, none is charged:
//!
//! ```
//! use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let policy = Policy::new([
//!     Rule::new("per-user").key("{user_id}").limit("10/s").burst(50),
//!     Rule::new("free-plan").key("{user_id}").limit("1,000/day").when("plan", "free"),
//!     Rule::new("everybody").key("global").limit("5,000/s"),
//! ])?;
//! let limiter = Limiter::new(policy, MemoryStore::new());
//!
//! let verdict = limiter.check(&Descriptor::new([("user_id", "42"), ("plan", "free")])).await?;
//! assert!(verdict.is_allowed());
//! assert_eq!(verdict.rows().len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Which type for what
//!
//! | you want | use |
//! |---|---|
//! | one limit for each key, synchronously, as with governor | [`keyed`] |
//! | several rules, matched by attributes of the request | [`Policy`] and [`Limiter::check`]; [`Limiter::try_check`] without `async` |
//! | middleware for axum, tonic and other tower services | `tower::TollkeeperLayer` |
//! | HTTP requests as attributes, and the response to a denied one | `http::Identity`, `http::AnswerStyle` |
//! | a cost that is known only afterwards | [`Limiter::reserve`] |
//! | at most N requests at a time | a `concurrency` rule and [`Limiter::acquire`] |
//! | block, allow or raise the limit of a single key | [`Limiter::except`] |
//! | tests without sleeping | [`ManualClock`] |
//!
//! # Which store
//!
//! [`MemoryStore`] is exact within one process and decides in well under a microsecond. `RedisStore` (feature `redis`) shares
//! limits between processes through Redis, Valkey, Sentinel or Cluster; it batches calls, answers repeated denials locally, and
//! can lease tokens. [`Store`] is an enum of the two, not a trait for others to implement; its page says why.
//!
//! # Recipes
//!
//! Strict logins: at most five attempts in any minute, per address.
//!
//! ```
//! # use tollkeeper::{Algorithm, Rule};
//! let rule = Rule::new("login").key("{ip}").limit("5/min").algorithm(Algorithm::SlidingWindowLog).when("path", "/login");
//! # rule.build().unwrap();
//! ```
//!
//! An API key if there is one, otherwise the address:
//!
//! ```
//! # use tollkeeper::Rule;
//! let rule = Rule::new("per-client").key("{api_key|ip}").limit("100/min").burst(20);
//! # rule.build().unwrap();
//! ```
//!
//! Three exports at a time for each tenant; unreleased slots expire after ten minutes:
//!
//! ```
//! # use tollkeeper::{Algorithm, Rule};
//! let rule = Rule::new("exports").key("{tenant}").limit("3").algorithm(Algorithm::Concurrency).hold("10min");
//! # rule.build().unwrap();
//! ```
//!
//! Try a limit on real traffic before enforcing it: [`RuleSpec::shadow`]. Rules from YAML: `policy_from_yaml` (feature `yaml`);
//! a complete limiter from a file: `file::load` (feature `file`).
//!
//! # Features
//!
//! None is enabled by default. Each only adds to the API.
//!
//! | feature | adds |
//! |---|---|
//! | `http` | attributes of HTTP requests, client addresses behind trusted proxies, limit headers and answers |
//! | `tower` | `TollkeeperLayer` for any tower service (includes `http`) |
//! | `axum` | the layer finds the client address in `ConnectInfo` (includes `tower`) |
//! | `tonic` | the layer finds the client address in `TcpConnectInfo` (includes `tower`) |
//! | `redis` | `RedisStore` |
//! | `yaml` | rules from YAML text |
//! | `file` | a complete limiter from the service's configuration file, with the line of every error (includes `http`, `yaml`) |
//! | `postgres` | rules in Postgres, updated as they change |
//! | `schema` | implements `JsonSchema` for the types of the rules file |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "http")]
pub mod http;
mod keyed;
mod limiter;
mod permit;
#[cfg(feature = "postgres")]
pub mod postgres;
mod reservation;
#[cfg(feature = "redis")]
pub mod sparing;
mod store;
#[cfg(any(feature = "file", feature = "postgres"))]
pub mod strict;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "yaml")]
mod yaml;

pub use clock::{Clock, ManualClock, SystemClock};
pub use keyed::{Keyed, keyed};
pub use limiter::{Ahead, CheckError, Inspected, Limiter, Together, TryCheckError};
pub use permit::Permit;
pub use reservation::ticket::Ticket;
pub use reservation::{Actual, Reservation, SettleError, Settled, Settlement};
#[cfg(feature = "redis")]
pub use store::{
    BreakerState, ConnectError, DURATION_BOUNDS, ExceptionsCopy, RedisOptions, RedisStore, RedisTls, Server, Traffic,
    UnreachableStore,
};
pub use store::{ExceptionError, MAX_HOLD, MemoryStore, Overflowed, Overloaded, Owner, Store, StoreError, TooManyKeys};
pub use tollkeeper_core::{
    Algorithm, Annotation, BucketRef, Calendar, CalendarError, CalendarUnit, CalendarWindow, Changes, Charge,
    Condition, Cost, CostCase, CostError, CostSpec, Decision, Denial, DenySpec, Descriptor, Enforcement, EstimatedCost,
    Exception, ExceptionKind, FailurePolicy, Grant, HeaderStyle, Hold, Key, KeyError, KeyTemplate, KeyedBy, LeaseSize,
    Limit, LimitError, LimitHeader, MatchValue, NamedKey, OneOrMany, Outcome, Pattern, Policy, PolicyError,
    PolicyErrors, Quota, QuotaBuilder, QuotaError, Refill, Request, Requirement, Row, Rule, RuleError, RuleErrors,
    RuleSpec, Scalar, Shorthand, Source, Span, Template, Terms, Timestamp, UnclearKey, Verdict, each_limit_header,
    limit_headers, parse_span, retry_after_seconds,
};
#[cfg(feature = "yaml")]
pub use yaml::{YamlError, policy_from_yaml};

/// The README's examples, run with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The page about axum, compiled with the other documentation tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/howto/axum.md")]
struct HowToAxum;
