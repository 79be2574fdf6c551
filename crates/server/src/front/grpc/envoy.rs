//! The messages of Envoy's rate limit service, as [prost] structs.
//!
//! Written by hand after Envoy's API (Apache-2.0): `envoy/service/ratelimit/v3/rls.proto` and the few messages that it
//! uses. A crate with all of that API takes longer to compile than the rest of this front. `descriptors.bin` holds the
//! same files for reflection; `tests/grpc/messages.rs` compares every field and every enum value with it.

use prost::{Enumeration, Message, Oneof};
use prost_types::{Duration, Struct, Timestamp};

/// The service's name, for callers, health checks and reflection.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// Its only method.
pub(crate) const METHOD: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Where it is called.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Envoy's `rls.proto` and all files that it imports, as reflection shows them. Written by `descriptors.py`.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<RateLimitOverride>,
    /// A `google.protobuf.UInt64Value`, which prost knows as a number.
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(enumeration = "RateLimitUnit", tag = "2")]
    pub(crate) unit: i32,
}

/// `envoy.type.v3.RateLimitUnit`: in requests. Responses use [`Unit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum RateLimitUnit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<HeaderValue>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) request_headers_to_add: Vec<HeaderValue>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) raw_body: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    pub(crate) dynamic_metadata: Option<Struct>,
    #[prost(message, optional, tag = "7")]
    pub(crate) quota: Option<Quota>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<Duration>,
    #[prost(message, optional, tag = "5")]
    pub(crate) quota: Option<Quota>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

/// `RateLimitResponse.RateLimit.Unit`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

/// Requests that Envoy may let pass without asking. We grant none.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Quota {
    #[prost(uint32, tag = "1")]
    pub(crate) requests: u32,
    #[prost(oneof = "ExpirationSpecifier", tags = "2")]
    pub(crate) expiration_specifier: Option<ExpirationSpecifier>,
    #[prost(string, tag = "3")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ExpirationSpecifier {
    #[prost(message, tag = "2")]
    ValidUntil(Timestamp),
}

/// `envoy.config.core.v3.HeaderValue`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) raw_value: Vec<u8>,
}
