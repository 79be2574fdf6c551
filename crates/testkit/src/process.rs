//! A child process that ends with its handle.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running program. What it writes goes to a log file; it is killed when dropped.
#[derive(Debug)]
pub struct Process {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output and errors both go to the log.
    pub fn spawn(command: &mut Command, log: PathBuf) -> Process {
        let file = open(&log);
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Process::start(command, log)
    }

    /// Starts a program of which only the errors go to the log; its output can be read.
    pub(crate) fn spawn_with_output(command: &mut Command, log: PathBuf) -> Process {
        command.stdout(Stdio::piped()).stderr(open(&log));
        Process::start(command, log)
    }

    fn start(command: &mut Command, log: PathBuf) -> Process {
        let spawned = command.stdin(Stdio::null()).spawn();
        let child = spawned.unwrap_or_else(|error| {
            panic!("cannot run {}: {error}; run ./run setup", command.get_program().display());
        });
        Process { child, log }
    }

    /// What it has written so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Sends a signal, such as `-HUP`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "kill {signal} failed");
    }

    /// Waits for it to exit.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Opened for appending: a restarted server continues its log.
fn open(log: &PathBuf) -> std::fs::File {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(log);
    opened.unwrap_or_else(|error| panic!("cannot write {}: {error}", log.display()))
}
