//! The faults. Each scenario belongs to a row of the table in `docs/guide/bounds.md`.

use std::sync::Arc;

use tollkeeper_testkit::store::{Cluster, Kind, Sentinels, Server};
use tollkeeper_testkit::{Postgres, SteppedClock};

use crate::fleet::{Fleet, apply, described, links, urls};
use crate::link::{Behaviour, Link};
use crate::stage::{Load, Recording, Stage};

/// One run.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The row of the table of bounds.
    pub(crate) fault: &'static str,
    /// Whether it is part of every test run.
    pub(crate) is_short: bool,
    pub(crate) run: fn(u64) -> Recording,
}

const fn scenario(name: &'static str, fault: &'static str, is_short: bool, run: fn(u64) -> Recording) -> Scenario {
    Scenario { name, fault, is_short, run }
}

pub(crate) const ALL: [Scenario; 27] = [
    scenario("nothing happens", "none", true, |seed| on_redis(seed, Load::STEADY, |stage, _, _| stage.wait(5_000))),
    scenario("more clients than capacity", "overload", true, |seed| {
        // Without links: they would be overloaded too, and then the store is slow, which is another scenario.
        let redis = Server::start(Kind::Redis7);
        Stage::run(Fleet::start(&vec![redis.url(); 3]), Load::OVERLOAD, seed, |stage| stage.wait(5_000))
    }),
    scenario("latency and jitter", "slow network", false, |seed| {
        links_do(seed, Behaviour::Late { least: 5, more: 150 })
    }),
    scenario("packets lost", "slow network", false, |seed| links_do(seed, Behaviour::Lossy { one_in: 10 })),
    scenario("replies dribble", "slow network", false, |seed| links_do(seed, Behaviour::Dribbling)),
    scenario("replies cut in the middle", "broken connections", true, |seed| {
        links_do(seed, Behaviour::CutReplies { one_in: 5 })
    }),
    scenario("garbage in replies", "broken connections", false, |seed| {
        links_do(seed, Behaviour::Garbage { one_in: 5 })
    }),
    scenario("replies lost", "unreachable", false, |seed| links_do(seed, Behaviour::RepliesLost)),
    scenario("half-open connections", "unreachable", false, |seed| links_do(seed, Behaviour::Silent)),
    scenario("connections refused", "unreachable", false, |seed| links_do(seed, Behaviour::Refusing)),
    scenario("one of three instances cut off", "unreachable", false, |seed| {
        on_redis(seed, Load::STEADY, |stage, links, _| {
            stage.wait(2_000);
            stage.event(|stage| {
                links[0].set(Behaviour::Silent);
                stage.wait(4_000);
                links[0].set(Behaviour::Healthy);
            });
            stage.wait(6_000);
        })
    }),
    scenario("Redis stands still", "unreachable", true, |seed| {
        on_redis(seed, Load::STEADY, |stage, _, redis| {
            stage.wait(1_500);
            stage.event(|stage| {
                redis.pause();
                stage.wait(2_500);
                redis.resume();
            });
            stage.wait(6_000);
        })
    }),
    scenario("flapping links", "flapping", true, |seed| {
        on_redis(seed, Load::STEADY, |stage, links, _| {
            stage.wait(1_500);
            stage.event(|stage| {
                for _ in 0..8 {
                    for link in links {
                        let behaviour = [Behaviour::Refusing, Behaviour::Silent, Behaviour::Healthy];
                        link.set(behaviour[stage.chance.below(3) as usize]);
                    }
                    stage.wait_about(400);
                    links.iter().for_each(|link| link.set(Behaviour::Healthy));
                    stage.wait_about(300);
                }
            });
            stage.wait(6_000);
        })
    }),
    scenario("Redis comes back empty a few times, then stays unreachable", "unreachable for all", true, |seed| {
        on_redis(seed, Load::STEADY, |stage, _, redis| {
            // Long enough for all instances to know each other.
            stage.wait(2_500);
            stage.event(|stage| {
                for _ in 0..3 {
                    redis.kill();
                    stage.wait_about(300);
                    redis.restart();
                    // Long enough for some instances to send a heartbeat, and too short for all.
                    stage.wait_about(700);
                }
                redis.kill();
                stage.wait(500);
                stage.judge_from_here();
                stage.wait(6_000);
            });
        })
    }),
    scenario("one of three instances cut off, then Redis dies", "unreachable for all", false, |seed| {
        on_redis(seed, Load::STEADY, |stage, links, redis| {
            stage.wait(2_500);
            stage.event(|stage| {
                links[0].set(Behaviour::Silent);
                // Long enough for the others to miss its heartbeats.
                stage.wait(6_000);
                redis.kill();
                stage.wait(500);
                stage.judge_from_here();
                stage.wait(6_000);
            });
        })
    }),
    scenario("Redis killed and started empty", "Redis restarts empty", true, |seed| {
        on_redis(seed, Load::STEADY, |stage, _, redis| {
            stage.wait(1_500);
            stage.event(|stage| {
                redis.kill();
                stage.wait_about(800);
                redis.restart();
            });
            stage.wait(6_000);
        })
    }),
    scenario("instances crash and come back", "instance crashes", true, |seed| {
        on_redis(seed, Load::STEADY, |stage, _, _| {
            for number in [0, 1, 2] {
                stage.wait_about(1_000);
                stage.event(|stage| stage.fleet.crash(number));
            }
            stage.wait(1_500);
        })
    }),
    scenario("instances stand still one after the other", "instance stops", false, |seed| {
        on_redis(seed, Load::STEADY, |stage, _, _| {
            for number in [0, 1, 2] {
                stage.wait_about(1_000);
                stage.event(|stage| {
                    stage.fleet.pause(number);
                    stage.wait_about(2_000);
                    stage.fleet.resume(number);
                });
            }
            stage.wait(2_000);
        })
    }),
    scenario("rules reloaded again and again", "rules reloaded", false, |seed| {
        on_redis(seed, Load::STEADY, |stage, _, _| {
            stage.event(|stage| {
                for _ in 0..40 {
                    stage.wait_about(100);
                    stage.fleet.reload();
                }
            });
        })
    }),
    scenario("Postgres killed and started while rules change", "Postgres restarts", false, |seed| {
        let (redis, mut postgres) = (Server::start(Kind::Redis7), Postgres::start());
        let fleet = Fleet::start_on(&postgres, &vec![redis.url(); 3]);
        Stage::run(fleet, Load::STEADY, seed, |stage| {
            for round in 0..3 {
                stage.wait_about(800);
                assert!(apply(&postgres, &described(2 * round)), "rules are accepted while Postgres runs");
                stage.event(|stage| {
                    postgres.kill();
                    // An instance that starts meanwhile has its snapshot.
                    stage.fleet.crash(round);
                    stage.wait_about(800);
                    postgres.restart();
                });
                assert!(apply(&postgres, &described(2 * round + 1)), "and when it is back");
            }
            stage.wait(1_500);
        })
    }),
    scenario("the clock of Redis steps", "clock step of Redis", false, |seed| {
        let clock = SteppedClock::new();
        let redis = Server::start_by(Kind::Redis7, &clock);
        let links = links(redis.port(), seed);
        Stage::run(Fleet::start(&urls(&links)), Load::STEADY, seed, |stage| step(stage, &clock))
    }),
    scenario("the clock of all instances steps", "clock step of instances", false, |seed| {
        let clock = Arc::new(SteppedClock::new());
        let redis = Server::start(Kind::Redis7);
        let fleet = Fleet::start_by(&clock, &vec![redis.url(); 3]);
        Stage::run(fleet, Load::STEADY, seed, |stage| step(stage, &clock))
    }),
    scenario("Sentinel fails over after a crash, and the old primary comes back empty", "failover", false, |seed| {
        let mut sentinels = Sentinels::start();
        sentinels.slow_down();
        Stage::run(on_sentinels(&sentinels), Load::STEADY, seed, |stage| {
            stage.wait(2_000);
            stage.event(|_| {
                let old = sentinels.kill_primary();
                sentinels.wait_for_failover(old);
                sentinels.restart(old);
            });
            stage.wait(8_000);
        })
    }),
    scenario("Sentinel fails over as planned", "failover", false, |seed| {
        let sentinels = Sentinels::start();
        // Otherwise the old primary is demoted within a second, and nobody gets a chance to use it for too long.
        sentinels.slow_down();
        Stage::run(on_sentinels(&sentinels), Load::STEADY, seed, |stage| {
            stage.wait(2_000);
            stage.event(|_| {
                let old = sentinels.fail_over();
                sentinels.wait_for_failover(old);
            });
            stage.wait(12_000);
        })
    }),
    scenario("a cluster's primary fails over as planned", "failover", false, |seed| {
        let cluster = Cluster::start();
        let url = cluster.url();
        Stage::run(Fleet::start(&vec![url; 3]), Load::STEADY, seed, |stage| {
            stage.wait(2_000);
            stage.event(|_| {
                let slot = cluster.slot_of("{0}");
                let old = cluster.fail_over(slot);
                cluster.wait_for_new_primary(slot, old);
            });
            stage.wait(6_000);
        })
    }),
    scenario("a cluster's primary crashes", "failover", false, |seed| {
        let mut cluster = Cluster::start();
        let url = cluster.url();
        Stage::run(Fleet::start(&vec![url; 3]), Load::STEADY, seed, |stage| {
            stage.wait(2_000);
            stage.event(|_| {
                let slot = cluster.slot_of("{0}");
                let old = cluster.kill_primary_of(slot);
                cluster.wait_for_new_primary(slot, old);
            });
            stage.wait(6_000);
        })
    }),
    scenario("a cluster's slots move", "resharding", false, |seed| {
        let cluster = Cluster::start();
        let url = cluster.url();
        Stage::run(Fleet::start(&vec![url; 3]), Load::STEADY, seed, |stage| {
            stage.wait(1_000);
            stage.event(|stage| {
                for slot in [cluster.slot_of("{0}"), cluster.slot_of("{1}")] {
                    let to = cluster.primaries().into_iter().find(|port| *port != cluster.primary_of(slot));
                    cluster.migrate_slot(slot, to.expect("another primary"));
                    stage.wait_about(800);
                }
            });
            stage.wait(2_000);
        })
    }),
];

/// Three instances on one Redis, each with a link of its own.
fn on_redis(seed: u64, load: Load, faults: impl FnOnce(&mut Stage, &[Link], &mut Server)) -> Recording {
    let mut redis = Server::start(Kind::Redis7);
    let links = links(redis.port(), seed);
    Stage::run(Fleet::start(&urls(&links)), load, seed, |stage| faults(stage, &links, &mut redis))
}

/// Three instances on the primary that these sentinels name.
fn on_sentinels(sentinels: &Sentinels) -> Fleet {
    let url = format!("redis+sentinel://{}/{}", sentinels.addresses().join(","), sentinels.service());
    Fleet::start(&vec![url; 3])
}

/// Steps a clock forward and back, by less and by more than any bucket takes to refill.
fn step(stage: &mut Stage, clock: &SteppedClock) {
    for offset in [1, 0, 3_600, 0, -5, 0] {
        stage.wait_about(1_500);
        stage.event(|_| clock.set(offset));
    }
    stage.wait(6_000);
}

/// All links fail in this way for three seconds.
fn links_do(seed: u64, behaviour: Behaviour) -> Recording {
    on_redis(seed, Load::STEADY, |stage, links, _| {
        stage.wait(1_500);
        stage.event(|stage| {
            links.iter().for_each(|link| link.set(behaviour));
            stage.wait(3_000);
            links.iter().for_each(|link| link.set(Behaviour::Healthy));
        });
        stage.wait(6_000);
    })
}
