//! Programs that the kernel accepted.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::Assembler;
use super::call::{Attributes, Command};

/// `BPF_PROG_TYPE_SCHED_CLS`: for tc.
const FOR_TC: u32 = 3;
/// We use no helper that is reserved for GPL programs.
const LICENCE: &[u8] = b"Apache-2.0\0";
/// Room for the verifier's log.
const SAYINGS: usize = 256 * 1024;
/// The maximum length of a name.
const LONGEST_NAME: usize = 15;

/// Why a program was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("load the BPF program {name}: {errno}{}", self.last_words())]
pub struct LoadError {
    /// The program's name.
    pub name: &'static str,
    /// The cause.
    pub errno: Errno,
    /// The verifier's log.
    pub log: String,
}

impl LoadError {
    fn last_words(&self) -> String {
        let mut lines = self.log.lines().rev().filter(|line| !line.trim().is_empty());
        // The last line only counts instructions.
        lines
            .find(|line| !line.starts_with("processed "))
            .map_or_else(String::new, |line| format!(", {line}"))
    }
}

/// A program in the kernel.
#[derive(Debug)]
pub(crate) struct Program {
    descriptor: OwnedFd,
}

/// The result of running a program on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Its return value.
    pub(crate) result: i32,
    /// The resulting packet.
    pub(crate) packet: Vec<u8>,
}

impl Program {
    /// Verifies and loads a program.
    pub(crate) fn load(name: &'static str, program: Assembler) -> Result<Self, LoadError> {
        Self::load_code(name, &program.finish())
    }

    /// The same for an assembled program.
    pub(crate) fn load_code(name: &'static str, code: &[[u8; 8]]) -> Result<Self, LoadError> {
        let code = code.concat();
        let attributes = || {
            Attributes::new()
                .with(0, FOR_TC)
                .with(4, u32::try_from(code.len() / 8).unwrap_or(u32::MAX))
                .with_input(8, &code)
                .with_input(16, LICENCE)
                .with_text(48, name, LONGEST_NAME)
        };
        match attributes().open(Command::ProgramLoad) {
            Ok(descriptor) => Ok(Self { descriptor }),
            Err(first) => {
                // Again with the log: the log would slow down every program that is fine.
                let mut log = vec![0; SAYINGS];
                let length = u32::try_from(log.len()).unwrap_or(u32::MAX);
                let again = attributes()
                    .with(24, 1)
                    .with(28, length)
                    .with_output(32, &mut log)
                    .open(Command::ProgramLoad);
                match again {
                    Ok(descriptor) => Ok(Self { descriptor }),
                    Err(errno) => {
                        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                        let log = String::from_utf8_lossy(&log[..end]).into_owned();
                        let errno = if errno == Errno::ENOSPC { first } else { errno };
                        Err(LoadError { name, errno, log })
                    }
                }
            }
        }
    }

    /// Runs it on a packet that begins with its Ethernet header, in the calling thread's namespace.
    pub(crate) fn run(&self, packet: &[u8]) -> Result<Ran, Errno> {
        let mut after = vec![0; packet.len() + 256];
        let (length, room) = (u32::try_from(packet.len()), u32::try_from(after.len()));
        let (Ok(length), Ok(room)) = (length, room) else { return Err(Errno::EMSGSIZE) };
        let mut attributes = Attributes::new()
            .with(0, self.descriptor.as_raw_fd().cast_unsigned())
            .with(8, length)
            .with(12, room)
            .with_input(16, packet)
            .with_output(24, &mut after)
            .with(32, 1);
        attributes.perform(Command::ProgramTestRun)?;
        let (result, length) = (attributes.number(4).cast_signed(), attributes.number(12) as usize);
        after.truncate(length);
        Ok(Ran { result, packet: after })
    }
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
