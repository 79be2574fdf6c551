//! Answers questions by asking the library.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tollkeeper::http::AnswerStyle;
use tollkeeper::{Charge, CheckError, Descriptor, Limiter, Store, Verdict};

use crate::ask::{Ask, Reply};
use crate::error::{Error, Kind};
use crate::exception;
use crate::hold::{Estimate, Slots, actual};
use crate::io::Io;
use crate::request::Subject;
use crate::rules::Front;
use crate::verdict::Checked;

/// Decides charges.
pub(crate) async fn decided(limiter: Arc<Limiter>, charges: Vec<Charge>, style: AnswerStyle) -> Result<Reply, Error> {
    let verdict = limiter.check_charges(charges).await?;
    Ok(checked(verdict, &limiter, style))
}

/// A verdict as an answer.
pub(crate) fn checked(verdict: Verdict, limiter: &Limiter, style: AnswerStyle) -> Reply {
    Reply::Checked(Checked { verdict: Arc::new(verdict), now: limiter.store().now(), style })
}

/// Asks the library. `io` is there if slots and estimates are kept by a server.
pub(crate) async fn answer(
    front: Arc<Front>,
    limiter: Arc<Limiter>,
    io: Option<Arc<Io>>,
    ask: Ask,
) -> Result<Reply, Error> {
    let checked =
        |verdict| Checked { verdict: Arc::new(verdict), now: limiter.store().now(), style: front.style.clone() };
    if let Ask::Check(subject) | Ask::Acquire(subject) | Ask::Reserve(subject, _) = &ask
        && let Subject::Attributes(request) = subject
    {
        known_rules(&limiter, request)?;
    }
    match ask {
        Ask::Check(Subject::Attributes(request)) => Ok(Reply::Checked(checked(limiter.check(&request).await?))),
        Ask::Check(Subject::Http(head)) => {
            front.refuse(&limiter, &head)?;
            Ok(Reply::Checked(checked(limiter.check(&head.describe(&front.identity)).await?)))
        }
        Ask::CheckMany(requests) => {
            require_valid(&limiter, &requests)?;
            // Concurrently: a shared store is asked for many at a time.
            let decided = join_all(requests.iter().map(|request| limiter.check(request))).await;
            let each = decided.into_iter().map(|decided| match decided {
                Ok(verdict) => Ok(Ok(checked(verdict))),
                Err(CheckError::Overloaded(overloaded)) => Ok(Err(overloaded)),
                Err(error) => Err(error.into()),
            });
            each.collect::<Result<_, Error>>().map(Reply::CheckedMany)
        }
        Ask::Acquire(subject) => {
            let (verdict, permit) = match &subject {
                Subject::Attributes(request) => limiter.acquire(request).await?,
                Subject::Http(head) => {
                    front.refuse(&limiter, head)?;
                    limiter.acquire(&head.describe(&front.identity)).await?
                }
            };
            Ok(Reply::Acquired(checked(verdict), Slots::new(permit)))
        }
        Ask::Reserve(subject, hold) => {
            let hold = hold.unwrap_or(Duration::from_secs(600));
            match &subject {
                Subject::Attributes(request) => {
                    let (verdict, reservation) = limiter.reserve_for(request, hold).await?;
                    Ok(Reply::Reserved(checked(verdict), Estimate::new(reservation, io)))
                }
                Subject::Http(head) => {
                    front.refuse(&limiter, head)?;
                    let (verdict, mut reservation) = limiter.reserve_for(&head.describe(&front.identity), hold).await?;
                    let slots = Slots::new(reservation.take_slots());
                    Ok(Reply::ReservedHttp(checked(verdict), slots, Estimate::new(reservation, io)))
                }
            }
        }
        Ask::GiveBack(estimate) => {
            estimate.take().ok_or_else(of_parent)?.give_back().await?;
            Ok(Reply::Done)
        }
        Ask::Settle(estimate, cost, attributes) => {
            let reservation = estimate.take().ok_or_else(of_parent)?;
            Ok(Reply::Settled(reservation.settle(actual(cost, attributes)).await?))
        }
        Ask::Inspect(rule, key) => match limiter.inspect(&rule, &key).await {
            Some(buckets) => Ok(Reply::Buckets(buckets?)),
            None => Err(no_rule(&rule)),
        },
        Ask::Reset(rule, key) => {
            let policy = limiter.policy();
            let template = policy.rule(&rule).ok_or_else(|| no_rule(&rule))?.key();
            let bucket = template.bucket_of(&key.into()).map_err(|unclear| Error::new(Kind::Usage, unclear))?;
            match limiter.reset(&rule, &bucket).await {
                Some(had_state) => Ok(Reply::Reset(had_state?)),
                None => Err(no_rule(&rule)),
            }
        }
        Ask::Except(exception, end) => {
            Ok(Reply::Exception(Some(Box::new(exception::except(&limiter, *exception, end).await?))))
        }
        Ask::Lift(rule, key) => Ok(Reply::Exception(exception::lift(&limiter, &rule, key).await?.map(Box::new))),
        Ask::Exceptions => Ok(Reply::Exceptions(limiter.exceptions())),
        Ask::Connect | Ask::Follow => Ok(Reply::Done),
        Ask::Close => {
            if let Store::Redis(redis) = limiter.store() {
                redis.leave().await;
            }
            Ok(Reply::Done)
        }
    }
}

/// A batch is refused before its first request is charged, or not at all.
fn require_valid(limiter: &Limiter, requests: &[Descriptor]) -> Result<(), Error> {
    let at = |index: usize, error: Error| Error { message: format!("requests[{index}]: {}", error.message), ..error };
    let policy = limiter.policy();
    let has_costs = policy.rules().iter().any(|rule| rule.cost().is_carried());
    for (index, request) in requests.iter().enumerate() {
        known_rules(limiter, request).map_err(|error| at(index, error))?;
        if has_costs {
            policy.charges(request).map_err(|error| at(index, error.into()))?;
        }
    }
    Ok(())
}

/// A misspelled rule name would let every request pass.
pub(crate) fn known_rules(limiter: &Limiter, request: &Descriptor) -> Result<(), Error> {
    let Some(names) = request.rules() else { return Ok(()) };
    if names.is_empty() {
        return Err(Error::new(Kind::Usage, "rules: is empty; name a rule, or leave it out for all rules"));
    }
    let policy = limiter.policy();
    names.iter().find(|name| policy.rule(name).is_none()).map_or(Ok(()), |name| Err(no_rule(name)))
}

fn of_parent() -> Error {
    Error::new(Kind::Usage, "the reservation was made by the process that this one was forked from")
}

fn no_rule(name: &str) -> Error {
    Error::new(Kind::Usage, format!("there is no rule `{name}`"))
}
