//! A process that asks the library itself, for the test in which Rust, Python and Node share one limit.
//!
//! `spend URL NAMESPACE LIMIT TIMES` prints how many of its requests passed.

use std::time::Duration;

use tollkeeper::{Descriptor, Limiter, Policy, RedisOptions, RedisStore, RuleSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, namespace, limit, times] = &arguments[..] else {
        return Err("usage: spend URL NAMESPACE LIMIT TIMES".into());
    };
    let times: usize = times.parse()?;
    let rule =
        RuleSpec { name: "shared".into(), key: "{user}".into(), limit: limit.as_str().into(), ..RuleSpec::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let passed = runtime.block_on(async {
        let deadline = Duration::from_secs(10);
        let options = RedisOptions { namespace: namespace.clone(), deadline, ..RedisOptions::default() };
        let limiter = Limiter::new(Policy::new([rule])?, RedisStore::connect(url, options).await?);
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
