//! See `tenure_garbage::Door::Records`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Records.enter(input) {
        panic!("{problem}");
    }
});
