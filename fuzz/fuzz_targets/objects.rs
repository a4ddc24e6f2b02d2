//! See `tenure_garbage::Door::Objects`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Objects.enter(input) {
        panic!("{problem}");
    }
});
