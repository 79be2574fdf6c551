//! The URL of a store.

const SCHEMES: [&str; 6] = ["redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"];

/// Whether the URL names a store. Whether it is reachable is known only when it is connected.
pub(super) fn check_store(url: &str) -> Result<(), String> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("memory") => Ok(()),
        Some(scheme) if SCHEMES.contains(&scheme) => check_redis(url),
        _ => Err(format!(
            "{} is not a store; write \"memory:\", redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT or \
             redis+sentinel://HOST:PORT,HOST:PORT/NAME",
            without_password(url)
        )),
    }
}

#[cfg(feature = "redis")]
fn check_redis(url: &str) -> Result<(), String> {
    crate::store::RedisStore::check_url(url).map_err(|error| error.to_string())
}

#[cfg(not(feature = "redis"))]
fn check_redis(_: &str) -> Result<(), String> {
    Err("this program cannot use Redis; build it with the feature `redis`".into())
}

/// A store's URL as it may be shown.
pub fn without_password(url: &str) -> String {
    // The rest may contain the user and password of the sentinels.
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}"),
        None => url.to_string(),
    }
}
