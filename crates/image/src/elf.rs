//! Whether a program runs in an image that has no libraries, and on which machines.

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// The header of a segment that names the loader of a program's libraries.
const LOADER: u32 = 3;

/// Whether these are the bytes of a 64-bit Linux program that needs no loader and so no libraries.
pub fn is_static(program: &[u8]) -> bool {
    segments(program).is_some_and(|kinds| !kinds.is_empty() && !kinds.contains(&LOADER))
}

/// The architecture that this program is for, in the words of images; nothing if it is for none that we know.
pub fn architecture(program: &[u8]) -> Option<&'static str> {
    match program.starts_with(MAGIC).then(|| program.get(18..20))?? {
        [62, 0] => Some("amd64"),
        [183, 0] => Some("arm64"),
        _ => None,
    }
}

/// The kind of each segment; nothing if the headers are not all there.
fn segments(program: &[u8]) -> Option<Vec<u32>> {
    if !program.starts_with(MAGIC) {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(program.get(32..40)?.try_into().ok()?)).ok()?;
    let number = |at: usize| Some(usize::from(u16::from_le_bytes(program.get(at..at + 2)?.try_into().ok()?)));
    let (size, count) = (number(54)?, number(56)?);
    let kind = |index: usize| {
        let at = table.checked_add(index.checked_mul(size)?)?;
        Some(u32::from_le_bytes(program.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    (0..count).map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_told_from_one_without() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(is_static(&own), cfg!(target_env = "musl"), "this test");
        let mut program = own.clone();
        let table = usize::try_from(u64::from_le_bytes(own[32..40].try_into().unwrap())).unwrap();
        for index in 0..usize::from(u16::from_le_bytes(own[56..58].try_into().unwrap())) {
            // As if every segment were one to be loaded.
            program[table + index * 56..][..4].copy_from_slice(&1u32.to_le_bytes());
        }
        assert!(is_static(&program));
    }

    #[test]
    fn what_is_no_program_is_not_static() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for bytes in [&b""[..], b"#!/bin/sh\n", &own[..60], &own[..100]] {
            assert!(!is_static(bytes));
        }
    }

    #[test]
    fn a_program_says_which_machine_it_is_for() {
        let mut own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let here = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        assert_eq!(architecture(&own), Some(here));
        own[18] = 183;
        assert_eq!(architecture(&own), Some("arm64"));
        own[18] = 8;
        assert_eq!(architecture(&own), None, "MIPS");
        assert_eq!(architecture(b"#!/bin/sh\n and more"), None);
    }
}
