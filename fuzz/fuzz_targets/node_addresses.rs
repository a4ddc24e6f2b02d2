//! See `tenure_fuzz_harness::Target::NodeAddresses`.
#![no_main]

use tenure_fuzz_harness::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(problem) = Target::NodeAddresses.run(input) {
        panic!("{problem}");
    }
});
