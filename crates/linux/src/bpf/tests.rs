//! The assembler against the kernel's verifier.

use super::*;
use Register::{R0, R1, R6, R10};

/// Whether this process may load programs. Plain `cargo test` may run without rights; `cargo xtask test` has them.
pub(crate) fn may_load() -> bool {
    let mut code = Assembler::default();
    code.exit_with(0);
    !matches!(Program::load("may_load", code), Err(error) if error.errno == nix::errno::Errno::EPERM)
}

#[test]
fn numbers_jumps_and_memory_are_what_they_say() {
    if !may_load() {
        return;
    }
    let mut code = Assembler::default();
    let (wrong, next) = (code.label(), code.label());
    code.set(R6, 0x1234);
    code.order_for_network(R6);
    code.store(Width::Half, R10, -8, R6);
    code.load(Width::Byte, R1, R10, -8);
    code.jump_if(R1, Condition::NotEqual, 0x12, wrong);
    code.set(R1, 40);
    code.compute_with(Operation::ShiftLeft, R1, 1);
    code.compute_with(Operation::Subtract, R1, 38);
    code.copy(R0, R1);
    code.jump_if(R0, Condition::Equal, 42, next);
    code.mark(wrong);
    code.exit_with(-1);
    code.mark(next);
    code.exit();
    let program = Program::load("numbers", code).unwrap();
    assert_eq!(program.run(&[0; 64]).unwrap().result, 42);
}

#[test]
fn a_program_that_is_refused_says_what_the_verifier_said() {
    if !may_load() {
        return;
    }
    let mut code = Assembler::default();
    code.copy(R0, R6);
    code.exit();
    let error = Program::load("unset", code).unwrap_err();
    assert!(error.to_string().contains("R6 !read_ok"), "{error}");
    let mut code = Assembler::default();
    let nowhere = code.label();
    code.jump(nowhere);
    assert!(Program::load("nowhere", code).is_err());
}
