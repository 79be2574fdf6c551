//! `tollkeeper health`: is a running service healthy? For images without curl.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::anyhow;
use http::{HeaderMap, Method};

use super::client::CertificateArgs;
use super::ending::Ending;
use crate::background::block_on;
use crate::outgoing::{Caller, Destination, Spoken};

/// Check the health of a running service
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper health                                   does the process answer?
  tollkeeper health 10.0.0.5:8080                     another service; without a path, /healthz
  tollkeeper health http://127.0.0.1:8080/readyz      and does its store?

Exit status: 0 healthy, 1 not healthy or no answer.")]
pub struct Args {
    /// The address of a service, or the URL to request
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080/healthz", env = "TOLLKEEPER_HEALTH_URL")]
    url: String,
    /// CA certificates (PEM) for an https:// service; the system's trust store by default
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_HEALTH_CA")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    certificate: CertificateArgs,
}

pub fn run(args: Args) -> anyhow::Result<Ending> {
    let to = Destination::service(&args.url).map_err(|problem| anyhow!("URL: {problem}"))?;
    let page = if to.has_path() { "" } else { "/healthz" };
    let caller = Caller::new(to, Spoken::Http1, args.certificate.with(args.ca))?;
    let (to, problem) = match block_on(caller.call(Method::GET, page, HeaderMap::new(), Vec::new()))? {
        Ok(answered) if answered.status.is_success() => {
            writeln!(std::io::stdout(), "{}: {}", caller.to(), answered.status)?;
            return Ok(Ending::Fine);
        }
        Ok(answered) => (caller.to(), answered.status.to_string()),
        Err(problem) => (caller.to(), problem),
    };
    writeln!(std::io::stderr(), "{to}: {problem}")?;
    Ok(Ending::No)
}
