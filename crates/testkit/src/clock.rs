//! A wall clock that tests step, for programs that run with it.

use std::process::Command;

use crate::Folder;

/// A clock that shows the machine's time plus an offset. Linux only: it is preloaded.
pub struct SteppedClock {
    folder: Folder,
}

impl SteppedClock {
    /// Without an offset.
    #[allow(clippy::new_without_default)] // It compiles a library.
    pub fn new() -> SteppedClock {
        let folder = Folder::new();
        let source = folder.join("clock.c");
        std::fs::write(&source, include_str!("clock.c")).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join("clock.so")).arg(&source);
        let output = compiler.output().unwrap_or_else(|error| panic!("cannot run cc: {error}; run ./run setup"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let clock = SteppedClock { folder };
        clock.set(0);
        clock
    }

    /// Sets the offset to the machine's time, for all programs that run with this clock.
    pub fn set(&self, seconds: i64) {
        // Written in place: they have mapped the file.
        std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(self.folder.join("offset"))
            .and_then(|mut file| std::io::Write::write_all(&mut file, &seconds.to_ne_bytes()))
            .unwrap();
    }

    /// Makes a command run with this clock.
    pub fn apply(&self, command: &mut Command) {
        for (name, value) in self.variables() {
            command.env(name, value);
        }
    }

    /// The environment variables of a program that runs with this clock.
    pub(crate) fn variables(&self) -> [(&'static str, std::path::PathBuf); 2] {
        [("LD_PRELOAD", self.folder.join("clock.so")), ("CLOCK_OFFSET_FILE", self.folder.join("offset"))]
    }
}
