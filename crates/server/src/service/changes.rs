//! Manual changes, for the audit and the log.

use tollkeeper::{Exception, ExceptionKind, KeyedBy, NamedKey};

use super::Service;
use crate::audit::{Action, ActionKind};

/// A change made through the admin part.
#[derive(Debug)]
pub(crate) enum Changed<'c> {
    /// An exception was made.
    Excepted(&'c Exception),
    /// An exception was ended.
    Lifted { rule: &'c str, key: &'c NamedKey },
    /// A bucket was reset.
    Reset { rule: &'c str, key: &'c NamedKey },
}

impl<'c> Changed<'c> {
    /// The action, the rule (`*` for every one), the key, and its attributes.
    fn named(&self) -> (ActionKind, &'c str, &'c str, &'c KeyedBy) {
        match self {
            Changed::Excepted(exception) => {
                let action = match exception.kind {
                    ExceptionKind::Block => ActionKind::Block,
                    ExceptionKind::Allow => ActionKind::Allow,
                    ExceptionKind::Grant(_) => ActionKind::Grant,
                };
                (action, exception.rule.as_deref().unwrap_or("*"), &exception.key, &exception.by)
            }
            Changed::Lifted { rule, key } => (ActionKind::Lift, rule, &key.text, &key.by),
            Changed::Reset { rule, key } => (ActionKind::Reset, rule, &key.text, &key.by),
        }
    }

    fn exception(&self) -> Option<&'c Exception> {
        match self {
            Changed::Excepted(exception) => Some(exception),
            _ => None,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Changed::Excepted(_) => "an exception was created",
            Changed::Lifted { .. } => "an exception was lifted",
            Changed::Reset { .. } => "a bucket was reset",
        }
    }
}

impl Service {
    /// Records a manual change in the audit and in the log.
    pub(crate) fn changed(&self, what: &Changed<'_>, by: String) {
        let (action, rule, key, key_by) = what.named();
        let made = what.exception();
        let limit = made.and_then(|made| match &made.kind {
            ExceptionKind::Grant(grant) => Some(grant.to_string()),
            _ => None,
        });
        let action = Action {
            at: self.limiter.store().now(),
            action,
            rule: rule.into(),
            key: self.observer.audit.shown_key(&self.limiter.policy(), rule, key),
            key_by: (!key_by.is_empty()).then(|| key_by.to_string()),
            limit,
            until: made.and_then(|made| made.until),
            reason: made.and_then(|made| made.reason.clone()),
            by,
            instance: self.observer.audit.instance.clone(),
        };
        let Action { key, key_by, limit, until, reason, by, .. } = &action;
        let until_ms = until.map(|until| until.as_micros() / 1_000);
        let message = what.message();
        tracing::info!(action = action.action.name(), rule, key, key_by, limit, until_ms, reason, by, "{message}");
        self.observer.audit.actions.add(action);
    }
}
