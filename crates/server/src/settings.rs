//! Validates a configuration, and turns it into the parts of a service.

mod loaded;
pub(crate) mod operations;
mod problems;
mod shutdown;
mod store;
mod warnings;

pub(crate) use loaded::{Loaded, load, load_embedded, load_rules, parse, read_text};
pub(crate) use problems::problems;
pub(crate) use shutdown::shutdown_delay;
pub(crate) use store::{connect, memory_store, store, store_for_service};
pub(crate) use tollkeeper::file::without_password;

use std::sync::Arc;

use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::{Span, parse_span};

use crate::audit::{self, Keeping, Sink};
use crate::config::Config;
use crate::database::{Database, database};
use crate::observer::{self, Analysis};
use crate::privacy::Privacy;

/// What is observed of traffic, and which of it is secret. The configuration has been checked.
pub(crate) fn observer(config: &Config) -> observer::Settings {
    let most_bytes = config.audit.max_size_mb.saturating_mul(1_000_000);
    let retention = parse_span(&config.audit.retention).unwrap_or(Span::from_secs(30 * 86_400));
    let sink = kept_in(config).map(|database| Arc::new(Sink::new(database, Keeping { retention, most_bytes })));
    let privacy = Arc::new(Privacy::new(&config.identify));
    observer::Settings {
        analysis: if config.insight { Analysis::On } else { Analysis::Off },
        audit: audit::Settings { keep: config.audit.keep, sink, privacy },
    }
}

/// The database that keeps what must outlive this process, if there is one. The configuration has been checked.
pub(crate) fn kept_in(config: &Config) -> Option<Database> {
    let url = config.audit.database.as_deref().or(config.rules_from.as_deref())?;
    database(url).ok()
}

/// How verdicts become responses.
pub(crate) fn answer_style(config: &Config) -> anyhow::Result<AnswerStyle> {
    Ok(config.limiter().answer_style()?)
}

/// How HTTP requests become attributes.
pub(crate) fn identity(config: &Config) -> anyhow::Result<Identity> {
    Ok(config.limiter().identity_for(&config.rules)?)
}
