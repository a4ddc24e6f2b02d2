//! See `tenure_garbage::Door::Journal`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Journal.enter(input) {
        panic!("{problem}");
    }
});
