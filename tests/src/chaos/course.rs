//! The course of a run: the number that decides it, what is said on the way, and how long is waited for everything to be well.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tenure_handles::{Clock, Entropy, SystemClock, SystemEntropy};
use tenure_testbed::wait::PATIENCE;

/// What takes longer than this is talked about.
const ALOUD: Duration = Duration::from_secs(5);

/// What is counted from the start of the program by a clock that is never set back.
pub type Moment = Duration;

pub fn now() -> Moment {
    SystemClock.elapsed()
}

/// Says something that is seen also when the test succeeds.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "chaos: {:.1} s: {what}", now().as_secs_f64());
}

/// What decides a run: given, or drawn. It is printed.
pub fn seed() -> u64 {
    let seed = match std::env::var("TENURE_SEED") {
        Ok(text) => text.parse().expect("TENURE_SEED is a number"),
        Err(_) => SystemEntropy::new().unwrap().next_u64(),
    };
    say(&format!("TENURE_SEED={seed}"));
    seed
}

/// Waits until there is nothing to complain about.
#[track_caller]
pub fn until(what: &str, look: impl Fn() -> Vec<String>) {
    until_within(PATIENCE, what, look);
}

/// Waits for no longer than this.
#[track_caller]
pub fn until_within(limit: Duration, what: &str, look: impl Fn() -> Vec<String>) {
    let (began, mut said) = (now(), now());
    loop {
        let found = look();
        if found.is_empty() {
            return;
        }
        if now().saturating_sub(said) > ALOUD {
            say(&format!("waiting for {what}:\n  {}", found.join("\n  ")));
            said = now();
        }
        assert!(now().saturating_sub(began) < limit, "waited {limit:?} for {what}:\n{}", found.join("\n"));
        thread::sleep(Duration::from_millis(100));
    }
}

/// Says that it is over, also when somebody panics.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
