//! How many files, and so connections, this process may have open.

use std::io;

/// What everything that is no connection of a client may need: stores, databases, logs, certificates, health.
const RESERVED: u64 = 256;

/// Raises the limit as far as this process may, and tells it. Many systems start programs with 1,024, for the sake of old
/// ones that break beyond.
#[cfg(unix)]
pub(super) fn raise() -> io::Result<Option<u64>> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Without a maximum the kernel has one of its own, which few systems tell; what is there will have to do.
    let Some(maximum) = maximum.filter(|maximum| current.is_some_and(|current| current < *maximum)) else {
        return Ok(current);
    };
    setrlimit(Resource::Nofile, Rlimit { current: Some(maximum), maximum: Some(maximum) })?;
    Ok(Some(maximum))
}

/// There is no such limit here.
#[cfg(not(unix))]
pub(super) fn raise() -> io::Result<Option<u64>> {
    Ok(None)
}

/// How many connections each of so many listeners may have, of `wanted`. Each takes so many files.
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
            "this process may open {files} files, which is enough for {possible} connections to each address that it \
             listens on and not for {wanted}; raise the hard limit (LimitNOFILE= of systemd, --ulimit nofile of Docker), or \
             lower listen.connections"
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
