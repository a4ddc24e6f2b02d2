//! See `tenure_garbage::Door::Claims`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Claims.enter(input) {
        panic!("{problem}");
    }
});
