//! Where a service's rules come from: its file, or a database.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tollkeeper::Policy;

use super::{reload, signals};
use crate::background::block_on;
use crate::config::Config;
use crate::database::database;
use crate::rules::{self, RuleTable, Rules};
use crate::service::Service;
use crate::settings::Loaded;

/// Rules from a database, instead of those of the file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RulesArgs {
    /// A Postgres URL to take rules from, such as postgres://USER:PASSWORD@HOST:5432/DATABASE
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_RULES_FROM", hide_env_values = true)]
    rules_from: Option<String>,
    /// A file for the last good rules of the database, to start with while it is unreachable
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_RULES_SNAPSHOT")]
    rules_snapshot: Option<PathBuf>,
}

impl RulesArgs {
    /// Whether rules come from a database.
    pub(super) fn is_given(&self) -> bool {
        self.rules_from.is_some()
    }

    /// Flags override the file. A database replaces the example rules of the built-in default.
    pub(super) fn override_config(&self, config: &mut Config, is_default: bool) {
        if self.rules_from.is_some() {
            config.rules_from.clone_from(&self.rules_from);
            if is_default {
                config.rules.clear();
            }
        }
        if self.rules_snapshot.is_some() {
            config.rules_snapshot.clone_from(&self.rules_snapshot);
        }
    }
}

/// The initial rules: from the file, or from the database.
pub(super) async fn open(config: &Config, policy: Policy) -> anyhow::Result<Rules> {
    match &config.rules_from {
        None => Ok(Rules { policy, following: None }),
        Some(url) => {
            if config.rules_snapshot.is_none() {
                tracing::info!("without rules_snapshot this service does not start while Postgres is unreachable");
            }
            rules::open(url, config.rules_snapshot.clone()).await
        }
    }
}

/// Follows changes of the rules from now on. A file is reloaded when it changes, and on SIGHUP; SIGHUP also makes a
/// database be polled at once.
pub(super) fn follow<E: fmt::Display + 'static>(
    service: &Arc<Service>,
    load: impl Fn() -> Result<Policy, E> + Send + 'static,
    file: Option<PathBuf>,
) -> std::io::Result<()> {
    match service.rules.clone() {
        None => drop(crate::background::spawn(reload::reload(load, service.clone(), file)?)),
        Some(following) => {
            let limiter = service.limiter.clone();
            crate::background::spawn(
                following.followed.clone().run(move |policy| drop(limiter.replace_policy(policy))),
            );
            crate::background::spawn(signals::on_hangup(move || following.look())?);
        }
    }
    Ok(())
}

/// Loads the current rules, for commands that decide and exit.
pub(super) fn read_once(loaded: &mut Loaded) -> anyhow::Result<()> {
    let Some(url) = &loaded.config.rules_from else { return Ok(()) };
    let database = database(url).map_err(|problem| anyhow::anyhow!("rules_from: {problem}"))?;
    let read = block_on(RuleTable::new(database).read())?;
    loaded.policy = read.map_err(|error| anyhow::anyhow!("rules_from: {error}"))?.policy;
    Ok(())
}
