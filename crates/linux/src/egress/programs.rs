//! The loaded programs of the BPF datapath: each once, however many pods use it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use nix::errno::Errno;

use super::decapsulate::{Decapsulation, From};
use super::encapsulate::{Encapsulation, To, Way};
use super::state::PROGRAM_PREFIX;
use super::{Family, SourcePort};
use crate::bpf::{Assembler, LoadError, Program};

/// How many programs are cached. They differ by Egresses, of which a node's pods use few.
const MOST_KEPT: usize = 256;

/// Loads programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    loaded: HashMap<Vec<[u8; 8]>, Arc<Program>>,
}

/// Why a kernel cannot run the programs.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It refuses one.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It does not allow a test run.
    #[error("run a BPF program on a packet: {0}")]
    Run(Errno),
    /// It decapsulates differently.
    #[error("a BPF program took a packet out of its tunnel and returned {result}")]
    Result {
        /// The program's return value.
        result: i32,
    },
}

/// What tc does with a packet that was redirected.
pub(super) const REDIRECTED: i32 = 7;

impl Programs {
    /// Tests whether the kernel accepts the programs, and whether they work.
    pub(super) fn probe() -> Result<Self, ProbeError> {
        for family in Family::ALL {
            let gateway = match family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            };
            let way = Way { gateway, port: SourcePort::PerFlow, next_hop: Some(gateway), mac: None };
            let to = To::Gateways(&[way]);
            Program::load("egress_probe", Encapsulation { family, interface: 1, to }.assemble())?;
            let back = Decapsulation { family, device: Some(1), from: From::AnyGateway };
            let program = Program::load("egress_probe", back.assemble())?;
            let result = program.run(&specimen(family)).map_err(ProbeError::Run)?.result;
            if result != REDIRECTED {
                return Err(ProbeError::Result { result });
            }
        }
        Ok(Self::default())
    }

    /// Loads a program, or returns the same one if it is loaded. The text identifies its content.
    pub(super) fn load(
        &mut self,
        name: &'static str,
        code: Assembler,
    ) -> Result<(String, Arc<Program>), LoadError> {
        let code = code.finish();
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = code.iter().flatten().fold(0xcbf2_9ce4_8422_2325, step);
        let text = format!("{PROGRAM_PREFIX}_{name}_{hash:016x}");
        if let Some(program) = self.loaded.get(&code) {
            return Ok((text, Arc::clone(program)));
        }
        let program = Arc::new(Program::load_code(name, &code)?);
        if self.loaded.len() >= MOST_KEPT {
            self.loaded.retain(|_, program| Arc::strong_count(program) > 1);
        }
        self.loaded.insert(code, Arc::clone(&program));
        Ok((text, program))
    }
}

/// A packet of a tunnel of this family, with an inner packet of only a header.
pub(super) fn specimen(family: Family) -> Vec<u8> {
    let inner: Vec<u8> = match family {
        Family::V4 => {
            [&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0][..], &[192, 0, 2, 1], &[192, 0, 2, 2]].concat()
        }
        Family::V6 => {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
            header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            header
        }
    };
    let mut outer = inner.clone();
    let udp_length = u16::try_from(8 + inner.len()).unwrap_or(0).to_be_bytes();
    match family {
        Family::V4 => (outer[3], outer[9]) = (48, 17),
        Family::V6 => {
            outer[4..6].copy_from_slice(&udp_length);
            outer[6] = 17;
        }
    }
    let [p0, p1] = super::FOU_PORT.to_be_bytes();
    let [e0, e1] = family.ether_type().to_be_bytes();
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, e0, e1];
    [&ethernet[..], &outer, &[p0, p1, p0, p1, udp_length[0], udp_length[1], 0, 0], &inner].concat()
}
