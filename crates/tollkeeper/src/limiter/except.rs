//! Making, lifting and showing exceptions.

use tollkeeper_core::{Exception, ExceptionKind, Rule, RuleErrors, Timestamp};

use super::Limiter;
use crate::store::exceptions::{ExceptionError, Exceptions};

impl Limiter {
    /// The longest key and the longest reason of an exception, in characters.
    const MAX_TEXT: usize = 1_024;

    /// The exceptions in force, by rule and key.
    pub fn exceptions(&self) -> Vec<Exception> {
        let now = self.store.now();
        let mut all = self.store.exceptions().all();
        all.retain(|exception| !exception.is_over(now));
        all.sort_by(|a, b| (&a.rule, &a.key).cmp(&(&b.rule, &b.key)));
        all
    }

    /// Makes an exception, in the place of one that the same rule and key had, and returns it as it is in force: `since` now.
    /// All who share the store follow within about a second.
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
    /// assert!(limiter.lift(Some("per-user"), "42").await?);
    /// # Ok::<(), tollkeeper::ExceptionError>(()) }).unwrap();
    /// ```
    pub async fn except(&self, exception: Exception) -> Result<Exception, ExceptionError> {
        let now = self.store.now();
        self.check_exception(&exception, now)?;
        let known = self.store.known_exceptions().await?;
        let is_same = |other: &&Exception| other.rule == exception.rule && other.key == exception.key;
        let former = known.iter().find(is_same).and_then(|former| match &former.kind {
            ExceptionKind::Grant(grant) if !former.is_over(now) => Some((grant.clone(), former.since)),
            _ => None,
        });
        let made = Exception { since: now, former, ..exception };
        if known.iter().filter(|other| !Exceptions::is_outdated(other, now)).count() >= Exceptions::MOST
            && !known.iter().any(|other| other.rule == made.rule && other.key == made.key)
        {
            return Err(ExceptionError::TooMany);
        }
        self.store.change_exceptions(known, Some(made.clone()), None, now).await?;
        Ok(made)
    }

    /// Ends the exception of a rule and key, or of every rule and the key; false when there was none.
    pub async fn lift(&self, rule: Option<&str>, key: &str) -> Result<bool, ExceptionError> {
        let now = self.store.now();
        let known = self.store.known_exceptions().await?;
        let is_meant = |other: &&Exception| other.rule.as_deref() == rule && other.key == key && !other.is_over(now);
        let Some(found) = known.iter().find(is_meant).cloned() else { return Ok(false) };
        match found.kind {
            // Over as of now, and remembered for as long as its buckets may be there.
            ExceptionKind::Grant(_) => {
                self.store.change_exceptions(known, Some(Exception { until: Some(now), ..found }), None, now).await?;
            }
            _ => self.store.change_exceptions(known, None, Some(found), now).await?,
        }
        Ok(true)
    }

    fn check_exception(&self, exception: &Exception, now: Timestamp) -> Result<(), ExceptionError> {
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
        let ExceptionKind::Grant(grant) = &exception.kind else { return Ok(()) };
        let checked = match rule {
            Some(rule) => grant.quota(rule),
            // For rules of all kinds: it must make sense to most of them.
            None => any_rule().and_then(|rule| grant.quota(&rule)),
        };
        match checked.err().and_then(|errors| errors.into_iter().next()) {
            Some(error) => invalid(&error.field, error.problem),
            None => Ok(()),
        }
    }
}

fn any_rule() -> Result<Rule, RuleErrors> {
    Rule::new("any").key("global").limit("1/s").build()
}
