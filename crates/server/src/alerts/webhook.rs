//! Delivers alerts to a webhook: signed, in order, and with a bounded number of retries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ring::hmac;
use tokio::sync::mpsc;
use tollkeeper::Clock;
use tracing::{debug, warn};

use super::Alert;
use super::counters::{Counters, Delivery};
use crate::config::operations::AlertsConfig;
use crate::outgoing::{Caller, Destination, Spoken};
use crate::tls::CallerFiles;

/// `t=UNIX_SECONDS,v1=HEX`, the HMAC-SHA256 of `UNIX_SECONDS.BODY` by the secret.
const SIGNATURE: HeaderName = HeaderName::from_static("x-tollkeeper-signature");
/// The ID of the alert, the same in every attempt.
const ID: HeaderName = HeaderName::from_static("x-tollkeeper-alert");

/// Attempts, and the pauses between them: about three minutes in all.
const ATTEMPTS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where alerts go.
pub(crate) struct Webhook {
    caller: Caller,
    key: Option<hmac::Key>,
}

/// Why a receiver has not accepted an alert.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A later attempt may succeed.
    Now(String),
    /// No attempt will succeed.
    Always(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refused::Now(reason) | Refused::Always(reason)) = self;
        f.write_str(reason)
    }
}

impl Webhook {
    /// The webhook of a configuration, if it has one.
    pub(crate) fn of(config: &AlertsConfig) -> anyhow::Result<Option<Webhook>> {
        let Some(url) = &config.webhook else { return Ok(None) };
        let to = Destination::parse(url).map_err(|problem| anyhow::anyhow!("alerts.webhook: {problem}"))?;
        let caller = Caller::new(to, Spoken::Http1, CallerFiles::trusting("alerts.ca", config.ca.clone()))?;
        let key = config.secret.as_ref().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
        Ok(Some(Webhook { caller, key }))
    }

    pub(crate) fn to(&self) -> &Destination {
        self.caller.to()
    }

    /// One attempt; returns the status of a receiver that accepted it.
    pub(crate) async fn post(&self, alert: &Alert, now_s: u64) -> Result<StatusCode, Refused> {
        let body = serde_json::to_vec(alert).expect("an alert is always JSON");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ID, HeaderValue::from_str(&alert.id).expect("hexadecimal digits"));
        if let Some(key) = &self.key {
            headers.insert(SIGNATURE, signature(key, now_s, &body));
        }
        let answered = self.caller.post("", headers, body).await.map_err(Refused::Now)?;
        let status = answered.status;
        match status.as_u16() {
            200..=299 => Ok(status),
            300..=399 => Err(Refused::Always(format!("{status}: redirects are not followed; configure the final URL"))),
            408 | 425 | 429 | 500.. => Err(Refused::Now(status.to_string())),
            _ => Err(Refused::Always(status.to_string())),
        }
    }
}

fn signature(key: &hmac::Key, now_s: u64, body: &[u8]) -> HeaderValue {
    let signed = [format!("{now_s}.").as_bytes(), body].concat();
    let tag = data_encoding::HEXLOWER.encode(hmac::sign(key, &signed).as_ref());
    HeaderValue::try_from(format!("t={now_s},v1={tag}")).expect("plain text")
}

/// Delivers alerts in order, until no sender is left.
pub(super) async fn deliver_all(webhook: Webhook, mut waiting: mpsc::Receiver<Alert>, counters: Arc<Counters>) {
    let clock = Clock::system();
    while let Some(alert) = waiting.recv().await {
        let outcome = deliver(&webhook, &alert, &clock).await;
        counters.count_delivery(outcome);
    }
}

async fn deliver(webhook: &Webhook, alert: &Alert, clock: &Clock) -> Delivery {
    for attempt in 1..=ATTEMPTS {
        let refused = match webhook.post(alert, clock.now().as_micros() / 1_000_000).await {
            Ok(_) => return Delivery::Delivered,
            Err(refused) => refused,
        };
        if attempt == ATTEMPTS || matches!(refused, Refused::Always(_)) {
            warn!("alert {} was not accepted by {}, and is dropped: {refused}", alert.id, webhook.to());
            break;
        }
        debug!("alert {} was not accepted by {} yet: {refused}", alert.id, webhook.to());
        tokio::time::sleep(pause(attempt, random_share())).await;
    }
    Delivery::Failed
}

/// Exponential backoff with jitter: twice as long each time, up to a bound, and a random part between half and all of
/// that, so that many instances do not call in step.
fn pause(attempt: u32, share: f64) -> Duration {
    let whole = (FIRST_PAUSE * 2_u32.saturating_pow(attempt - 1)).min(LONGEST_PAUSE);
    whole.mul_f64(0.5 + share / 2.0)
}

/// From 0 to 1.
fn random_share() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ() {
        assert_eq!(pause(1, 1.0), Duration::from_millis(500));
        assert_eq!(pause(1, 0.0), Duration::from_millis(250));
        assert_eq!(pause(4, 1.0), Duration::from_secs(4));
        assert_eq!(pause(9, 1.0), LONGEST_PAUSE);
        let all: Duration = (1..ATTEMPTS).map(|attempt| pause(attempt, 1.0)).sum();
        assert!(all < Duration::from_secs(200), "{all:?}");
    }

    /// The expected value comes from Python's `hmac`.
    #[test]
    fn signatures_are_those_of_others() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"s3cret");
        let expected = "t=1700000000,v1=1698a50bc74d1ff1db85c4e0a5297c2ad9fdba245d5737cdb789e4cc6e098940";
        assert_eq!(signature(&key, 1_700_000_000, b"{\"a\":1}").to_str().ok(), Some(expected));
    }
}
