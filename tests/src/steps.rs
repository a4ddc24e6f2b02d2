//! How long each step of a long test took.

use tenure_handles::{Clock as _, SystemClock, Timestamp};

/// Says how long after its time each step was done, for those who run with `--nocapture`.
pub struct Steps(pub Timestamp);

impl Steps {
    #[expect(clippy::disallowed_macros, reason = "a test's output is captured unless one asks for it")]
    pub fn done(&self, what: &str) {
        println!("{:6.1} s  {what}", SystemClock.now().since(self.0).as_secs_f64());
    }
}
