//! The last good rules on disk, for a start while the database is unreachable.
//!
//! The first line is the checksum of the rest, which is JSON. The file is replaced atomically.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tollkeeper_core::{Policy, RuleSpec};

use super::set::RuleSet;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: i64,
    /// The database: the rules of another database must not be used.
    from: String,
    rules: Vec<RuleSpec>,
}

/// Saves rules of the database `from`.
pub(super) fn save(path: &Path, from: &str, version: i64, rules: Vec<RuleSpec>) -> io::Result<()> {
    let content = serde_json::to_string(&Content { version, from: from.into(), rules })?;
    let text = format!("{}\n{content}\n", checksum(content.as_bytes()));
    let new = beside(path);
    let written = write(&new, text.as_bytes()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
        return written;
    }
    // The new name must survive a crash too.
    folder(path).map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Several instances may save to one place at the same time.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn folder(path: &Path) -> Option<&Path> {
    path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // Rules tell an attacker which limits to stay below.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// The rules of the database `from`, or why there are none.
pub(super) fn load(path: &Path, from: &str) -> Result<RuleSet, String> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "does not exist yet; it is written whenever valid rules are read".to_string(),
        _ => format!("cannot be read: {error}"),
    })?;
    let damaged = |what: &str| format!("is damaged: {what}; remove it");
    let (sum, content) = text.split_once('\n').ok_or_else(|| damaged("it has no checksum"))?;
    let content = content.strip_suffix('\n').ok_or_else(|| damaged("its end is missing"))?;
    if sum != checksum(content.as_bytes()) {
        return Err(damaged("its checksum does not match"));
    }
    let content: Content = serde_json::from_str(content).map_err(|error| damaged(&error.to_string()))?;
    if content.from != from {
        return Err(format!("contains rules of {}, not of {from}; remove it", content.from));
    }
    let policy = Policy::new(content.rules).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("contains rules that this version of tollkeeper does not understand: {}", errors.join("; "))
    })?;
    Ok(RuleSet { version: content.version, policy })
}

fn checksum(content: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, content).as_ref())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FROM: &str = "postgres at 127.0.0.1:5432/limits";

    fn kept() -> (PathBuf, String) {
        let path = std::env::temp_dir().join(format!("tollkeeper-snapshot-{}", std::process::id()));
        let spec = RuleSpec { name: "a".into(), key: "{ip}".into(), limit: "6,000/min".into(), ..RuleSpec::default() };
        save(&path, FROM, 7, vec![spec]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    }

    #[test]
    fn what_was_kept_comes_back_and_what_was_damaged_does_not() {
        let (path, text) = kept();
        let set = load(&path, FROM).unwrap();
        assert_eq!((set.version, set.policy.rules().len(), set.policy.rules()[0].name()), (7, 1, "a"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(load(&path, "postgres at elsewhere:5432/limits").unwrap_err().contains("not of postgres at elsewhere"));
        for (damage, said) in [
            (text.replace("6,000", "9,000"), "checksum"),
            (text[..text.len() - 2].to_string(), "damaged"),
            (text[..30].to_string(), "no checksum"),
            (String::new(), "no checksum"),
        ] {
            std::fs::write(&path, damage).unwrap();
            let problem = load(&path, FROM).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(load(&path, FROM).unwrap_err().contains("does not exist yet"));
    }
}
