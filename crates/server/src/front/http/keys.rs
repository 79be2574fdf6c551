//! Buckets, for those who look after them.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use http::Uri;

use super::admin::who;
use super::check::{no_rule, unavailable};
use super::{Front, Problem, pages::json};
use crate::service::Service;
use crate::service::changes::Changed;
use crate::wire::{self, KeyAnswer, ResetAnswer};

/// `GET /v1/keys`: a bucket, without touching it.
pub(super) async fn show(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Problem> {
    let service = &front.service;
    let named = Named::parse(&uri, "/v1/keys")?;
    let policy = service.limiter.policy();
    let Some(rule) = policy.rule(&named.rule) else {
        return Err(no_rule(service, &named.rule));
    };
    match service.limiter.inspect(&named.rule, &named.key).await {
        None => Err(no_rule(service, &named.rule)),
        Some(Err(error)) => Err(unavailable(&error)),
        Some(Ok(buckets)) => Ok(json(&KeyAnswer::new(rule, &named.key, &buckets))),
    }
}

/// `DELETE /v1/keys`: forgets a bucket.
pub(super) async fn reset(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Problem> {
    let (named, by) = Named::parse_change(&front.service, &uri, "/v1/keys")?;
    match front.service.limiter.reset(&named.rule, &named.key).await {
        None => Err(no_rule(&front.service, &named.rule)),
        Some(Err(error)) => Err(unavailable(&error)),
        Some(Ok(reset)) => {
            front.service.changed(&Changed::Reset { rule: &named.rule, key: &named.key }, by);
            Ok(json(&ResetAnswer { reset }))
        }
    }
}

/// The bucket that a query names.
pub(super) struct Named {
    pub(super) rule: String,
    pub(super) key: String,
}

impl Named {
    /// From the query of `path`.
    pub(super) fn parse(uri: &Uri, path: &str) -> Result<Named, Problem> {
        Ok(Named::read(uri, path, &["rule", "key"])?.0)
    }

    /// From the query of `path`, which may also tell who changes something there.
    pub(super) fn parse_change(service: &Service, uri: &Uri, path: &str) -> Result<(Named, String), Problem> {
        let (named, by) = Named::read(uri, path, &["rule", "key", "as"])?;
        Ok((named, who(service, by)?))
    }

    fn read(uri: &Uri, path: &str, known: &[&str]) -> Result<(Named, Option<String>), Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Problem::invalid("", format!("the query cannot be read: {error}")))?;
        let (mut rule, mut key, mut by) = (None, None, None);
        for (name, value) in pairs {
            let slot = match name.as_str() {
                "rule" => &mut rule,
                "key" => &mut key,
                "as" if known.contains(&"as") => &mut by,
                _ => return Err(Problem::invalid(name.as_str(), wire::unknown(&name, known))),
            };
            if value.is_empty() && name != "as" {
                return Err(Problem::invalid(name, "is empty; name a rule and one of its keys"));
            }
            if slot.replace(value).is_some() {
                return Err(Problem::invalid(name, "is given twice; leave one out"));
            }
        }
        let missing =
            |name| Problem::invalid(name, format!("is missing; ask for example {path}?rule=free-user&key=42"));
        let named = Named { rule: rule.ok_or_else(|| missing("rule"))?, key: key.ok_or_else(|| missing("key"))? };
        Ok((named, by))
    }
}
