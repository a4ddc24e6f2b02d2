//! The case files of this repository.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by failing")]

use std::process::Command;

#[test]
fn every_case_of_ours_agrees_and_none_is_skipped() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");
    let files = std::fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path());
    let ran = Command::new(env!("CARGO_BIN_EXE_tenure-conformance")).args(files).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.ends_with(" passed, 0 failed, 0 skipped\n") && !said.starts_with("0 "), "{said}");
}
