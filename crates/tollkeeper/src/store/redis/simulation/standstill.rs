//! This process gets no time for a while, again and again, and its server is well.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{advance, sleep};
use tollkeeper_core::{Descriptor, FailurePolicy, Policy, Rule, Source};

use crate::limiter::{CheckError, Limiter};
use crate::store::redis::breaker::BreakerState;
use crate::store::redis::link::simulated::chance::Chance;
use crate::store::redis::link::simulated::network::{Network, Travel};
use crate::store::redis::{RedisOptions, RedisStore};

/// A call during which this process stood still twice for 300 ms was taken for a late reply: such waits did not count, but only
/// up to 500 ms in all. So rules answered by their failure policy although the server was well (seed 2481 of the
/// simulation; here it is one standstill of 600 ms).
#[test]
fn own_standstills_are_never_held_against_the_server() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let ms = Duration::from_millis;
        let host = "10.0.0.1:6379".to_string();
        let (network, _simulated) = Network::start(Chance::of(1), Travel { least: 5, jitter: 0 }, 0);
        network.add_hosts(std::slice::from_ref(&host));
        let store = RedisStore::connect(&format!("redis://{host}"), RedisOptions::default()).await;
        let rule = Rule::new("open").key("{user}").limit("1,000/s").on_store_failure(FailurePolicy::Open);
        let policy = Policy::new([rule]).expect("a valid rule");
        let limiter = Arc::new(Limiter::new(policy, store.expect("nothing fails")));
        let asked = || {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&Descriptor::new([("user", "one")])).await })
        };
        let (mut decided, mut shed) = (0, 0);
        for _ in 0..20 {
            let requests = [asked(), asked(), asked()];
            // Before the server has the call.
            sleep(ms(2)).await;
            advance(ms(600)).await;
            for request in requests {
                match request.await.expect("no panic") {
                    Ok(verdict) => {
                        assert_eq!(verdict.source(), Source::Store);
                        decided += 1;
                    }
                    Err(CheckError::Overloaded(_)) => shed += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(shed > 0, "{decided} were decided in time, so nothing was tried");
        let crate::store::Store::Redis(redis) = limiter.store() else { panic!("another store") };
        assert_eq!(redis.breaker(), BreakerState::Closed);
        assert_eq!(asked().await.expect("no panic").expect("it has time again").source(), Source::Store);
    });
}
