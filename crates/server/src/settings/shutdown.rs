//! How the service stops.

use std::time::Duration;

use tollkeeper::{Span, parse_span};

use crate::config::ShutdownConfig;

/// How long a stopping service reports that it is draining before it stops.
pub(crate) fn shutdown_delay(shutdown: &ShutdownConfig) -> anyhow::Result<Duration> {
    const LONGEST: Span = Span::from_secs(600);
    let delay = parse_span(&shutdown.delay)?;
    match delay <= LONGEST {
        true => Ok(delay.as_duration()),
        false => anyhow::bail!("{delay} is longer than {LONGEST}; 5s is usual"),
    }
}
