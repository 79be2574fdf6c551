//! Temporary files of a test run.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const PREFIX: &str = "tollkeeper-test-";

/// The folder of this process. Short, because paths of Unix sockets must be, and accessible to `nobody`, because
/// Postgres runs as that user.
static BASE: LazyLock<PathBuf> = LazyLock::new(|| {
    remove_leftovers();
    let base = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap_or_else(|error| panic!("cannot make {}: {error}", base.display()));
    base
});

/// A process cannot reliably remove its folder at exit, so the next one does.
fn remove_leftovers() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).filter(|pid| pid.parse::<u32>().is_ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn new_path(ending: &str) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    BASE.join(format!("{}{ending}", MADE.fetch_add(1, Relaxed)))
}

/// A new file with this text, kept until the process ends; its path.
pub fn file(text: &str, extension: &str) -> String {
    let path = new_path(&format!(".{extension}"));
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    path.to_str().unwrap().to_string()
}

/// A new folder, removed with its contents when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    #[allow(clippy::new_without_default)] // A folder is made on purpose.
    pub fn new() -> Folder {
        let path = new_path("");
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        Folder(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
