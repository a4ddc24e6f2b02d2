//! See `tenure_fuzz_harness::Target::Egress`.
#![no_main]

use tenure_fuzz_harness::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Target::Egress.run(input) {
        panic!("{problem}");
    }
});
