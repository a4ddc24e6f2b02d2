//! The `bpf` system call, which no crate wraps safely: the only `unsafe` code of this crate.
//!
//! In the kernel's headers a command's attributes are a union of structs. Here they are a list of fields, each at its offset. A
//! field that is an address takes the slice that it points to, so the kernel's buffers are borrowed for the duration of the
//! call and have the declared length.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// Commands; the numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(super) enum Command {
    ProgramLoad = 5,
    ProgramTestRun = 10,
}

/// The size of a command's attributes: enough for every kernel that supports what we use; the rest is zero.
const LENGTH: usize = 128;

/// The attributes of one call.
pub(super) struct Attributes<'a> {
    bytes: Aligned,
    borrowed: std::marker::PhantomData<&'a mut [u8]>,
}

#[repr(align(8))]
struct Aligned([u8; LENGTH]);

impl<'a> Attributes<'a> {
    pub(super) fn new() -> Self {
        Self { bytes: Aligned([0; LENGTH]), borrowed: std::marker::PhantomData }
    }

    /// Sets a number at `offset`.
    pub(super) fn with(mut self, offset: usize, value: u32) -> Self {
        self.put(offset, &value.to_ne_bytes());
        self
    }

    /// Sets a text at `offset`, truncated to `longest` bytes.
    pub(super) fn with_text(mut self, offset: usize, text: &str, longest: usize) -> Self {
        self.put(offset, &text.as_bytes()[..text.len().min(longest)]);
        self
    }

    /// Sets the address of a buffer that the kernel reads.
    pub(super) fn with_input(mut self, offset: usize, input: &'a [u8]) -> Self {
        self.put(offset, &(input.as_ptr().addr() as u64).to_ne_bytes());
        // The kernel reads through this address, so it must also stay valid as a pointer.
        let _ = input.as_ptr().expose_provenance();
        self
    }

    /// Sets the address of a buffer that the kernel writes.
    pub(super) fn with_output(mut self, offset: usize, output: &'a mut [u8]) -> Self {
        let address = output.as_mut_ptr().expose_provenance() as u64;
        self.put(offset, &address.to_ne_bytes());
        self
    }

    /// The number at `offset`, as the kernel left it.
    pub(super) fn number(&self, offset: usize) -> u32 {
        let bytes = self.bytes.0.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    fn put(&mut self, offset: usize, value: &[u8]) {
        if let Some(place) = self.bytes.0.get_mut(offset..offset + value.len()) {
            place.copy_from_slice(value);
        }
    }

    /// Makes the call. Returns 0 or a descriptor.
    fn call(&mut self, command: Command) -> Result<libc::c_long, Errno> {
        loop {
            // SAFETY: the kernel reads and writes at most LENGTH bytes here. Every address among them was borrowed for 'a, and
            // this module's callers give each slice the length that the command uses: the lengths are other fields of the same
            // attributes, or the sizes with which the map was created.
            let result = unsafe {
                libc::syscall(libc::SYS_bpf, command as i64, std::ptr::from_mut(&mut self.bytes), LENGTH)
            };
            match Errno::result(result) {
                // A signal interrupts the verifier.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                result => return result,
            }
        }
    }

    /// Makes a call that returns no descriptor.
    pub(super) fn perform(&mut self, command: Command) -> Result<(), Errno> {
        self.call(command).map(drop)
    }

    /// Makes a call that returns a descriptor.
    pub(super) fn open(&mut self, command: Command) -> Result<OwnedFd, Errno> {
        let descriptor = i32::try_from(self.call(command)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: MapCreate and ProgramLoad return a new descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}
