//! See `tenure_garbage::Door::Connection`.
#![no_main]

use tenure_garbage::Door;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Door::Connection.enter(input) {
        panic!("{problem}");
    }
});
