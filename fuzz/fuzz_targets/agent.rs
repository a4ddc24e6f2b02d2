//! See `tenure_garbage::Door::Agent`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Agent.enter(input) {
        panic!("{problem}");
    }
});
