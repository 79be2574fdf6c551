//! Reservations, for costs known only afterwards: an estimate is charged, and settled by any caller that knows the
//! reservation's ID.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use data_encoding::HEXLOWER;
use http::StatusCode;
use tollkeeper::http::Problem;
use tollkeeper::{Actual, Owner, Policy, SettleError, Ticket};

use super::check::{bad_cost, headers, known_rules, unavailable, undecided};
use super::pages::json;
use super::problem::{Refused, segment};
use super::shared::Shared;
use crate::front::connections::Peer;
use crate::metrics::Front;
use crate::network;
use crate::strict::quoted;
use crate::wire::{self, Check, ReservationAnswer, ReserveAnswer, SettleAnswer};

/// `POST /v1/reserve`.
pub(super) async fn reserve(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let peer = request.extensions().get::<Peer>().map(|peer| network::of_client(peer.ip).to_string());
    let body = shared.body(request).await.inspect_err(|_| shared.refused(1))?;
    let (check, hold_ms) = wire::parse_reserve(&body).inspect_err(|_| shared.refused(1))?.into_parts();
    let policy = shared.service.limiter.policy();
    known_rules("", &policy, &check).inspect_err(|_| shared.refused(1))?;
    let key = reserved_key(&policy, &check).inspect_err(|_| shared.refused(1))?;
    let hold = Duration::from_millis(hold_ms);
    let reserved = shared.service.reserve(&check, hold).await;
    shared.service.count(Front::Http, reserved.as_ref().map(|(verdict, _)| verdict));
    let (verdict, reservation) = reserved.map_err(|error| undecided(&error))?;
    let headers = headers(&shared.service, &check, &verdict);
    if !verdict.is_allowed() {
        return Ok(json(&ReserveAnswer::new(&verdict, headers, None, &shared.service.seal)));
    }
    let ticket = reservation.into_ticket();
    let id = new_id()?;
    let record = serde_json::to_vec(&ticket).expect("a ticket is always JSON");
    let limiter = &shared.service.limiter;
    let owners = [peer.as_deref().map(Owner::Peer), Some(Owner::Key(&key))];
    let owners: Vec<Owner<'_>> = owners.into_iter().flatten().collect();
    if let Err(error) = limiter.keep(&id, &record, &owners, hold).await {
        // Without a stored ticket it could not be settled.
        let _ = limiter.redeem(ticket).settle(0).await;
        return Err(unavailable(&error).into());
    }
    let reservation = ReservationAnswer { id, expires_in_ms: hold_ms };
    Ok(json(&ReserveAnswer::new(&verdict, headers, Some(reservation), &shared.service.seal)))
}

/// The keys of a request as one text, if they are short enough to be kept until it is settled.
fn reserved_key(policy: &Policy, check: &Check<'_>) -> Result<String, Problem> {
    const LONGEST: usize = 8 * 1024;
    let charges = policy.charges(check).map_err(|error| bad_cost("", &error))?;
    let length: usize = charges.iter().map(|charge| charge.key.value.len()).sum();
    if length > LONGEST {
        let problem = format!("the keys of its rules are {length} bytes long, and at most {LONGEST} can be reserved");
        return Err(Problem::invalid("attributes", problem));
    }
    Ok(charges.iter().map(|charge| charge.key.value.as_str()).collect::<Vec<_>>().join("\n"))
}

/// `POST /v1/reservations/ID/settle`.
pub(super) async fn settle(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Refused> {
    let id = segment("id", id)?;
    let body = shared.body(request).await?;
    let settle = wire::parse_settle(&body)?;
    let mut actual = settle.cost().map_or_else(Actual::default, Actual::cost);
    for (name, value) in settle.attributes.iter() {
        actual = actual.attribute(name, value);
    }
    let limiter = &shared.service.limiter;
    let is_id = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let record = if is_id { limiter.claim(&id).await.map_err(|error| unavailable(&error))? } else { None };
    let ticket: Option<Ticket> = record.and_then(|record| serde_json::from_slice(&record).ok());
    let ticket = ticket.ok_or_else(|| {
        let problem = format!(
            "id: {} is not a reservation that can be settled; it is unknown, already settled, or expired",
            quoted(&id)
        );
        Problem::new(StatusCode::NOT_FOUND, problem).field("id")
    })?;
    match limiter.redeem(ticket).settle(actual).await {
        Ok(settlement) => Ok(json(&SettleAnswer::from(&settlement))),
        Err(SettleError::Cost(error)) => Err(bad_cost("", &error).into()),
        Err(SettleError::Store(error)) => Err(unavailable(&error).into()),
        Err(error) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into()),
    }
}

/// An unguessable ID.
fn new_id() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the system cannot provide random numbers: {error}"))
    })?;
    Ok(HEXLOWER.encode(&bytes))
}
