//! The answer to a message of Envoy.

use tonic::Status;

use super::answer;
use super::envoy::{RateLimitRequest, RateLimitResponse};
use super::request;
use crate::metrics::Front;
use crate::service::Service;

/// Decides all descriptors of a message, all or nothing.
pub(super) async fn decide(service: &Service, message: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let asked = request::read(message).inspect_err(|_| service.refused(Front::Grpc, 1))?;
    let parts = request::parts(&service.limiter, &asked).inspect_err(|_| service.refused(Front::Grpc, 1))?;
    let decided = service.check_together(Front::Grpc, &request::Described(&asked), parts).await;
    let decided = decided.map_err(|error| Status::unavailable(error.to_string()))?;
    if decided.whole.is_unavailable() {
        // An error, not "over limit", so that Envoy's own failure mode applies.
        let rule = decided.whole.limiting().map(|row| row.charge.rule.name().to_string()).unwrap_or_default();
        return Err(Status::unavailable(format!("the store cannot answer, and rule `{rule}` fails closed")));
    }
    Ok(answer::answer(&service.answer, &asked, &decided, service.limiter.store().now()))
}
