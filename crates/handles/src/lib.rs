//! Time and randomness as handles.
//!
//! Nothing that decides reads the clock or generates random numbers by itself: it gets a [`Clock`] and an
//! [`Entropy`]. A program passes the real ones, a test or the simulator its own, so that a whole run replays
//! from one seed. `clippy.toml` bans the originals everywhere else.

mod clock;
mod entropy;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
