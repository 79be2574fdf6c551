//! Third-party programs: from the system, or from `target/tools`, where `./run setup` puts them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Where `./run setup` installs what is not installed system-wide.
pub fn tools() -> PathBuf {
    repository().join("target/tools")
}

/// A program installed on the system.
pub fn system(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian puts servers into a folder that is only on root's path.
    let mut places = std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join(name));
    places.find(|place| place.is_file()).unwrap_or_else(|| panic!("{name} is not installed; run ./run setup"))
}

/// A program in `target/tools`, in the version that the tests need.
pub fn pinned(name: &str) -> PathBuf {
    let place = tools().join("bin").join(name);
    assert!(place.is_file(), "{} is not installed; run ./run setup", place.display());
    place
}

/// A program inside a Python package in `target/tools`, or the one that an environment variable names.
pub(crate) fn packaged(path: &str, variable: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        return named.into();
    }
    let library = tools().join("lib");
    let pythons = std::fs::read_dir(&library).into_iter().flatten().flatten();
    let mut found = pythons.map(|python| python.path().join("site-packages").join(path));
    found
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("there is no {path} in {}; run ./run setup, or set {variable}", library.display()))
}

/// Runs a system program to its end.
pub fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(system(program)).args(args).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
}
