//! `tollkeeper alerts test`: do alerts arrive?

use std::io::Write as _;

use anyhow::bail;
use serde_json::json;
use tollkeeper::Clock;

use super::configuration::ConfigArgs;
use super::ending::Ending;
use crate::alerts::{Alert, Kind, Status, Webhook, instance};
use crate::background::block_on;

/// Test the delivery of alerts
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Send one alert of kind `test` and print the receiver's answer
    #[command(after_help = "Examples:
  tollkeeper alerts test --config tollkeeper.yaml
  TOLLKEEPER_ALERT_SECRET=... tollkeeper alerts test --alert-webhook https://hooks.example/tollkeeper

Exit status: 0 the receiver accepted it, 1 it did not, 2 usage error or failure.")]
    Test(TestArgs),
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The URL to send it to, instead of the one in the file
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_ALERT_WEBHOOK", hide_env_values = true)]
    alert_webhook: Option<String>,
    /// The secret that signs it, instead of the one in the file
    #[arg(long, value_name = "SECRET", env = "TOLLKEEPER_ALERT_SECRET", hide_env_values = true)]
    alert_secret: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let Verb::Test(args) = args.verb;
    let mut config = args.config.load()?.config.alerts;
    let given = |flag: Option<String>| flag.filter(|given| !given.is_empty());
    config.webhook = given(args.alert_webhook).or(config.webhook);
    config.secret = given(args.alert_secret).or(config.secret);
    let Some(webhook) = Webhook::of(&config)? else {
        bail!("there is no webhook; set alerts.webhook in the file, or --alert-webhook URL");
    };
    let now = Clock::system().now();
    let summary = "this is a test; nothing is wrong".to_string();
    let alert = Alert::new((Kind::Test, Status::Started), now, &instance(&config, 0), summary, json!({}));
    let answered = block_on(webhook.post(&alert, now.as_micros() / 1_000_000))?;
    let signed = if config.secret.is_some() { "signed" } else { "not signed: alerts.secret is not set" };
    match answered {
        Ok(status) => {
            writeln!(std::io::stdout(), "{} accepted it: {status} (alert {}, {signed})", webhook.to(), alert.id)?;
            Ok(Ending::Fine)
        }
        Err(refused) => {
            writeln!(std::io::stderr(), "{} did not accept it: {refused} ({signed})", webhook.to())?;
            Ok(Ending::No)
        }
    }
}
