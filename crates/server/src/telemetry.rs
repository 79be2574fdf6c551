//! Traces and metrics for an OpenTelemetry collector, by OTLP.
//!
//! A traced request gets a span, and each of its decisions a child span. Names and attributes are ours: routes,
//! rules, outcomes; never a key, a path or a header of a client. What the collector does not accept in time is
//! dropped and counted, so a slow or unreachable collector delays nothing and fills no memory.

mod context;
mod counters;
mod current;
mod export;
mod families;
mod messages;
mod resource;
mod settings;
mod span;
mod tracer;

pub(crate) use current::inject;
pub(crate) use span::Described;
pub(crate) use tracer::Tracer;
