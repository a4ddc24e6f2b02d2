//! Reports long steps to people who wait.
//!
//! It writes to standard error itself and not to tracing: tests have no subscriber, and a first run that is
//! silent for eight minutes looks like one that hangs. On a terminal one line is rewritten; elsewhere a line
//! comes every half minute.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tenure_handles::{Clock as _, SystemClock, Timestamp};

/// How often to write a line to a log file.
const EVERY: Duration = Duration::from_secs(30);

/// One long step.
#[derive(Debug)]
pub(super) struct Progress {
    what: String,
    started: Timestamp,
    said: Timestamp,
    terminal: bool,
}

impl Progress {
    /// Reports that `what` begins and how long it should take.
    pub(super) fn begin(what: impl Into<String>, expected: &str) -> Self {
        let (what, now) = (what.into(), SystemClock.now());
        say(&format!("{what}: {expected}\n"));
        Self { what, started: now, said: now, terminal: io::stderr().is_terminal() }
    }

    /// Reports the progress, if it is time to.
    pub(super) fn update(&mut self, so_far: &str) {
        let now = SystemClock.now();
        let line = format!("{}: {} so far, {so_far}", self.what, in_words(now.since(self.started)));
        if self.terminal {
            say(&format!("\r\x1b[K{line}"));
        } else if now.since(self.said) >= EVERY {
            self.said = now;
            say(&format!("{line}\n"));
        }
    }

    /// Reports the end and the duration.
    pub(super) fn done(self) {
        let took = in_words(SystemClock.now().since(self.started));
        let erase = if self.terminal { "\r\x1b[K" } else { "" };
        say(&format!("{erase}{}: done in {took}\n", self.what));
    }
}

/// Writes to standard error; a closed one is no error.
pub(super) fn say(text: &str) {
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

/// `7 min 16 s`, `16 s`, `0.3 s`.
fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_people_say_them() {
        let said = [300, 16_000, 436_000].map(|millis| in_words(Duration::from_millis(millis)));
        assert_eq!(said, ["0.3 s", "16 s", "7 min 16 s"]);
    }
}
