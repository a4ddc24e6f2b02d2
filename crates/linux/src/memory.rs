//! Tells whether a file is in memory, so that writing it never waits for a disk.

use std::os::fd::AsFd;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

/// Whether an open file is on an in-memory file system, such as `/run`. False if unknown.
pub fn holds(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn shared_memory_is_memory_and_what_the_kernel_makes_up_is_not() {
        assert!(holds(File::open("/dev/shm").unwrap()));
        assert!(!holds(File::open("/proc/self/status").unwrap()));
    }
}
