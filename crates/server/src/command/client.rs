//! Asking a service that runs: for commands that show what it knows.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::body::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where the service is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServiceArgs {
    /// The address of the service
    #[arg(
        long,
        visible_alias = "server",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        env = "TOLLGATE_URL"
    )]
    url: String,
    /// The token that the admin part of the service asks for
    #[arg(long, value_name = "TOKEN", env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
}

impl ServiceArgs {
    /// What the service answers to a path with these parameters.
    pub(super) async fn get(&self, path: &str, parameters: &[(&str, String)]) -> anyhow::Result<Value> {
        let base = self.url.trim_end_matches('/');
        if !base.starts_with("http://") {
            bail!("--url {base}: write http://HOST:PORT; for https, go through what ends TLS before the service");
        }
        let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let separator = if query.is_empty() { "" } else { "?" };
        let uri: Uri = format!("{base}{path}{separator}{}", query.join("&"))
            .parse()
            .with_context(|| format!("--url {base}: is no address; write for example http://127.0.0.1:8080"))?;
        let mut request = Request::get(uri);
        if let Some(token) = &self.admin_token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).context("--admin-token: cannot be sent in a header")?;
        let asking = async {
            let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, anyhow::Error>((status, body))
        };
        let (status, body) = timeout(PATIENCE, asking)
            .await
            .map_err(|_| anyhow::anyhow!("no answer within {PATIENCE:?}"))
            .and_then(|answered| answered)
            .with_context(|| format!("{base}: cannot be asked; is a service running there? --url names another"))?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !status.is_success() {
            bail!("{base}: {status}: {}", answer["detail"].as_str().unwrap_or("it does not say why"));
        }
        Ok(answer)
    }
}

/// Percent-encodes whatever could mean something in a query.
fn encoded(value: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    value.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
