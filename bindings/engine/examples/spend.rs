//! A process that uses the library directly, for the test in which Rust, Python and Node share one limit.
//!
//! `spend URL NAMESPACE LIMIT TIMES START` sends requests from START on, in seconds since the epoch, and prints how
//! many passed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollkeeper::{Descriptor, Limiter, Policy, RedisOptions, RedisStore, RuleSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, namespace, limit, times, start] = &arguments[..] else {
        return Err("usage: spend URL NAMESPACE LIMIT TIMES START".into());
    };
    let (times, start): (usize, f64) = (times.parse()?, start.parse()?);
    let rule =
        RuleSpec { name: "shared".into(), key: "{user}".into(), limit: limit.as_str().into(), ..RuleSpec::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let passed = runtime.block_on(async {
        let deadline = Duration::from_secs(10);
        let options = RedisOptions { namespace: namespace.clone(), deadline, ..RedisOptions::default() };
        let limiter = Limiter::new(Policy::new([rule])?, RedisStore::connect(url, options).await?);
        let until = UNIX_EPOCH + Duration::from_secs_f64(start);
        tokio::time::sleep(until.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let mut passed = 0;
        for _ in 0..times {
            let verdict = limiter.check(&Descriptor::new([("user", "a")])).await?;
            if verdict.source().name() == "local" {
                return Err("Redis did not answer".into());
            }
            passed += usize::from(verdict.is_allowed());
        }
        Ok::<_, Box<dyn std::error::Error>>(passed)
    })?;
    println!("{passed}");
    Ok(())
}
