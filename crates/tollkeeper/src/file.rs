//! A limiter described in a file: its rules, where state lives, how clients are identified and how denials are
//! answered.
//!
//! It is the file that the service reads (`tollkeeper serve --config FILE`), so one file serves both. Fields that
//! only a service needs, such as `listen`, are ignored. Every error names file, line, column, field and what to do.
//!
//! ```
//! use std::path::Path;
//! use tollkeeper::{Clock, Descriptor, Limiter, file};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let text = "
//! trusted_proxies: [10.0.0.0/8]
//! rules:
//!   - { name: per-client, key: '{ip}', limit: 100/min, burst: 20 }
//! ";
//! // `file::load(path)` reads a file.
//! let file::Loaded { settings, policy, .. } = file::parse(Path::new("tollkeeper.yaml"), text)?;
//! let limiter = Limiter::new(policy, settings.store(Clock::system()).await?);
//! let verdict = limiter.check(&Descriptor::new([("ip", "192.0.2.1")])).await?;
//! assert!(verdict.is_allowed());
//!
//! let wrong = file::parse(Path::new("t.yaml"), "rules:\n  - { name: a, key: global, limt: 1/s }").unwrap_err();
//! assert!(wrong.to_string().starts_with("t.yaml:2:29: rules[0].limt: is not known; did you mean `limit`?"), "{wrong}");
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attributes;
mod document;
mod identity;
mod located;
mod memory;
mod problem;
mod problems;
mod proxy;
mod repair;
mod settings;
mod spoofing;
mod store;
mod store_url;

pub use crate::strict::Invalid;
pub use document::Document;
pub use problem::{ConfigError, Problem};
pub use proxy::parse_proxy;
pub use settings::{Settings, StoreSettings, TlsFiles};
pub use store_url::without_password;

use std::path::Path;

use tollkeeper_core::Policy;

/// The fields of the file that only a service has.
pub const SERVICE_FIELDS: &[&str] =
    &["listen", "admin", "insight", "audit", "alerts", "telemetry", "decisions", "metrics", "shutdown"];

/// A file that was read and validated.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The settings, and the rules as written.
    pub settings: Settings,
    /// The validated rules. Empty if they come from Postgres.
    pub policy: Policy,
    /// Settings that are valid but probably mistakes.
    pub warnings: Vec<Problem>,
}

/// Reads a file.
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    parse(path, &Document::text_of(path)?)
}

/// Reads a text that came from `path`.
pub fn parse(path: &Path, text: &str) -> Result<Loaded, ConfigError> {
    let mut document = Document::parse(path, text)?.without(SERVICE_FIELDS);
    let check = |settings: &mut Settings| (settings.problems(), settings.rules.clone());
    let (settings, policy) = document.understand(check)?;
    let warnings = document.warnings(&policy, settings.warnings());
    Ok(Loaded { settings, policy, warnings })
}
