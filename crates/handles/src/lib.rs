//! Time and chance as handles.
//!
//! Nothing that decides reads the clock or rolls dice by itself: it is given a [`Clock`] and an
//! [`Entropy`]. A program hands in the real ones, a test or the simulator its own, and then a whole
//! run replays from one seed. `clippy.toml` bans the originals everywhere else.

mod clock;
mod entropy;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
