//! Buckets, for those who look after them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::Uri;

use super::admin::who;
use super::check::{no_rule, unavailable};
use super::pages::json;
use super::problem::Refused;
use super::shared::Shared;
use crate::service::changes::Changed;
use crate::strict::{self, Filled};
use crate::wire::{BucketChangeQuery, BucketQuery, KeyAnswer, ResetAnswer};

const HINT: &str = "ask for example /v1/keys?rule=free-user&key=42";

/// `GET /v1/keys`: a bucket, without touching it.
pub(super) async fn show(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let service = &shared.service;
    let BucketQuery { rule: Filled(name), key: Filled(key) } = strict::query(uri.query(), HINT)?;
    let policy = service.limiter.policy();
    let Some(rule) = policy.rule(&name) else {
        return Err(no_rule(service, &name).into());
    };
    match service.limiter.inspect(&name, &key).await {
        None => Err(no_rule(service, &name).into()),
        Some(Err(error)) => Err(unavailable(&error).into()),
        Some(Ok(buckets)) => Ok(json(&KeyAnswer::new(rule, &key, &buckets))),
    }
}

/// `DELETE /v1/keys`: forgets a bucket.
pub(super) async fn reset(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let BucketChangeQuery { rule: Filled(rule), key: Filled(key), by } = strict::query(uri.query(), HINT)?;
    match shared.service.limiter.reset(&rule, &key).await {
        None => Err(no_rule(&shared.service, &rule).into()),
        Some(Err(error)) => Err(unavailable(&error).into()),
        Some(Ok(reset)) => {
            shared.service.changed(&Changed::Reset { rule: &rule, key: &key }, who(&shared.service, by));
            Ok(json(&ResetAnswer { reset }))
        }
    }
}
