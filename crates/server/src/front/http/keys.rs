//! Inspecting and resetting buckets.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use tollkeeper::http::Problem;
use tollkeeper::{NamedKey, UnclearKey};

use super::check::{no_rule, unavailable};
use super::guard::who;
use super::pages::json;
use super::problem::Refused;
use super::shared::Shared;
use crate::service::changes::Changed;
use crate::strict::{self, Filled};
use crate::wire::{BucketChangeQuery, BucketQuery, KeyAnswer, ResetAnswer};

const HINT: &str = "ask for example /v1/keys?rule=free-user&key=42";

/// `GET /v1/keys`: a bucket, without changing it.
pub(super) async fn show(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let service = &shared.service;
    let query: BucketQuery = strict::query(uri.query(), HINT)?;
    let (named, Filled(name)) = (query.named_key(), &query.rule);
    let policy = service.limiter.policy();
    let Some(rule) = policy.rule(name) else {
        return Err(no_rule(service, name).into());
    };
    let only = if named.by.is_empty() {
        None
    } else {
        Some(rule.key().bucket_of(&named).map_err(|error| unclear(&named, error))?.variant)
    };
    match service.limiter.inspect(name, &named.text).await {
        None => Err(no_rule(service, name).into()),
        Some(Err(error)) => Err(unavailable(&error).into()),
        Some(Ok(mut buckets)) => {
            buckets.retain(|bucket| only.is_none_or(|variant| bucket.charge.key.variant == variant));
            Ok(json(&KeyAnswer::new(rule, &named.text, &buckets)))
        }
    }
}

/// `DELETE /v1/keys`: resets a bucket.
pub(super) async fn reset(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let query: BucketChangeQuery = strict::query(uri.query(), HINT)?;
    let named = query.named_key();
    let BucketChangeQuery { rule: Filled(name), who: by_whom, .. } = query;
    let policy = shared.service.limiter.policy();
    let Some(rule) = policy.rule(&name) else {
        return Err(no_rule(&shared.service, &name).into());
    };
    let key = rule.key().bucket_of(&named).map_err(|error| unclear(&named, error))?;
    match shared.service.limiter.reset(&name, &key).await {
        None => Err(no_rule(&shared.service, &name).into()),
        Some(Err(error)) => Err(unavailable(&error).into()),
        Some(Ok(reset)) => {
            let by = rule.key().keyed_by(key.variant);
            let named = named.by(by.clone());
            shared.service.changed(&Changed::Reset { rule: &name, key: &named }, who(by_whom));
            Ok(json(&ResetAnswer::new(reset, &by)))
        }
    }
}

/// 404 for an attribute that the rule's key does not have. 400 if the key is ambiguous: the caller has to choose.
fn unclear(named: &NamedKey, UnclearKey { field, problem }: UnclearKey) -> Problem {
    match named.by.is_empty() {
        true => Problem::invalid(field, problem),
        false => Problem::new(StatusCode::NOT_FOUND, format!("{field}: {problem}")).field(field),
    }
}
