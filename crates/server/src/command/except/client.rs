//! Asks a running service over its HTTP API.

use std::time::Duration;

use anyhow::{Context as _, bail};
use http::header::AUTHORIZATION;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(10);
/// No answer is larger: ten thousand exceptions of the longest texts.
const LARGEST: usize = 64 << 20;

/// Which service, and how to ask it.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// The HTTP address of a running service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", env = "TOLLGATE_SERVER")]
    server: String,
    /// The token that the admin part of its API asks for
    #[arg(long, value_name = "TOKEN", env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Print the answer as JSON
    #[arg(long, env = "TOLLGATE_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) json: bool,
}

/// What a service says.
pub(super) enum Answer {
    /// Done.
    Done(Value),
    /// Not with these values, and why.
    Refused(String),
}

impl ServerArgs {
    /// Asks, and waits for the answer.
    pub(super) fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Answer> {
        let base = self.server.trim_end_matches('/');
        if !base.starts_with("http://") {
            bail!("--server: {base:?} is no address that can be asked; write for example http://127.0.0.1:8080");
        }
        let uri: Uri = format!("{base}{path}").parse().with_context(|| format!("--server: {base:?}"))?;
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(token) = &self.admin_token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request.body(Full::new(bytes::Bytes::from(body))).context("--admin-token cannot be sent")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(WITHIN, send(request, base)).await })?
    }
}

async fn send(request: Request<Full<bytes::Bytes>>, base: &str) -> anyhow::Result<Answer> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await;
    let response = response.with_context(|| format!("--server: no service answers at {base}; is it running?"))?;
    let status = response.status();
    let whole = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = whole.map_err(|error| anyhow::anyhow!("{base}: {error}"))?.to_bytes();
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    let detail =
        || answer.as_ref().and_then(|answer| answer["detail"].as_str()).unwrap_or("no reason given").to_string();
    match status {
        StatusCode::OK => match answer {
            Some(answer) => Ok(Answer::Done(answer)),
            None => bail!("{base}: this is no answer of Tollgate; is it the HTTP address?"),
        },
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(Answer::Refused(detail())),
        _ => bail!("{base}: {status}: {}", detail()),
    }
}
