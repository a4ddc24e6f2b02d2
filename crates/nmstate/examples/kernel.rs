//! nmstate's own kernel mode, for `cargo xtask bench nodes`: applies the desired state on each line of standard input, with
//! verification, and writes how many nanoseconds that took, or why it failed.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::io::{self, BufRead as _, Write as _};
use std::time::Instant;

use nmstate::NetworkState;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        match serde_json::from_str::<NetworkState>(&line) {
            Ok(mut state) => {
                state.set_kernel_only(true);
                let began = Instant::now();
                match state.apply() {
                    Ok(()) => writeln!(out, "{}", began.elapsed().as_nanos())?,
                    Err(error) => writeln!(out, "{}", error.to_string().replace('\n', " "))?,
                }
            }
            Err(error) => writeln!(out, "no state: {error}")?,
        }
        out.flush()?;
    }
    Ok(())
}
