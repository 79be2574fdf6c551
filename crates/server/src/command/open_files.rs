//! The limit on open files, and so on connections, of this process.

use std::io;

/// Files for everything except client connections: stores, databases, logs, certificates, health.
const RESERVED: u64 = 256;

/// Raises the limit as far as allowed, and returns it. Many systems start programs with 1,024, because some old
/// programs break with more.
#[cfg(unix)]
pub(super) fn raise() -> io::Result<Option<u64>> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Without a maximum the kernel has its own, which few systems report; the current limit has to do.
    let Some(maximum) = maximum.filter(|maximum| current.is_some_and(|current| current < *maximum)) else {
        return Ok(current);
    };
    setrlimit(Resource::Nofile, Rlimit { current: Some(maximum), maximum: Some(maximum) })?;
    Ok(Some(maximum))
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(super) fn raise() -> io::Result<Option<u64>> {
    Ok(None)
}

/// How many of the `wanted` connections each of the listeners can have, if each takes `files_each` files.
pub(super) fn connections(wanted: usize, listeners: usize, files_each: usize) -> usize {
    let files = match raise() {
        Ok(Some(files)) => files,
        Ok(None) => return wanted,
        Err(error) => {
            tracing::warn!("the limit of open files cannot be raised: {error}");
            return wanted;
        }
    };
    let possible = shared(files, listeners, files_each);
    if possible < wanted {
        tracing::warn!(
            "the limit of {files} open files allows {possible} connections to each address, not {wanted}; raise the hard \
             limit (LimitNOFILE= in systemd, --ulimit nofile with Docker), or lower listen.connections"
        );
    }
    wanted.min(possible)
}

fn shared(files: u64, listeners: usize, files_each: usize) -> usize {
    let left = files.saturating_sub(RESERVED).max(files / 4);
    usize::try_from(left).unwrap_or(usize::MAX) / (listeners * files_each).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listener_has_its_share_and_something_is_left() {
        assert_eq!(shared(65_536, 3, 1), 21_760);
        assert_eq!(shared(1_024, 3, 1), 256);
        assert_eq!(shared(1_024, 2, 2), 192);
        assert_eq!(shared(200, 1, 1), 50, "few are better than none");
    }
}
