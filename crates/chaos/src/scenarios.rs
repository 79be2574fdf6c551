//! The faults. Each scenario belongs to a row of the table in `docs/guide/bounds.md`.

use tollkeeper_testkit::store::{Cluster, Kind, Sentinels, Server};

use crate::fleet::{Fleet, links, urls};
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

pub(crate) const ALL: [Scenario; 19] = [
    scenario("nothing happens", "none", true, |seed| on_redis(seed, Load::STEADY, |stage, _, _| stage.wait(5_000))),
    scenario("more clients than capacity", "overload", true, |seed| {
        // Without links: they would be overloaded too, and then the store is slow, which is another scenario.
        let redis = Server::start(Kind::Redis7);
        Stage::run(Fleet::start(&vec![redis.url(); 3]), Load::OVERLOAD, seed, |stage| stage.wait(5_000))
    }),
    scenario("latency and jitter", "slow network", false, |seed| {
        links_do(seed, Behaviour::Late { least: 5, more: 150 })
    }),
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
    scenario("Sentinel fails over after a crash", "failover", false, |seed| {
        let mut sentinels = Sentinels::start();
        let url = format!("redis+sentinel://{}/{}", sentinels.addresses().join(","), sentinels.service());
        Stage::run(Fleet::start(&vec![url; 3]), Load::STEADY, seed, |stage| {
            stage.wait(2_000);
            stage.event(|_| {
                let old = sentinels.kill_primary();
                sentinels.wait_for_failover(old);
            });
            stage.wait(6_000);
        })
    }),
    scenario("Sentinel fails over as planned", "failover", false, |seed| {
        let sentinels = Sentinels::start();
        let url = format!("redis+sentinel://{}/{}", sentinels.addresses().join(","), sentinels.service());
        Stage::run(Fleet::start(&vec![url; 3]), Load::STEADY, seed, |stage| {
            stage.wait(2_000);
            stage.event(|_| {
                let old = sentinels.fail_over();
                sentinels.wait_for_failover(old);
            });
            stage.wait(12_000);
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
