//! See `tenure_garbage::Door::Whereabouts`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Whereabouts.enter(input) {
        panic!("{problem}");
    }
});
