//! Middleware for axum, tonic and every other tower service.
//!
//! Each request is decided before the service sees it. A denied one is answered here, in HTTP or gRPC, whichever it
//! uses; an admitted one is passed on, after its `delay` if a rule paces requests. Every response carries the limit
//! headers. Slots of `concurrency` rules are held until the response body has ended or was dropped.
//!
//! ```
//! use std::net::SocketAddr;
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use tollkeeper::{Limiter, MemoryStore, Policy, Rule, tower::TollkeeperLayer};
//!
//! let rules = [
//!     Rule::new("per-client").key("{header.x-api-key|ip}").limit("100/min").burst(20),
//!     Rule::new("login").key("{ip}").limit("5/min").when("path", "/login"),
//! ];
//! let limiter = Limiter::new(Policy::new(rules)?, MemoryStore::new());
//! let layer = TollkeeperLayer::new(limiter)
//!     // With the feature `axum` the layer finds the address there by itself.
//!     .peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()))
//!     .skip(|request| request.uri.path() == "/healthz");
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! // axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
//! # Ok::<(), tollkeeper::PolicyErrors>(())
//! ```

mod body;
mod layer;
mod protocol;
mod service;
mod settings;

pub use body::ResponseBody;
pub use layer::TollkeeperLayer;
pub use service::TollkeeperService;
