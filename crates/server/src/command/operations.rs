//! Flags for operators, shared by every service: log, alerts and telemetry.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use clap::ValueEnum;
use tollkeeper::Clock;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::alerts::{self, Watched};
use crate::config::Config;
use crate::moment::Moment;
use crate::service::Service;
use crate::settings::Loaded;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct OperationsArgs {
    /// A URL that alerts are posted to: the store is unreachable or full, or rules were refused
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_ALERT_WEBHOOK", hide_env_values = true)]
    alert_webhook: Option<String>,
    /// Signs the alerts that are posted; best given as an environment variable
    #[arg(long, value_name = "SECRET", env = "TOLLKEEPER_ALERT_SECRET", hide_env_values = true)]
    alert_secret: Option<String>,
    /// An OpenTelemetry collector for traces and metrics, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_OTLP", hide_env_values = true)]
    otlp: Option<String>,
    /// What to log, such as `info` or `tollkeeper=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "TOLLKEEPER_LOG")]
    log: String,
    /// The log format: lines for people, or one JSON object per line
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", env = "TOLLKEEPER_LOG_FORMAT")]
    log_format: LogFormat,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// The log format of this process, once logging has started.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

impl OperationsArgs {
    /// Each flag overrides the file's setting. An empty value counts as absent: compose files set variables like
    /// that.
    pub(super) fn override_in(&self, config: &mut Config) {
        for (flag, setting) in [
            (&self.alert_webhook, &mut config.alerts.webhook),
            (&self.alert_secret, &mut config.alerts.secret),
            (&self.otlp, &mut config.telemetry.otlp),
        ] {
            if flag.as_ref().is_some_and(|given| !given.is_empty()) {
                setting.clone_from(flag);
            }
        }
    }

    /// Logs what the filter lets through to standard error.
    pub(super) fn start_log(&self) -> anyhow::Result<()> {
        let mut filter: Targets = self.log.parse().with_context(|| format!("--log {:?}", self.log))?;
        if !self.log.contains("h2") {
            // It has a warning for each stream that a client resets too soon; we have one for the connection.
            filter = filter.with_target("h2", LevelFilter::ERROR);
        }
        let builder = tracing_subscriber::fmt()
            .with_max_level(most_detailed(&filter))
            .with_timer(LogTimer(Clock::system()))
            .with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().with(filter).init(),
            LogFormat::Json => {
                let builder = builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
                builder.finish().with(filter).init();
                // Otherwise a panic would be printed as plain text.
                std::panic::set_hook(Box::new(|panic| tracing::error!(target: "tollkeeper::panic", "{panic}")));
            }
        }
        let _ = FORMAT.set(self.log_format);
        Ok(())
    }
}

/// The most detailed level that any target has. The log as a whole has that level too, so that lines below it are left out before a
/// filter is asked about each: HTTP libraries have dozens for every request.
fn most_detailed(filter: &Targets) -> LevelFilter {
    filter.iter().map(|(_, level)| level).chain(filter.default_level()).max().unwrap_or(LevelFilter::OFF)
}

/// Timestamps of the log, in the same format as all other times.
struct LogTimer(Clock);

impl FormatTime for LogTimer {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        write!(to, "{}", Moment(self.0.now()))
    }
}

/// Whether standard error is JSON, one object per line.
fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// The last message of a command that failed.
pub(super) fn say_error(error: &anyhow::Error) {
    if is_json() {
        tracing::error!("{error:#}");
    } else {
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
    }
}

/// Warnings go to standard error, so that they do not mix with data.
pub(super) fn warn(loaded: &Loaded) {
    for warning in &loaded.warnings {
        if is_json() {
            tracing::warn!("{warning}");
        } else {
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
    }
}

/// Starts alerts and telemetry for a service that listens here.
pub(super) fn start(service: &Arc<Service>, config: &Config, bound: SocketAddr) -> anyhow::Result<()> {
    let instance = alerts::instance(&config.alerts, bound.port());
    let counted = service.clone();
    service.tracer.start(&config.telemetry, &instance, move || counted.families())?;
    let watched = Watched {
        limiter: service.limiter.clone(),
        metrics: service.metrics.clone(),
        rules: service.rules.clone(),
        counters: service.alerts.clone(),
    };
    alerts::start(watched, &config.alerts, instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log had the level `trace` whatever the filter was, so that every line of every library asked the filter.
    #[test]
    fn the_log_is_as_detailed_as_its_most_detailed_target() {
        for (filter, most) in [
            ("info", LevelFilter::INFO),
            ("warn,h2=trace", LevelFilter::TRACE),
            ("debug,tollkeeper=error", LevelFilter::DEBUG),
            ("tollkeeper=warn", LevelFilter::WARN),
            ("off", LevelFilter::OFF),
        ] {
            assert_eq!(most_detailed(&filter.parse().expect("a filter")), most, "{filter}");
        }
    }
}
