//! Making, lifting and listing exceptions.

use tollkeeper_core::{Exception, ExceptionKind, KeyedBy, NamedKey, Rule, RuleErrors, Timestamp, UnclearKey};

use super::Limiter;
use crate::store::exceptions::{ExceptionError, Exceptions};

impl Limiter {
    /// The longest key and the longest reason of an exception, in characters.
    const MAX_TEXT: usize = 1_024;

    /// The exceptions in force, by rule and key.
    pub fn exceptions(&self) -> Vec<Exception> {
        let now = self.store().now();
        let mut all = self.store().exceptions().all();
        all.retain(|exception| !exception.is_over(now));
        all.sort_by(|a, b| (&a.rule, &a.key, &a.by).cmp(&(&b.rule, &b.key, &b.by)));
        all
    }

    /// Makes an exception, replacing any other for the same rule and key, and returns it as it is in force: `since`
    /// now. All instances that share the store follow within about a second.
    ///
    /// If the rule's key has alternatives, such as `{api_key|ip}`, the exception is for one of them: the one named by
    /// [`NamedKey::by`], otherwise the only possible one. `by` of the result says which.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Exception, ExceptionKind, Limiter, MemoryStore, Policy, RuleSpec, Span};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let rule = RuleSpec { name: "per-user".into(), key: "{user_id}".into(), limit: "2/min".into(), ..RuleSpec::default() };
    /// let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
    /// let hour = limiter.store().now() + Span::from_secs(3_600);
    /// limiter.except(Exception::new("per-user", "42", ExceptionKind::Block).until(hour).because("scraper")).await?;
    ///
    /// let verdict = limiter.check(&Descriptor::new([("user_id", "42")])).await.expect("no cost");
    /// assert!(!verdict.is_allowed());
    /// assert!(limiter.lift(Some("per-user"), "42").await?.is_some());
    /// # Ok::<(), tollkeeper::ExceptionError>(()) }).unwrap();
    /// ```
    pub async fn except(&self, exception: Exception) -> Result<Exception, ExceptionError> {
        let now = self.store().now();
        let by = self.check_exception(&exception, now)?;
        let exception = Exception { by, ..exception };
        let known = self.store().known_exceptions().await?;
        let former = known.iter().find(|other| other.is_same(&exception)).and_then(|former| match &former.kind {
            ExceptionKind::Grant(grant) if !former.is_over(now) => Some((grant.clone(), former.since)),
            _ => None,
        });
        let made = Exception { since: now, former, ..exception };
        if known.iter().filter(|other| !Exceptions::is_outdated(other, now)).count() >= Exceptions::MOST
            && !known.iter().any(|other| other.is_same(&made))
        {
            return Err(ExceptionError::TooMany);
        }
        self.store().change_exceptions(known, Some(made.clone()), None, now).await?;
        Ok(made)
    }

    /// Ends the exception of a rule and key, or of every rule and the key, and returns it; `None` when there was
    /// none. If there are several, for different alternatives of the rule's key, the key has to say which
    /// ([`NamedKey::by`]).
    pub async fn lift(
        &self,
        rule: Option<&str>,
        key: impl Into<NamedKey>,
    ) -> Result<Option<Exception>, ExceptionError> {
        let (now, key) = (self.store().now(), key.into());
        let known = self.store().known_exceptions().await?;
        let Some(found) = self.meant(rule, &key, &known, now)?.cloned() else { return Ok(None) };
        match found.kind {
            // Ended now, and remembered for as long as its buckets may exist.
            ExceptionKind::Grant(_) => {
                let over = Exception { until: Some(now), ..found.clone() };
                self.store().change_exceptions(known, Some(over), None, now).await?;
            }
            _ => self.store().change_exceptions(known, None, Some(found.clone()), now).await?,
        }
        Ok(Some(found))
    }

    /// The exception that is meant.
    fn meant<'e>(
        &self,
        rule: Option<&str>,
        key: &NamedKey,
        known: &'e [Exception],
        now: Timestamp,
    ) -> Result<Option<&'e Exception>, ExceptionError> {
        let is_named = |one: &&Exception| one.rule.as_deref() == rule && one.key == key.text && !one.is_over(now);
        let mut found: Vec<&Exception> = known.iter().filter(is_named).collect();
        let by = match rule.and_then(|name| self.policy().rule(name).map(|rule| keyed_by(rule, key))) {
            None => Ok(key.by.clone()),
            Some(by) => by,
        };
        match by {
            Ok(by) if !key.by.is_empty() || found.len() > 1 && found.iter().any(|one| one.by == by) => {
                found.retain(|one| one.by == by);
            }
            Err(unclear) if !key.by.is_empty() => return Err(unclear.into()),
            _ => {}
        }
        match &*found {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            several => {
                let choices: Vec<String> = several.iter().map(|one| one.by.to_string()).collect();
                let problem = format!("there are several exceptions for this key; use {}", choices.join(" or "));
                Err(ExceptionError::Invalid { field: "by".into(), problem })
            }
        }
    }

    /// The attributes that the key is for, if the exception is valid.
    fn check_exception(&self, exception: &Exception, now: Timestamp) -> Result<KeyedBy, ExceptionError> {
        let invalid = |field: &str, problem: String| Err(ExceptionError::Invalid { field: field.into(), problem });
        if exception.key.is_empty() {
            return invalid("key", "is empty; name one of the rule's keys".into());
        }
        let texts = [Some(&exception.key), exception.reason.as_ref(), exception.made_by.as_ref()];
        for (field, text) in ["key", "reason", "made_by"].into_iter().zip(texts) {
            if text.is_some_and(|text| text.chars().count() > Limiter::MAX_TEXT) {
                return invalid(field, format!("is longer than {} characters", Limiter::MAX_TEXT));
            }
        }
        if exception.is_over(now) {
            return invalid("until", "is not in the future; leave it out for an exception without an end".into());
        }
        let policy = self.policy();
        let rule = match &exception.rule {
            Some(name) => Some(policy.rule(name).ok_or_else(|| ExceptionError::NoRule(name.clone()))?),
            None => None,
        };
        let by = match rule {
            Some(rule) => keyed_by(rule, &exception.named_key())?,
            None => self.check_every_rule(exception)?,
        };
        let ExceptionKind::Grant(grant) = &exception.kind else { return Ok(by) };
        let checked = match rule {
            Some(rule) => grant.quota(rule),
            // For rules of all kinds, so it must fit most of them.
            None => any_rule().and_then(|rule| grant.quota(&rule)),
        };
        match checked.err().and_then(|errors| errors.into_iter().next()) {
            Some(error) => invalid(&error.field, error.problem),
            None => Ok(by),
        }
    }

    /// An exception for every rule applies where the bucket is unambiguous: that must hold for at least one rule.
    fn check_every_rule(&self, exception: &Exception) -> Result<KeyedBy, ExceptionError> {
        let (policy, key) = (self.policy(), exception.named_key());
        let mut unclear = policy.rules().iter().map(|rule| keyed_by(rule, &key).err());
        match unclear.next() {
            Some(Some(first)) if unclear.all(|error| error.is_some()) => Err(first.into()),
            _ => Ok(key.by),
        }
    }
}

/// The attributes of a rule's key that a key is for.
fn keyed_by(rule: &Rule, key: &NamedKey) -> Result<KeyedBy, UnclearKey> {
    Ok(rule.key().keyed_by(rule.key().bucket_of(key)?.variant))
}

impl From<UnclearKey> for ExceptionError {
    fn from(UnclearKey { field, problem }: UnclearKey) -> ExceptionError {
        ExceptionError::Invalid { field: field.into(), problem }
    }
}

fn any_rule() -> Result<Rule, RuleErrors> {
    Rule::new("any").key("global").limit("1/s").build()
}
