//! When an incident raises alerts: when it starts, once per interval while it lasts, and when it is over. Times count
//! from any fixed moment.

use std::time::Duration;

use super::Status;

/// One condition that may be wrong.
#[derive(Debug)]
pub(super) struct Incident {
    every: Duration,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    since: Duration,
    /// When it was last seen.
    seen: Duration,
    /// When it last raised an alert.
    alerted: Duration,
    was_wrong: bool,
    times: u64,
}

/// A reason for an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) status: Status,
    /// From when it was first seen to when it was last seen.
    pub(super) lasted: Duration,
    /// How often it started again after a pause too short to call it over.
    pub(super) times: u64,
}

impl Incident {
    /// `every` is how often it raises an alert while it lasts.
    pub(super) fn new(every: Duration) -> Incident {
        Incident { every, current: None }
    }

    /// How long it must be quiet to be over: a condition that comes and goes every few seconds is one incident.
    fn quiet(&self) -> Duration {
        self.every / 4
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// Records the current state.
    pub(super) fn observe(&mut self, now: Duration, is_wrong: bool) -> Option<News> {
        let quiet = self.quiet();
        let Some(current) = &mut self.current else {
            if is_wrong {
                self.current = Some(Current { since: now, seen: now, alerted: now, was_wrong: true, times: 1 });
                return Some(News { status: Status::Started, lasted: Duration::ZERO, times: 1 });
            }
            return None;
        };
        if is_wrong {
            current.seen = now;
            current.times += u64::from(!current.was_wrong);
        }
        current.was_wrong = is_wrong;
        let news = |status| News { status, lasted: current.seen.saturating_sub(current.since), times: current.times };
        if !is_wrong && now >= current.seen + quiet {
            let over = news(Status::Over);
            self.current = None;
            return Some(over);
        }
        if now >= current.alerted + self.every {
            current.alerted = now;
            return Some(news(Status::Ongoing));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_incident_alerts_when_it_starts_at_intervals_and_when_it_is_over() {
        let mut incident = Incident::new(EVERY);
        let mut alerts = Vec::new();
        for second in 0..300 {
            let news = incident.observe(at(second), (100..230).contains(&second));
            alerts.extend(news.map(|news| (second, news.status, news.lasted)));
        }
        let expected = [
            (100, Status::Started, at(0)),
            (160, Status::Ongoing, at(60)),
            (220, Status::Ongoing, at(120)),
            (244, Status::Over, at(129)),
        ];
        assert_eq!(alerts, expected);
    }

    #[test]
    fn what_comes_and_goes_is_one_incident() {
        let mut incident = Incident::new(EVERY);
        let alerts: Vec<News> =
            (0..100).filter_map(|second| incident.observe(at(second), second < 40 && second % 4 == 0)).collect();
        assert_eq!(alerts.iter().map(|news| news.status).collect::<Vec<_>>(), [Status::Started, Status::Over]);
        assert_eq!(alerts[1].times, 10);
    }

    proptest! {
        /// However the condition comes and goes: at most nine alerts per `every`, and never two starts without an
        /// end.
        #[test]
        fn there_is_no_flood(wrong in prop::collection::vec((1_u64..40_000, any::<bool>()), 1..400)) {
            let mut incident = Incident::new(EVERY);
            let (mut now, mut alerts) = (0, Vec::new());
            for (millis, is_wrong) in wrong {
                now += millis;
                alerts.extend(incident.observe(Duration::from_millis(now), is_wrong).map(|news| (now, news.status)));
            }
            for (index, (time, _)) in alerts.iter().enumerate() {
                let within = alerts[index..].iter().take_while(|(later, _)| later - time < 60_000).count();
                prop_assert!(within <= 9, "{alerts:?}");
            }
            let ends: Vec<Status> = alerts.iter().map(|(_, s)| *s).filter(|s| *s != Status::Ongoing).collect();
            for pair in ends.chunks(2) {
                prop_assert_eq!(pair[0], Status::Started);
                prop_assert!(pair.get(1).is_none_or(|end| *end == Status::Over));
            }
        }
    }
}
