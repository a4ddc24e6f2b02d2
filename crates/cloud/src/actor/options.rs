//! How an actor behaves: times and limits.

use std::time::Duration;

/// How an actor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// So many ranges an interface gets at most, if the cloud lets it have more; also what is assumed before it was read.
    pub limit: usize,
    /// What is wanted within this time goes into one update.
    pub gather: Duration,
    /// How often an update under way is asked about.
    pub poll: Duration,
    /// After this time an update under way is looked for anew.
    pub lost: Duration,
    /// How often an interface without work is read, because others may change it.
    pub look: Duration,
    /// The first wait after an error; it doubles up to [`Options::longest_rest`].
    pub rest: Duration,
    /// The longest wait after an error.
    pub longest_rest: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: 150,
            gather: Duration::from_millis(20),
            poll: Duration::from_millis(500),
            lost: Duration::from_mins(10),
            look: Duration::from_mins(10),
            rest: Duration::from_millis(500),
            longest_rest: Duration::from_secs(30),
        }
    }
}
