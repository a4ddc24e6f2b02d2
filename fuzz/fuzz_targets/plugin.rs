//! See `tenure_garbage::Door::Plugin`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Plugin.enter(input) {
        panic!("{problem}");
    }
});
