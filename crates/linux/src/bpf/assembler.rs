//! Instructions by name, and jumps to labels (RFC 9669).

/// A register. `R0` holds results, `R1` to `R5` hold arguments that a call destroys, `R6` to `R9` keep their values, and `R10`
/// is the end of the stack of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

/// An arithmetic operation, all with 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// When a jump is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    Equal = 0x10,
    NotEqual = 0x50,
}

/// A helper function of the kernel; the numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Helper {
    StoreBytes = 9,
    Redirect = 23,
    LoadBytes = 26,
    HashOfFlow = 34,
    AdjustRoom = 50,
    MarkCongestion = 97,
    RedirectToNeighbour = 152,
}

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<[u8; 8]>,
    /// The position of each label, once known.
    labels: Vec<Option<usize>>,
    /// Jumps and their labels.
    jumps: Vec<(usize, Label)>,
}

// Classes of instructions.
const LOAD: u8 = 0x61;
const STORE_IMMEDIATE: u8 = 0x62;
const STORE: u8 = 0x63;
const COMPUTE: u8 = 0x07;
const SWAP: u8 = 0xdc;
const JUMP: u8 = 0x05;
/// The same on the lower 32 bits only.
const JUMP_32: u8 = 0x06;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The second operand is a register, not a number.
const FROM_REGISTER: u8 = 0x08;

impl Assembler {
    /// A label that is placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(crate) fn mark(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// `to = value`, sign-extended.
    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.put(COMPUTE | Operation::Move as u8, to as u8, 0, 0, value);
    }

    /// `to = from`.
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.compute(Operation::Move, to, from);
    }

    /// `to = to OPERATION from`.
    pub(crate) fn compute(&mut self, operation: Operation, to: Register, from: Register) {
        self.put(COMPUTE | FROM_REGISTER | operation as u8, to as u8, from as u8, 0, 0);
    }

    /// `to = to OPERATION value`.
    pub(crate) fn compute_with(&mut self, operation: Operation, to: Register, value: i32) {
        self.put(COMPUTE | operation as u8, to as u8, 0, 0, value);
    }

    /// Converts the lowest 16 bits of a register to network order, and clears the others.
    pub(crate) fn order_for_network(&mut self, register: Register) {
        self.put(SWAP, register as u8, 0, 0, 16);
    }

    /// `to = *(from + offset)`, zero-extended.
    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.put(LOAD | width as u8, to as u8, from as u8, offset, 0);
    }

    /// `*(to + offset) = from`.
    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.put(STORE | width as u8, to as u8, from as u8, offset, 0);
    }

    /// `*(to + offset) = value`.
    pub(crate) fn store_value(&mut self, width: Width, to: Register, offset: i16, value: i32) {
        self.put(STORE_IMMEDIATE | width as u8, to as u8, 0, offset, value);
    }

    /// Jumps to `label`.
    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(JUMP, 0, 0, 0, 0);
    }

    /// Jumps to `label` if `left CONDITION value`; only the lower 32 bits count.
    pub(crate) fn jump_if(&mut self, left: Register, condition: Condition, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        // With 32 bits: otherwise the number is sign-extended, and an address may have its highest bit set.
        self.put(JUMP_32 | condition as u8, left as u8, 0, 0, value);
    }

    /// Jumps to `label` if `left CONDITION right`, with all 64 bits.
    pub(crate) fn jump_if_register(
        &mut self,
        left: Register,
        condition: Condition,
        right: Register,
        label: Label,
    ) {
        self.jumps.push((self.code.len(), label));
        self.put(JUMP | FROM_REGISTER | condition as u8, left as u8, right as u8, 0, 0);
    }

    /// Calls a helper function.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.put(CALL, 0, 0, 0, helper as i32);
    }

    /// Returns `result`.
    pub(crate) fn exit_with(&mut self, result: i32) {
        self.set(Register::R0, result);
        self.exit();
    }

    /// Returns the value in `R0`.
    pub(crate) fn exit(&mut self) {
        self.put(EXIT, 0, 0, 0, 0);
    }

    /// The program's code.
    ///
    /// A jump to a label that was never placed goes to itself, which the verifier refuses.
    pub(crate) fn finish(mut self) -> Vec<[u8; 8]> {
        for (from, label) in &self.jumps {
            let to = self.labels.get(label.0).copied().flatten().unwrap_or(*from);
            let distance = i16::try_from(to.cast_signed() - from.cast_signed() - 1).unwrap_or(-1);
            if let Some([_, _, low, high, ..]) = self.code.get_mut(*from) {
                [*low, *high] = distance.to_ne_bytes();
            }
        }
        self.code
    }

    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
        self.code.push([code, registers, o0, o1, v0, v1, v2, v3]);
    }
}
