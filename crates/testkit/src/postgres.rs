//! Postgres, from Debian's package or from the folder that `TOLLKEEPER_POSTGRES_BIN` names.
//!
//! It refuses to run as root, so root starts it as `nobody`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;
use crate::{Folder, Pair, Process, free_port, wait_until};

/// One server with a database `limits`, whose owner is `tollkeeper`.
pub struct Postgres {
    process: Process,
    port: u16,
    folder: Folder,
}

impl Postgres {
    /// With Debian's default settings.
    pub fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// With settings, such as `max_connections=50`.
    pub fn start_with(settings: &[&str]) -> Postgres {
        Postgres::start_in(new_folder(), settings)
    }

    /// With TLS too, with this certificate.
    pub fn start_tls(pair: &Pair) -> Postgres {
        let folder = new_folder();
        std::fs::copy(&pair.cert, folder.join("given.crt")).unwrap();
        std::fs::copy(&pair.key, folder.join("given.key")).unwrap();
        // Postgres accepts only a key file that it owns and that is private.
        run(shell(&folder, "install -m 600 given.crt own.crt && install -m 600 given.key own.key"));
        let file = |name: &str| folder.join(name).display().to_string();
        let settings = [
            "ssl=on".to_string(),
            format!("ssl_cert_file='{}'", file("own.crt")),
            format!("ssl_key_file='{}'", file("own.key")),
        ];
        Postgres::start_in(folder, &settings.each_ref().map(String::as_str))
    }

    fn start_in(folder: Folder, settings: &[&str]) -> Postgres {
        run(program("initdb").arg("-D").arg(folder.join("data")).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-N",
            "--no-instructions",
        ]));
        for setting in settings {
            let line = setting.replacen('=', " = ", 1);
            run(shell(&folder, &format!("echo \"{line}\" >> data/postgresql.conf")));
        }
        let port = free_port();
        let mut server = Postgres { process: spawn(&folder, port), port, folder };
        // Another process may take the port before the server binds it.
        for _ in 0..5 {
            if server.comes_up() {
                server.sql_as("postgres", "postgres", "create role tollkeeper login password 'sesame'");
                server.sql_as("postgres", "postgres", "create database limits owner tollkeeper");
                return server;
            }
            server.port = free_port();
            server.process = spawn(&server.folder, server.port);
        }
        panic!("postgres does not start; its log says:\n{}", server.process.log());
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The database's URL, as its owner.
    pub fn url(&self) -> String {
        self.url_as("tollkeeper:sesame")
    }

    /// The database's URL for another login: `user` or `user:password`.
    pub fn url_as(&self, login: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/limits", self.port)
    }

    /// Requires passwords from now on.
    pub fn require_passwords(&self) {
        run(shell(&self.folder, "sed -i 's/trust$/scram-sha-256/; /^local/s/scram-sha-256/trust/' data/pg_hba.conf"));
        run(program("pg_ctl").arg("reload").arg("-D").arg(self.folder.join("data")));
    }

    /// Runs SQL with psql; what it prints, without decoration.
    pub fn sql(&self, text: &str) -> String {
        self.sql_as("tollkeeper", "limits", text)
    }

    /// The same as another user, in another database.
    pub fn sql_as(&self, user: &str, database: &str, text: &str) -> String {
        let output = self.try_sql_as(user, database, text);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{said}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_string()
    }

    /// The same for SQL that may be refused.
    pub fn try_sql_as(&self, user: &str, database: &str, text: &str) -> Output {
        let mut psql = Command::new(binary("psql"));
        psql.env("PGCONNECT_TIMEOUT", "5").args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", user]);
        psql.arg("-h").arg(self.folder.path()).args(["-p", &self.port.to_string(), "-d", database, "-c", text]);
        psql.output().unwrap_or_else(|error| panic!("cannot run psql: {error}; run ./run setup"))
    }

    /// Waits until a query prints what is expected.
    pub fn wait_for(&self, query: &str, expected: &str) {
        wait_until(&format!("{query} is {expected}"), || self.sql(query) == expected);
    }

    /// Pauses all of its processes (SIGSTOP): connections are accepted, and never answered.
    pub fn pause(&self) {
        self.signal_all("STOP");
    }

    /// Resumes after a pause.
    pub fn resume(&self) {
        self.signal_all("CONT");
    }

    fn signal_all(&self, signal: &str) {
        let parent = self.process.child.id().to_string();
        let children = Command::new("pgrep").args(["-P", &parent]).output().unwrap();
        for pid in String::from_utf8_lossy(&children.stdout).lines().chain([parent.as_str()]) {
            // The process may have ended in between.
            let _ = Command::new("kill").args([&format!("-{signal}"), pid]).stderr(Stdio::null()).status();
        }
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        if self.process.is_running() {
            // Paused processes could not end.
            self.resume();
        }
        self.process.kill();
    }

    /// Starts it again on the same port and data, after it was killed.
    pub fn restart(&mut self) {
        // Backend processes of the old server need a moment to exit.
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.process = spawn(&self.folder, self.port);
            if self.comes_up() {
                return;
            }
            sleep(Duration::from_millis(200));
        }
        panic!("postgres does not start again; its log says:\n{}", self.process.log());
    }

    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && self.process.is_running() {
            if self.try_sql_as("postgres", "postgres", "select 1").status.success() {
                return true;
            }
            sleep(Duration::from_millis(20));
        }
        self.process.kill();
        false
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &Folder, port: u16) -> Process {
    let mut postgres = program("postgres");
    postgres.arg("-D").arg(folder.join("data")).arg("-k").arg(folder.path()).args(["-p", &port.to_string()]);
    postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
    Process::spawn(&mut postgres, folder.join("log"))
}

/// A Postgres program, run as a user it accepts (not root).
fn program(name: &str) -> Command {
    by_nobody(binary(name))
}

fn shell(folder: &Folder, script: &str) -> Command {
    let mut shell = by_nobody("sh".into());
    shell.current_dir(folder.path()).args(["-c", script]);
    shell
}

fn by_nobody(program: PathBuf) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]).arg(program).current_dir("/");
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn run(mut command: impl std::borrow::BorrowMut<Command>) {
    let command = command.borrow_mut();
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; run ./run setup"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn binary(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("TOLLKEEPER_POSTGRES_BIN") {
        return PathBuf::from(folder).join(name);
    }
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        installed.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    // On other systems than Debian it is on the path.
    found.pop().unwrap_or_else(|| name.into())
}

/// A folder that the server's user can write to.
fn new_folder() -> Folder {
    let folder = Folder::new();
    if is_root() {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    folder
}
