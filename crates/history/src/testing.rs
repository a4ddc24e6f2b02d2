//! Holds for tests.

use jiff::Timestamp;
use tenure_view::{End, Holder, Period};

/// A moment.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A hold of an address of a block.
pub(crate) fn held(container: &str, address: u8, sequence: u64, second: i64) -> Period {
    let holder =
        Holder { network: "n".into(), container: container.into(), interface: "eth0".into(), pod: None };
    Period {
        holder,
        block: "p-0".into(),
        block_uid: "uid".into(),
        sequence,
        addresses: vec![[10, 0, 0, address].into()],
        from: Some(at(second)),
        ..Period::default()
    }
}

/// The same, released.
pub(crate) fn released(period: &Period, second: i64) -> Period {
    Period { to: Some(at(second)), end: Some(End::Released), ..period.clone() }
}
