//! As much of HPACK (RFC 7541) as one call needs: literals without index out, and of what comes in the three
//! fields that a gRPC call looks at. The dynamic table is switched off by our settings.

use super::huffman;

/// What of the response's headers and trailers matters.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) http_status: Option<u16>,
    pub(super) grpc_status: Option<u32>,
    pub(super) grpc_message: String,
}

/// `:method POST`, `:scheme http`, `:path`, `:authority localhost`.
pub(super) fn request_line(path: &str) -> Vec<u8> {
    const METHOD_POST: u8 = 0x80 | 3;
    const SCHEME_HTTP: u8 = 0x80 | 6;
    const PATH_NAME: u8 = 4;
    const AUTHORITY_NAME: u8 = 1;
    let mut block = vec![METHOD_POST, SCHEME_HTTP, PATH_NAME];
    string(&mut block, path);
    block.push(AUTHORITY_NAME);
    string(&mut block, "localhost");
    block
}

/// A field that is not to be indexed.
pub(super) fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    string(block, name);
    string(block, value);
}

fn string(block: &mut Vec<u8>, text: &str) {
    integer(block, text.len());
    block.extend_from_slice(text.as_bytes());
}

/// A length with a prefix of seven bits and no flag (section 5.1).
fn integer(block: &mut Vec<u8>, value: usize) {
    if value < 0x7f {
        block.push(u8::try_from(value).unwrap_or(0x7f));
        return;
    }
    block.push(0x7f);
    let mut rest = value - 0x7f;
    while rest >= 0x80 {
        block.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    block.push(u8::try_from(rest).unwrap_or(0));
}

impl Head {
    /// Takes what matters out of a header block.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<(), String> {
        let mut reader = Reader { bytes: block };
        while let Some(first) = reader.bytes.first().copied() {
            if first & 0x80 != 0 {
                let index = reader.integer(7)?;
                self.indexed(index)?;
            } else if first & 0xe0 == 0x20 {
                reader.integer(5)?; // the size of the dynamic table, which is zero
            } else {
                // With indexing (6 bits of name index), without, or never (4 bits): the same to a reader without a table.
                let index = reader.integer(if first & 0x40 != 0 { 6 } else { 4 })?;
                let name =
                    if index == 0 { reader.string()? } else { static_name(index)?.as_bytes().to_vec() };
                let value = reader.string()?;
                self.field(&name, &value);
            }
        }
        Ok(())
    }

    /// A field of the static table with its value: only `:status` matters.
    fn indexed(&mut self, index: usize) -> Result<(), String> {
        const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        static_name(index)?;
        if let Some(status) = index.checked_sub(8).and_then(|place| STATUSES.get(place)) {
            self.http_status = Some(*status);
        }
        Ok(())
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = String::from_utf8_lossy(value);
        match name {
            b":status" => self.http_status = text.parse().ok(),
            b"grpc-status" => self.grpc_status = text.parse().ok(),
            b"grpc-message" => self.grpc_message = percent_decoded(value),
            _ => {}
        }
    }
}

/// The name at an index of the static table, as far as a gRPC call has to tell it from others.
fn static_name(index: usize) -> Result<&'static str, String> {
    match index {
        8..=14 => Ok(":status"),
        1..=61 => Ok("another"),
        _ => Err(format!("it used entry {index} of a header table that was switched off")),
    }
}

/// `grpc-message` is percent-encoded.
fn percent_decoded(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%');
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.bytes.split_first().ok_or("a header block ends too early")?;
        self.bytes = rest;
        Ok(*first)
    }

    fn integer(&mut self, prefix: u32) -> Result<usize, String> {
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        for shift in (0..28).step_by(7) {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number in a header block is too large".into())
    }

    fn string(&mut self) -> Result<Vec<u8>, String> {
        let coded = self.bytes.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (text, rest) = self.bytes.split_at_checked(length).ok_or("a header block ends too early")?;
        self.bytes = rest;
        if coded {
            huffman::decode(text).ok_or("a header is not Huffman-coded as it says".into())
        } else {
            Ok(text.to_vec())
        }
    }
}
