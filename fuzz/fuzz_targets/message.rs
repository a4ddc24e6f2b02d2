//! See `tenure_garbage::Door::Message`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Message.enter(input) {
        panic!("{problem}");
    }
});
