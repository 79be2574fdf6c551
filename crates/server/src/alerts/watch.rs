//! Finds incidents in existing counters, and writes their messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::Timestamp;

use super::incident::{Incident, News};
use super::signs::{Full, Signs};
use super::{Alert, Kind, Status};
use crate::metrics::WithoutStore;
use tollkeeper_tune::words::{counted, grouped, lasting};

/// What each rule decided without the store so far, by its name.
type ByRule = Vec<(Arc<str>, u64)>;

/// The ongoing incidents.
pub(super) struct Watch {
    instance: String,
    breaker: Incident,
    without_store: Incident,
    full: Incident,
    lost: Incident,
    refused: Incident,
    /// What had been counted when the last incident was over.
    before: WithoutStore,
    rules_before: BTreeMap<Arc<str>, u64>,
    last: WithoutStore,
    full_before: Full,
    full_last: Full,
    losses_before: u64,
    losses_last: u64,
}

impl Watch {
    pub(super) fn new(every: Duration, instance: String) -> Watch {
        let incident = || Incident::new(every);
        Watch {
            instance,
            breaker: incident(),
            without_store: incident(),
            full: incident(),
            lost: incident(),
            refused: incident(),
            before: WithoutStore::default(),
            rules_before: BTreeMap::new(),
            last: WithoutStore::default(),
            full_before: Full::default(),
            full_last: Full::default(),
            losses_before: 0,
            losses_last: 0,
        }
    }

    /// The alerts that are due. `by_rule` is called only if there are any.
    pub(super) fn look(
        &mut self,
        now: Duration,
        at: Timestamp,
        signs: &Signs,
        by_rule: impl Fn() -> ByRule,
    ) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if let Some(news) = self.breaker.observe(now, signs.is_breaker_open) {
            alerts.push(self.alert(Kind::BreakerOpen, news, at, breaker_summary(news), json!({})));
        }
        let without = signs.without_store;
        let is_rising = without.total() > self.last.total();
        self.last = without;
        // With few requests there are pauses between them, but the store is still not deciding.
        let goes_on = self.without_store.is_under_way() && signs.is_breaker_open;
        if let Some(news) = self.without_store.observe(now, is_rising || goes_on) {
            let rules = by_rule();
            let kind = if signs.is_shared { Kind::WithoutStore } else { Kind::StoreFull };
            let counts = without.since(&self.before);
            let summary = without_store_summary(kind, news, &counts);
            let details = json!({
                "open": counts.open,
                "closed": counts.closed,
                "local": counts.local,
                "rules": self.changed(&rules),
            });
            alerts.push(self.alert(kind, news, at, summary, details));
            if news.status == Status::Over {
                self.before = without;
                self.rules_before = rules.into_iter().collect();
            }
        }
        let is_filling = signs.full.total() > self.full_last.total();
        if let Some(news) = self.full.observe(now, is_filling) {
            let full = signs.full.since(&self.full_before);
            let rules = full.rules.iter().map(|(rule, keys)| json!({ "rule": rule, "keys": keys }));
            let details =
                json!({ "keys": full.keys, "logs": full.logs, "redis": full.redis, "rules": rules.collect::<Value>() });
            alerts.push(self.alert(Kind::StoreFull, news, at, full_summary(news, &full), details));
            if news.status == Status::Over {
                self.full_before = signs.full.clone();
            }
        }
        self.full_last = signs.full.clone();
        if let Some(news) = self.lost.observe(now, signs.losses > self.losses_last) {
            let losses = signs.losses.saturating_sub(self.losses_before);
            alerts.push(self.alert(Kind::StoreLost, news, at, lost_summary(news, losses), json!({ "losses": losses })));
            if news.status == Status::Over {
                self.losses_before = signs.losses;
            }
        }
        self.losses_last = signs.losses;
        if let Some(news) = self.refused.observe(now, signs.refused.is_some()) {
            let reason = signs.refused.as_ref().map(|refusal| refusal.reason.as_str()).unwrap_or_default();
            let summary = match news.status {
                Status::Over => format!(
                    "new rules are in force; before that, the old ones stayed in force for {}",
                    spoken(news.lasted)
                ),
                _ => format!(
                    "new rules were refused, and the old ones stay in force: {}",
                    reason.lines().next().unwrap_or_default()
                ),
            };
            alerts.push(self.alert(Kind::RulesRefused, news, at, summary, json!({ "reason": reason })));
        }
        alerts
    }

    fn alert(&self, kind: Kind, news: News, at: Timestamp, summary: String, mut details: Value) -> Alert {
        details["lasted_s"] = json!(news.lasted.as_secs_f64());
        details["times"] = json!(news.times);
        Alert::new((kind, news.status), at, &self.instance, summary, details)
    }

    /// The rules that decided most without the store during this incident. Rule names come from the operator, and a
    /// few are enough.
    fn changed(&self, rules: &ByRule) -> Value {
        const MOST_NAMED: usize = 10;
        let before = |name: &Arc<str>| self.rules_before.get(name).copied().unwrap_or(0);
        let changes = rules.iter().map(|(name, count)| (name, count.saturating_sub(before(name))));
        let mut changed: Vec<(&Arc<str>, u64)> = changes.filter(|(_, count)| *count > 0).collect();
        changed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        changed.iter().take(MOST_NAMED).map(|(name, count)| json!({ "rule": &***name, "decisions": count })).collect()
    }
}

fn breaker_summary(news: News) -> String {
    let times = if news.times > 1 { format!(", {} times", news.times) } else { String::new() };
    match news.status {
        Status::Started => "the store is unreachable: its circuit breaker is open, and on_store_failure decides".into(),
        Status::Ongoing => format!("the store has been unreachable for {}{times}", spoken(news.lasted)),
        Status::Over => {
            format!("the store answers again: its circuit breaker was open for {}{times}", spoken(news.lasted))
        }
    }
}

fn full_summary(news: News, full: &Full) -> String {
    if full.redis > 0 {
        let decided =
            format!("{} about new keys {} made by on_store_failure", counted(full.redis, "decision"), were(full.redis));
        return match news.status {
            Status::Over => format!("Redis has room again after {}; {decided}", spoken(news.lasted)),
            _ => format!("Redis is full: it has reached maxmemory and takes no new keys (raise maxmemory); {decided}"),
        };
    }
    let Full { keys, logs, .. } = *full;
    let what = match (keys, logs) {
        (_, 0) => "the memory store is full of keys (raise store.max_keys)",
        (0, _) => "the memory store is full of logs (raise store.max_log_bytes)",
        _ => "the memory store is full of keys and logs (raise store.max_keys and store.max_log_bytes)",
    };
    let decided = format!(
        "{} about new clients {} made by buckets that they share",
        counted(keys + logs, "decision"),
        were(keys + logs)
    );
    match news.status {
        Status::Started => format!("{what}; {decided}"),
        Status::Ongoing => format!("{what}; this has lasted for {}; {decided}", spoken(news.lasted)),
        Status::Over => format!("the memory store has room again after {}; {decided}", spoken(news.lasted)),
    }
}

fn lost_summary(news: News, losses: u64) -> String {
    let times = if losses == 1 { "once".into() } else { format!("{} times", grouped(losses)) };
    match news.status {
        Status::Over => format!("Redis has kept its data since; it had lost it {times}"),
        _ => format!(
            "Redis has lost its data {times}, and every limit started full again: it was restarted without persistence, emptied, or replaced by an empty replica; instances that knew exceptions have restored them"
        ),
    }
}

fn without_store_summary(kind: Kind, news: News, counts: &WithoutStore) -> String {
    let what = match kind {
        Kind::StoreFull => "the memory store has no room left (raise store.max_keys and store.max_log_bytes)",
        _ => "the store cannot answer, so on_store_failure decides",
    };
    let total = counts.total();
    let by = [("open", counts.open), ("closed", counts.closed), ("local", counts.local)];
    let by = by.map(|(policy, count)| format!("{} by {policy}", grouped(count))).join(", ");
    let decided = |how: &str| format!("{} {} made {how}: {by}", counted(total, "decision"), were(total));
    match news.status {
        Status::Started => format!("{what}; {}", decided("this way")),
        Status::Ongoing => format!("{what}; this has lasted for {}; {}", spoken(news.lasted), decided("this way")),
        Status::Over => format!("recovered after {}; {}", spoken(news.lasted), decided("without the store")),
    }
}

fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Whole seconds are precise enough for people.
fn spoken(lasted: Duration) -> String {
    lasting(if lasted.as_secs() > 0 { Duration::from_secs(lasted.as_secs()) } else { lasted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Refusal;

    fn look(watch: &mut Watch, second: u64, signs: &Signs, rules: &[(&str, u64)]) -> Vec<Alert> {
        let rules: ByRule = rules.iter().map(|(name, count)| ((*name).into(), *count)).collect();
        watch.look(Duration::from_secs(second), Timestamp::from_micros(1), signs, || rules.clone())
    }

    #[test]
    fn each_outage_of_the_store_counts_its_own_decisions() {
        let mut watch = Watch::new(Duration::from_secs(60), "here:1".into());
        let signs = |open, local| Signs {
            is_shared: true,
            without_store: WithoutStore { open, closed: 0, local },
            ..Signs::default()
        };
        let started = look(&mut watch, 0, &signs(1, 0), &[("a", 1)]);
        assert_eq!((started[0].kind, started[0].status), (Kind::WithoutStore, Status::Started));
        assert!(look(&mut watch, 1, &signs(1_200, 34), &[("a", 1_200), ("b", 34)]).is_empty());
        let over = look(&mut watch, 20, &signs(1_200, 34), &[("a", 1_200), ("b", 34)]);
        let summary =
            "recovered after 1 s; 1,234 decisions were made without the store: 1,200 by open, 0 by closed, 34 by local";
        assert_eq!(over[0].summary, summary);
        let next = look(&mut watch, 100, &signs(1_201, 34), &[("a", 1_201), ("b", 34)]);
        let posted = serde_json::to_value(&next[0]).expect("JSON");
        assert_eq!(posted["details"]["open"], 1);
        assert_eq!(
            posted["details"]["rules"],
            json!([{ "rule": "a", "decisions": 1 }]),
            "the other rule decided nothing without the store"
        );
        assert_eq!(posted["severity"], "warning");
        assert!(
            posted["text"]
                .as_str()
                .is_some_and(|text| text.starts_with("[warning] tollkeeper here:1: the store cannot"))
        );
    }

    /// Otherwise every pause between two requests would end the incident, and an outage at night would alert with
    /// each request.
    #[test]
    fn few_requests_during_an_outage_are_one_incident() {
        let mut watch = Watch::new(Duration::from_secs(60), "here:1".into());
        let mut alerts = Vec::new();
        for second in 0..600 {
            let without_store = WithoutStore { open: 1 + second / 100, closed: 0, local: 0 };
            let signs = Signs { is_shared: true, is_breaker_open: second < 500, without_store, ..Signs::default() };
            alerts.extend(look(&mut watch, second, &signs, &[]));
        }
        let starts = |kind| alerts.iter().filter(|it| it.kind == kind && it.status == Status::Started).count();
        assert_eq!((starts(Kind::BreakerOpen), starts(Kind::WithoutStore)), (1, 1));
    }

    /// It used to name `max_keys` when the logs had no room.
    #[test]
    fn a_full_memory_store_names_the_setting_to_raise() {
        let mut watch = Watch::new(Duration::from_secs(60), "here:1".into());
        let full = |keys, logs| Full { keys, logs, redis: 0, rules: vec![("per-ip".into(), 9)] };
        let signs = |full| Signs { full, ..Signs::default() };
        let started = look(&mut watch, 0, &signs(full(0, 3)), &[]);
        assert_eq!(
            started[0].summary,
            "the memory store is full of logs (raise store.max_log_bytes); 3 decisions about new clients were made by buckets \
             that they share"
        );
        let posted = serde_json::to_value(&started[0]).expect("JSON");
        assert_eq!(
            (&posted["kind"], &posted["details"]["rules"]),
            (&json!("store_full"), &json!([{ "rule": "per-ip", "keys": 9 }]))
        );
        let over = look(&mut watch, 20, &signs(full(0, 3)), &[]);
        assert_eq!(over[0].status, Status::Over);
        let again = look(&mut watch, 100, &signs(full(1, 3)), &[]);
        assert!(again[0].summary.starts_with("the memory store is full of keys (raise store.max_keys); 1 decision "));
    }

    #[test]
    fn a_full_redis_is_reported_as_such() {
        let mut watch = Watch::new(Duration::from_secs(60), "here:1".into());
        let full = Full { redis: 1_500, ..Full::default() };
        let alerts = look(&mut watch, 0, &Signs { is_shared: true, full, ..Signs::default() }, &[]);
        assert_eq!(
            alerts[0].summary,
            "Redis is full: it has reached maxmemory and takes no new keys (raise maxmemory); 1,500 decisions about new keys \
             were made by on_store_failure"
        );
        assert_eq!(alerts[0].kind, Kind::StoreFull);
    }

    /// A Redis that restarted empty caused no alert: a block was gone, and every client had a full bucket.
    #[test]
    fn a_redis_that_restarted_empty_is_reported() {
        let mut watch = Watch::new(Duration::from_secs(60), "here:1".into());
        let signs = |losses| Signs { is_shared: true, losses, ..Signs::default() };
        assert!(look(&mut watch, 0, &signs(0), &[]).is_empty());
        let started = look(&mut watch, 1, &signs(1), &[]);
        assert_eq!((started[0].kind, started[0].status), (Kind::StoreLost, Status::Started));
        assert!(started[0].summary.starts_with("Redis has lost its data once, and every limit started full again"));
        assert!(look(&mut watch, 2, &signs(2), &[]).is_empty(), "the same incident");
        let over = look(&mut watch, 30, &signs(2), &[]);
        assert_eq!(over[0].summary, "Redis has kept its data since; it had lost it 2 times");
    }

    #[test]
    fn a_full_memory_store_and_refused_rules_are_two_incidents() {
        let mut watch = Watch::new(Duration::from_secs(60), "here:1".into());
        let refused = Some(Arc::new(Refusal { reason: "rules.yaml:3:1: no such field\n  3 | lmit".into() }));
        let without_store = WithoutStore { open: 0, closed: 7, local: 0 };
        let signs = Signs { is_shared: false, without_store, refused, ..Signs::default() };
        let alerts = look(&mut watch, 0, &signs, &[("a", 7)]);
        assert_eq!(alerts.iter().map(|alert| alert.kind).collect::<Vec<_>>(), [Kind::StoreFull, Kind::RulesRefused]);
        assert_eq!(
            alerts[1].summary,
            "new rules were refused, and the old ones stay in force: rules.yaml:3:1: no such field"
        );
    }
}
