//! See `tenure_fuzz_harness::Target::Agent`.
#![no_main]

use tenure_fuzz_harness::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Target::Agent.run(input) {
        panic!("{problem}");
    }
});
