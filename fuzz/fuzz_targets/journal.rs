//! See `tenure_fuzz_harness::Target::Journal`.
#![no_main]

use tenure_fuzz_harness::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Target::Journal.run(input) {
        panic!("{problem}");
    }
});
