//! Exceptions for single keys, for hosts that make, lift and list them.

use tollkeeper::{Exception, ExceptionError, Limiter, NamedKey, Span, Timestamp};

use crate::error::{Error, Kind};

/// When an exception ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// When it is lifted.
    Never,
    /// After this time, by the store's clock.
    After(Span),
    /// At this time.
    At(Timestamp),
}

impl End {
    /// The end that a caller has given: a duration, a time, or neither.
    pub fn of(duration: Option<Span>, until: Option<Timestamp>) -> Result<End, Error> {
        match (duration, until) {
            (Some(_), Some(_)) => {
                Err(Error::new(Kind::Usage, "until: cannot be combined with duration; leave one out"))
            }
            (Some(Span::ZERO), None) => {
                let problem = "duration: is zero; leave it out for an exception without an end";
                Err(Error::new(Kind::Usage, problem))
            }
            (Some(span), None) => Ok(End::After(span)),
            (None, Some(until)) => Ok(End::At(until)),
            (None, None) => Ok(End::Never),
        }
    }
}

pub(crate) async fn except(limiter: &Limiter, exception: Exception, end: End) -> Result<Exception, Error> {
    let until = match end {
        End::Never => None,
        End::After(span) => Some(limiter.store().now() + span),
        End::At(until) => Some(until),
    };
    Ok(limiter.except(Exception { until, ..exception }).await?)
}

/// `rule` is a name, or `*` for every rule that uses this key.
pub(crate) async fn lift(limiter: &Limiter, rule: &str, key: NamedKey) -> Result<Option<Exception>, Error> {
    let rule = Some(rule).filter(|rule| *rule != "*");
    Ok(limiter.lift(rule, key).await?)
}

impl From<ExceptionError> for Error {
    fn from(error: ExceptionError) -> Error {
        let kind = match &error {
            // The limit of a grant is written as in a rule.
            ExceptionError::Invalid { field, .. } if matches!(&**field, "limit" | "burst") => Kind::Rule,
            _ => Kind::Usage,
        };
        match error {
            ExceptionError::Store(error) => error.into(),
            error => Error::new(kind, error),
        }
    }
}
