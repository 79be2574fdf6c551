//! Reloads rules while the service runs: on SIGHUP, and when their file changes.
//!
//! A thread polls the file a few times a second, instead of watched by the kernel: that works the same on local disks, on
//! network mounts and for the symlinks that Kubernetes swaps, and a file is read only when it has stopped changing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tollkeeper::Policy;

use super::{signals, unused_memory};
use crate::service::Service;

/// The polling interval. A change counts once two polls in a row see the same version.
const EVERY: Duration = Duration::from_millis(250);

/// `--watch`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// Whether to reload the rules when the file changes; SIGHUP always reloads them
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, env = "TOLLKEEPER_WATCH")]
    watch: bool,
}

impl WatchArgs {
    /// The file to poll, if any.
    pub(super) fn file(&self, config: Option<&PathBuf>) -> Option<PathBuf> {
        config.filter(|_| self.watch).cloned()
    }
}

/// Reloads the rules whenever there is reason to. The signal handler is in place when this returns; the future does
/// the work.
///
/// An invalid file changes nothing: the last good rules stay in force.
pub(super) fn reload<E: fmt::Display>(
    load: impl Fn() -> Result<Policy, E>,
    service: Arc<Service>,
    file: Option<PathBuf>,
) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signals::hangup()?;
    let (changed, mut changes) = mpsc::channel(1);
    if let Some(file) = file {
        thread::Builder::new().name("rules-file".into()).spawn(move || poll(file, &changed))?;
    }
    Ok(async move {
        loop {
            tokio::select! {
                Some(()) = hangup.recv() => replace(load(), &service, true),
                Some(()) = changes.recv() => replace(load(), &service, false),
                else => return,
            }
            unused_memory::give_back();
        }
    })
}

/// Tells about every change of a file, until nobody listens. In a thread of its own: a network mount may hang, and a runtime would be
/// woken for every look.
fn poll(file: PathBuf, changed: &mpsc::Sender<()>) {
    let mut look = Look::default();
    while !changed.is_closed() {
        thread::sleep(EVERY);
        if look.has_settled(version(&file)) && changed.blocking_send(()).is_err() {
            return;
        }
    }
}

/// Puts valid rules in force, and logs what changed.
fn replace<E: fmt::Display>(loaded: Result<Policy, E>, service: &Service, is_asked: bool) {
    let former = service.limiter.policy();
    let loaded = loaded.map_err(|error| error.to_string()).and_then(|policy| not_emptied(policy, &former));
    match service.metrics.reloads.note(loaded) {
        // The file was touched, or something other than its rules changed.
        Ok(policy) if !is_asked && is_same(&former, &policy) => {}
        Ok(policy) => {
            let count = policy.rules().len();
            let changes = service.limiter.replace_policy(policy);
            tracing::info!("rules in force: {count} ({changes}); other settings change at the next start");
            for warning in &changes.restarted {
                tracing::warn!("{warning}");
            }
        }
        Err(error) => tracing::error!("the rules were not reloaded, and the last good ones stay in force: {error}"),
    }
}

/// A file is empty for a moment while it is being written. Without rules, every request would pass.
fn not_emptied(policy: Policy, former: &Policy) -> Result<Policy, String> {
    if policy.rules().is_empty() && !former.rules().is_empty() {
        return Err("the file has none; to allow every request, keep the rules with `active: false`".into());
    }
    Ok(policy)
}

fn is_same(former: &Policy, policy: &Policy) -> bool {
    former.rules().iter().map(|rule| rule.spec()).eq(policy.rules().iter().map(|rule| rule.spec()))
}

/// What identifies a version of a file; `None` while there is no such file.
type Version = Option<(SystemTime, u64, u64)>;

/// The versions of the file seen so far.
#[derive(Default)]
struct Look {
    /// At the last poll.
    last: Option<Version>,
    /// The version read last. `None` at the start, because the file may have changed before the first poll.
    read: Option<Version>,
}

impl Look {
    /// Whether the file differs from the version read last, and no longer changes.
    fn has_settled(&mut self, seen: Version) -> bool {
        let is_steady = self.last.replace(seen) == Some(seen);
        let is_new = is_steady && self.read != Some(seen);
        if is_new {
            self.read = Some(seen);
        }
        is_new
    }
}

/// Follows symlinks, so that a new target is a new version.
fn version(file: &Path) -> Version {
    let known = std::fs::metadata(file).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&known);
    #[cfg(not(unix))]
    let number = 0;
    Some((known.modified().ok()?, known.len(), number))
}
