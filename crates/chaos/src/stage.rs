//! A run: servers, instances and clients, and the faults that happen to them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tollkeeper_auditor::Event;

use crate::chance::Chance;
use crate::client::{Asked, Clients};
use crate::fleet::Fleet;

/// By then the system must have recovered from a fault: the circuit breaker probes at least every two seconds, and
/// closes after three successes.
pub(crate) const RECOVERY: Duration = Duration::from_secs(5);

/// The load of the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Connections to each instance.
    pub(crate) clients: u64,
    /// Between an answer and the next request.
    pub(crate) pause: Duration,
}

impl Load {
    /// Enough to exhaust every limit all the time.
    pub(crate) const STEADY: Load = Load { clients: 4, pause: Duration::from_millis(4) };
    /// More than the instances can answer.
    pub(crate) const OVERLOAD: Load = Load { clients: 150, pause: Duration::ZERO };
}

/// What a fault can act on.
pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
    pub(crate) chance: Chance,
    pub(crate) events: Vec<Event>,
    begin: Instant,
    judged_from: Duration,
}

/// The recording of a run.
pub(crate) struct Recording {
    pub(crate) asked: Vec<Asked>,
    pub(crate) events: Vec<Event>,
    pub(crate) logs: Vec<String>,
}

impl Stage {
    /// Runs clients against the fleet while `faults` happen.
    pub(crate) fn run(fleet: Fleet, load: Load, seed: u64, faults: impl FnOnce(&mut Stage)) -> Recording {
        let begin = Instant::now();
        let clients = Clients::start(&fleet.addresses(), load.clients, load.pause, begin, seed);
        let (chance, events, judged_from) = (Chance::new(seed), Vec::new(), Duration::ZERO);
        let mut stage = Stage { fleet, chance, events, begin, judged_from };
        faults(&mut stage);
        let mut asked = clients.stop();
        asked.retain(|asked| asked.observation.sent >= stage.judged_from);
        Recording { asked, events: stage.events, logs: stage.fleet.logs() }
    }

    pub(crate) fn wait(&self, millis: u64) {
        sleep(Duration::from_millis(millis));
    }

    /// Waits between half and one and a half times this long.
    pub(crate) fn wait_about(&mut self, millis: u64) {
        let millis = millis / 2 + self.chance.below(millis.max(1));
        self.wait(millis);
    }

    /// Requests that were sent before are not judged: a bound for what happens from here on.
    pub(crate) fn judge_from_here(&mut self) {
        self.judged_from = self.begin.elapsed();
    }

    /// Runs a fault, and records its times.
    pub(crate) fn event(&mut self, fault: impl FnOnce(&mut Stage)) {
        let from = self.begin.elapsed();
        fault(self);
        let to = self.begin.elapsed();
        self.events.push(Event { from, to, recovered: to + RECOVERY });
    }
}
