//! Clocks that are set while programs run. The system's own is everybody's and stays as it is; each program has a library in
//! front of the C library's `clock_gettime` that adds what a file says to the wall clock. The clocks that only go forward are not
//! touched, as nobody can set those of a real machine either.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::agent::Machine;

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TENURE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) ahead = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && ahead) now->tv_sec += *ahead;
    return result;
}
"#;

/// Where clocks are made.
pub struct Clocks {
    directory: tempfile::TempDir,
}

/// The wall clock of one program.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clocks {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (directory.path().join("clock.c"), directory.path().join("clock.so"));
        std::fs::write(&source, LIBRARY).unwrap();
        // What links Rust programs is there.
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(made.unwrap().success(), "cc makes a library");
        Self { directory }
    }

    /// A clock that is right.
    pub fn make(&self, name: &str) -> Clock {
        let (library, file) = (self.path("clock.so"), self.path(name));
        std::fs::write(&file, 0_i64.to_ne_bytes()).unwrap();
        Clock { library, file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Clock {
    /// What a program has to be started with.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("TENURE_TEST_CLOCK", &self.file)]
    }

    /// Sets it: so many seconds ahead of what is right.
    pub fn set(&self, ahead: i64) {
        let file = File::options().write(true).open(&self.file).unwrap();
        file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }
}

/// That agents saw their clocks be set ahead and back: lines are dated by the hour that it was, hours later and hours earlier. One
/// that was killed soon after its clock was set may not have said a word by it.
#[track_caller]
pub fn assert_set(machines: &[Machine<'_>]) {
    let mut all = BTreeSet::new();
    for machine in machines {
        let log = machine.log();
        let hours = log.lines().filter_map(|line| line.get(..13)).filter(|hour| hour.starts_with("20"));
        let hours: BTreeSet<String> = hours.map(str::to_owned).collect();
        assert!(hours.len() > 1, "the clock of {} was not set: {hours:?}", machine.name);
        all.extend(hours);
    }
    assert!(all.len() > 2, "clocks were not set both ways: {all:?}");
}
