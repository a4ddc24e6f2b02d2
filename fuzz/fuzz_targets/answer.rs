//! See `tenure_garbage::Door::Answer`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Answer.enter(input) {
        panic!("{problem}");
    }
});
