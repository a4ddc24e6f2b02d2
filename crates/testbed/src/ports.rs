//! Loopback ports that stay reserved while the program that listens on them is restarted.
//!
//! Any connection could take a port that the kernel chose as its source port between kill and restart. So
//! these come from below the range that the kernel chooses from, and a file lock keeps other test beds away.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use crate::run_directory::{base, lock_file};

const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

/// A loopback port that no other test bed of this user takes until this is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves one without a listener.
    pub(crate) fn reserve() -> io::Result<Self> {
        let directory = base()?.join("ports");
        fs::create_dir_all(&directory)?;
        // Processes start at different positions, so that they rarely collide.
        let start = std::process::id().wrapping_mul(7_919) % COUNT;
        for step in 0..COUNT {
            let Ok(number) = u16::try_from(FIRST + (start + step) % COUNT) else { continue };
            let lock = lock_file(&directory.join(format!("{number}.lock")))?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("all ports from {FIRST} to {} are in use", FIRST + COUNT - 1),
        ))
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_once_and_free_to_listen_on() {
        let ports: Vec<Port> = (0..20).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0].number())).unwrap();
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_passed_over() {
        let number = Port::reserve().unwrap().number();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert_ne!(Port::reserve().unwrap().number(), number);
    }
}
