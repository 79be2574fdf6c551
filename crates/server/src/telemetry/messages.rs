//! The OTLP 1 messages, as far as they are sent here. Field numbers are those of opentelemetry-proto; tests decode
//! them with it.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Integer(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Integer(number)
    }
}

pub(crate) fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value.into()) }) }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

impl Scope {
    pub(super) fn ours() -> Scope {
        Scope { name: "tollkeeper".into(), version: env!("CARGO_PKG_VERSION").into() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Traces {
    #[prost(message, repeated, tag = "1")]
    pub(super) resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_ns: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_ns: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

impl Status {
    pub(super) const ERROR: Status = Status { code: 2 };
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metrics {
    #[prost(message, repeated, tag = "1")]
    pub(super) resources: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scopes: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
    #[prost(string, tag = "3")]
    pub(super) unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 9, 11")]
    pub(super) data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
    #[prost(message, tag = "11")]
    Summary(Summary),
}

/// Cumulative since the process started, not a delta.
pub(super) const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<Number>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<Number>,
    #[prost(int32, tag = "2")]
    pub(super) temporality: i32,
    #[prost(bool, tag = "3")]
    pub(super) is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Number {
    #[prost(fixed64, tag = "2")]
    pub(super) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_ns: u64,
    #[prost(double, optional, tag = "4")]
    pub(super) value: Option<f64>,
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<Distribution>,
    #[prost(int32, tag = "2")]
    pub(super) temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Distribution {
    #[prost(fixed64, tag = "2")]
    pub(super) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(super) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub(super) counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<SummaryPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryPoint {
    #[prost(fixed64, tag = "2")]
    pub(super) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) count: u64,
    #[prost(double, tag = "5")]
    pub(super) sum: f64,
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
}
