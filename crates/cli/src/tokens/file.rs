//! The file with the generated token, for commands on this machine: only this user can read it, it is named after the
//! address, and lies in this user's runtime directory.
//!
//! It is locked for as long as its service runs. A file left by a crash is harmless, because its token is no longer valid;
//! the next start removes it.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::Token;

/// The file of a running service, removed when dropped.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    token: Token,
    /// Open, and so locked.
    _locked: File,
}

impl TokenFile {
    /// Writes the token of a service on this address to the first usable folder.
    pub fn keep(token: &Token, bound: SocketAddr) -> io::Result<TokenFile> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "no folder for it: set XDG_RUNTIME_DIR or HOME");
        folders().iter().for_each(|folder| sweep(folder));
        for folder in folders() {
            let path = folder.join(name(bound));
            match write(&folder, &path, token) {
                Ok(locked) => return Ok(TokenFile { path, token: token.clone(), _locked: locked }),
                Err(error) => failed = io::Error::new(error.kind(), format!("{}: {error}", path.display())),
            }
        }
        Err(failed)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Another service may have taken the address since.
        if fs::read_to_string(&self.path).is_ok_and(|kept| self.token.is(kept.trim_end().as_bytes())) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The generated token of this user's service at this address, if there is one, and its file.
pub fn find(host: &str, port: u16) -> Option<(String, PathBuf)> {
    let paths = addresses(host).into_iter().flat_map(|ip| {
        let name = name(SocketAddr::new(ip, port));
        folders().into_iter().map(move |folder| folder.join(&name))
    });
    let read = |path: PathBuf| Some((fs::read_to_string(&path).ok()?.trim_end().to_string(), path));
    paths.filter_map(read).find(|(token, _)| !token.is_empty())
}

/// The loopback addresses that a URL may mean. A token is sent nowhere else.
fn addresses(host: &str) -> Vec<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) if address.to_canonical().is_loopback() => vec![address.to_canonical()],
        Err(_) if bare.eq_ignore_ascii_case("localhost") => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        _ => Vec::new(),
    }
}

/// Not all file systems allow colons in names.
fn name(bound: SocketAddr) -> String {
    format!("{}-{}.token", bound.ip().to_canonical().to_string().replace(':', "_"), bound.port())
}

/// The possible folders, the best first. The service and the command may see different variables, so all are tried.
fn folders() -> Vec<PathBuf> {
    let set = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || if cfg!(windows) { set("USERPROFILE") } else { set("HOME") };
    let mut folders = Vec::new();
    // systemd's folder for this service, from `RuntimeDirectory=tollkeeper`.
    folders.extend(set("RUNTIME_DIRECTORY"));
    if cfg!(windows) {
        folders.extend(set("LOCALAPPDATA").map(|folder| folder.join("tollkeeper")));
    }
    folders.extend(set("XDG_RUNTIME_DIR").map(|folder| folder.join("tollkeeper")));
    folders.extend(set("XDG_STATE_HOME").map(|folder| folder.join("tollkeeper")));
    if cfg!(target_os = "macos") {
        folders.extend(home().map(|home| home.join("Library/Application Support/tollkeeper")));
    }
    folders.extend(home().map(|home| home.join(".local/state/tollkeeper")));
    if cfg!(unix) {
        folders.push("/run/tollkeeper".into());
    }
    folders
}

/// Removes the files of services that no longer run: nobody has them locked.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_left = || File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if path.extension().is_some_and(|extension| extension == "token") && is_left() {
            // If another start is faster, it is gone already.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Written under another name first and then renamed: readers never see a partial file, and an existing file with
/// other permissions is replaced. It is locked before others can see it; on a file system without locks it is not.
fn write(folder: &Path, path: &Path, token: &Token) -> io::Result<File> {
    make_private(folder)?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&draft);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&draft).and_then(|mut file| {
        let _ = file.try_lock();
        writeln!(file, "{}", token.text()).map(|()| file)
    });
    let kept = written.and_then(|file| fs::rename(&draft, path).map(|()| file));
    if kept.is_err() {
        let _ = fs::remove_file(&draft);
    }
    kept
}

/// Makes a folder that no other user can write to; otherwise they could place their own token there.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(folder)?);
        if mode & 0o022 != 0 {
            let problem = format!("others can write to this folder (mode {:o}); chmod 700 it", mode & 0o7777);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_looked_for_only_where_it_stays_on_this_machine() {
        assert_eq!(addresses("localhost").len(), 2);
        assert_eq!(addresses("[::1]"), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        assert_eq!(addresses("127.0.0.5"), [IpAddr::from([127, 0, 0, 5])]);
        for elsewhere in ["10.0.0.7", "example.com", "localhost.example.com", "127.0.0.1.example.com", "0.0.0.0"] {
            assert_eq!(addresses(elsewhere), [] as [IpAddr; 0], "{elsewhere}");
        }
    }

    /// Each crash left one for good, as did each start on a port of its own choice that was killed.
    #[test]
    fn what_a_crash_left_is_removed_and_what_runs_stays() {
        let folder = env::temp_dir().join(format!("tollkeeper-tokens-{}", std::process::id()));
        let path = |name: &str| folder.join(name);
        let token = Token::new("t".repeat(40));
        let running = write(&folder, &path("127.0.0.1-8080.token"), &token).expect("written");
        drop(write(&folder, &path("127.0.0.1-8081.token"), &token).expect("written"));
        fs::write(path("notes.txt"), "mine").expect("written");
        sweep(&folder);
        assert!(path("127.0.0.1-8080.token").exists() && path("notes.txt").exists());
        assert!(!path("127.0.0.1-8081.token").exists());
        drop(running);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn each_address_has_a_file_of_its_own() {
        let names = ["127.0.0.1:80", "127.0.0.1:8080", "127.0.0.2:80", "[::1]:80"];
        let names: std::collections::BTreeSet<String> =
            names.iter().map(|address| name(address.parse().expect("an address"))).collect();
        assert_eq!(names.len(), 4);
        assert!(names.iter().all(|name| !name.contains([':', '/', '\\'])), "{names:?}");
    }
}
