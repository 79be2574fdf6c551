//! Client of a running service's HTTP API.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;

use crate::outgoing::{Answered, Caller, Destination, Spoken};
use crate::tls::CallerFiles;
use crate::tokens;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// The largest answer: ten thousand exceptions with the longest texts.
const LARGEST: usize = 64 << 20;

/// Which service.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceArgs {
    /// The HTTP address of a running service
    #[arg(
        long,
        visible_alias = "url",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        env = "TOLLKEEPER_SERVER"
    )]
    server: String,
    /// The token for its admin API; found automatically for a service that this user runs on this machine
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// CA certificates (PEM) for an https:// service; the system's trust store by default
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_CA")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    certificate: CertificateArgs,
}

/// The certificate of this client, for a service that asks for one (`listen.tls.client_ca`).
#[derive(Clone, Debug, clap::Args)]
pub struct CertificateArgs {
    /// The client certificate (PEM), for a service that asks for one
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_CLIENT_CERT", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_CLIENT_KEY", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

impl CertificateArgs {
    /// With the CA certificates of `--ca`.
    pub fn with(&self, ca: Option<PathBuf>) -> CallerFiles {
        let (cert, key) = (self.client_cert.clone(), self.client_key.clone());
        CallerFiles { certificate: cert.zip(key), ..CallerFiles::trusting("--ca", ca) }
    }
}

/// A service's answer.
pub enum Reply {
    /// Done.
    Done(Value),
    /// Refused, and why.
    Refused(String),
}

impl ServiceArgs {
    /// The answer to a GET of a path with these parameters, as far as they have a value.
    pub async fn get(&self, path: &str, parameters: &[(&str, Option<&str>)]) -> anyhow::Result<Value> {
        let given = parameters.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let separator = if query.is_empty() { "" } else { "?" };
        match self.ask(Method::GET, &format!("{path}{separator}{}", query.join("&")), None).await? {
            Reply::Done(answer) => Ok(answer),
            Reply::Refused(reason) => bail!("{}: {reason}", self.server),
        }
    }

    /// Sends a request, and waits for the answer.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Reply> {
        let to = Destination::service(self.server.trim_end_matches('/'));
        let to = to.map_err(|problem| anyhow::anyhow!("--server: {:?} {problem}", self.server))?;
        let base = to.to_string();
        let found = self.token(&to);
        let caller = Caller::new(to, Spoken::Http1, self.certificate.with(self.ca.clone()))?.patient(PATIENCE, LARGEST);
        let mut headers = HeaderMap::new();
        if let Some((token, _)) = &found {
            let token = HeaderValue::from_str(&format!("Bearer {token}"));
            headers.insert(AUTHORIZATION, token.context("--admin-token: cannot be sent in a header")?);
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let answered = caller.call(method, path, headers, body.into_bytes()).await;
        let Answered { status, body, .. } = answered
            .map_err(|problem| anyhow::anyhow!("--server: no service answers at {base}; is it running? ({problem})"))?;
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        let detail = || {
            let detail = answer.as_ref().and_then(|answer| answer["detail"].as_str());
            detail.unwrap_or("no reason given").to_string()
        };
        match status {
            StatusCode::OK => match answer {
                Some(answer) => Ok(Reply::Done(answer)),
                None => bail!("{base}: this answer is not from Tollkeeper; is this the HTTP address of the service?"),
            },
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(Reply::Refused(detail())),
            StatusCode::UNAUTHORIZED => bail!("{base}: {status}: {}{}", detail(), advice(found.as_ref())),
            _ => bail!("{base}: {status}: {}", detail()),
        }
    }

    /// The token to send: the one that was given, or the one that a service of this user has made here.
    fn token(&self, to: &Destination) -> Option<(String, Option<PathBuf>)> {
        match &self.admin_token {
            Some(token) => Some((token.clone(), None)),
            None => tokens::find(to.host(), to.port()).map(|(token, path)| (token, Some(path))),
        }
    }
}

/// What to do about a token that was refused, by where it came from.
fn advice(found: Option<&(String, Option<PathBuf>)>) -> String {
    match found {
        None => "; pass it as --admin-token or TOLLKEEPER_ADMIN_TOKEN".into(),
        Some((_, Some(path))) => {
            let path = path.display();
            format!("; the token in {path} belongs to another service, so pass the right one as --admin-token")
        }
        Some((_, None)) => String::new(),
    }
}

/// Percent-encodes everything that has a meaning in a query.
pub fn escaped(value: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    value.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
