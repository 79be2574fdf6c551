//! A server that has reached its `maxmemory` (and may not evict): it refuses whatever could need more.
//!
//! That is a state of its own, not a failure: the server answers, so the circuit breaker stays closed. A script that only
//! changes states that exist is not refused (see `exact.lua`), so clients that are counted stay counted. Keys that would be
//! new are named by the script, which then changes nothing; `new_keys.rs` answers the requests that need them.

use redis::RedisError;

/// The error of a script that would have to create keys.
const CODE: &str = "TOLLKEEPERFULL";
/// The reason that logs and errors state.
pub(super) const REASON: &str = "Redis is full: it has reached maxmemory and takes no new keys";

/// Which keys would be new, by their numbers in the call; none if another command was refused. `None` if the error is about
/// something else.
pub(super) fn new_keys(error: &RedisError) -> Option<Vec<usize>> {
    if error.code() == Some(CODE) {
        let numbers = error.detail().unwrap_or_default().split_whitespace();
        return Some(numbers.filter_map(|number| number.parse().ok()).collect());
    }
    // Redis 6.2 says so only in the text of a script's error.
    error.to_string().contains("OOM command not allowed").then(Vec::new)
}
