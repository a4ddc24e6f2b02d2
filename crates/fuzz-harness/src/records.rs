//! The records of a journal whose checksums are right, so that what is looked for is not lost behind them: lines of a
//! length (two bytes, little endian) and a body, each of which becomes a frame.

use tenure_agent::journal::codec;

use crate::{Violation, hold, journal};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let mut file = codec::begin(&journal::origin());
    let mut rest = input;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (body, after) = after.split_at(length);
        put_frame(body, &mut file);
        rest = after;
    }
    let reading = codec::read(&file).map_err(|error| format!("sound frames cannot be read: {error}"))?;
    hold(reading.torn == 0, || "sound frames were taken for torn ones".into())?;
    journal::replay(reading.image)
}

fn put_frame(body: &[u8], file: &mut Vec<u8>) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    file.extend_from_slice(&length);
    file.extend_from_slice(&crc32(&length).to_le_bytes());
    file.extend_from_slice(body);
    file.extend_from_slice(&crc32(body).to_le_bytes());
}

/// The checksum, bit by bit: a second opinion on the one that the journal has a table for.
fn crc32(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}
