//! HTTP requests as attributes, and the response to a denied one.
//!
//! Nothing here reads a body, opens a socket or reads a clock: [`Identity`] turns the head of a request into the
//! attributes that rules use, and [`AnswerStyle`] turns a verdict into status, headers and body. The `tower` layer
//! and the service are built on these two.
//!
//! ```
//! use http::{HeaderMap, Method, Uri};
//! use tollkeeper::{Request, http::Identity};
//!
//! let identity = Identity::new().identify("user_id", "header.x-user-id".parse()?);
//! let (method, uri, mut headers) = (Method::GET, Uri::from_static("/api/orders?page=2"), HeaderMap::new());
//! headers.insert("x-user-id", "42".parse()?);
//!
//! let request = identity.describe(&method, &uri, &headers, Some([203, 0, 113, 7].into()));
//! assert_eq!(request.attribute("user_id").as_deref(), Some("42"));
//! assert_eq!(request.attribute("path").as_deref(), Some("/api/orders"));
//! assert_eq!(request.attribute("query.page").as_deref(), Some("2"));
//! assert_eq!(request.attribute("ip").as_deref(), Some("203.0.113.7"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod answer;
mod attributes;
mod credentials;
mod forwarded;
mod forwarding;
mod identity;
mod over_limit;
mod places;
mod problem;
mod source;
mod style;

pub use address::{AddressSource, AddressSourceError, group};
pub use answer::{Answer, PlainAnswer};
pub use attributes::{HttpRequest, normal_host, normal_path};
pub use forwarding::ForwardingIssue;
pub use identity::Identity;
pub use over_limit::{OVER_LIMIT, Over, OverLimit, over_limit};
pub use places::query_value;
pub use problem::Problem;
pub use source::{AttributeSource, AttributeSourceError};
pub use style::AnswerStyle;
#[cfg(feature = "tower")]
pub(crate) use style::{bad_cost_detail, contradiction_detail, denial_detail, retry_after};
