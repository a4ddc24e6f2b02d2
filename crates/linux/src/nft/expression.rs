//! The expressions of a rule.

use super::{NESTED, NFT_OBJECT_COUNTER};
use crate::socket::Message;

// See include/uapi/linux/netfilter/nf_tables.h.
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;
const NFT_META_MARK: u32 = 3;
const NFT_META_IIF: u32 = 4;
const NFT_META_OIF: u32 = 5;
const NFT_META_IIFTYPE: u32 = 8;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_DIRECTION: u32 = 1;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFTA_BITWISE_SREG: u16 = 1;
const NFTA_BITWISE_DREG: u16 = 2;
const NFTA_BITWISE_LEN: u16 = 3;
const NFTA_BITWISE_MASK: u16 = 4;
const NFTA_BITWISE_XOR: u16 = 5;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_OBJREF_IMM_TYPE: u16 = 1;
const NFTA_OBJREF_IMM_NAME: u16 = 2;
/// The register of verdicts.
const VERDICT: u32 = 0;

/// A register of four bytes. Longer values continue in the next ones.
pub(crate) const FIRST: u32 = 8;
/// The one after it.
pub(crate) const SECOND: u32 = 9;

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Verdict {
    Drop = 0,
    Accept = 1,
}

/// One step of a rule. Loads fill a register; a comparison that does not match ends the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expression<'a> {
    /// Loads the index of the input interface.
    InputInterface(u32),
    /// Loads the index of the output interface.
    OutputInterface(u32),
    /// Loads two bytes: the type of the input interface (`ARPHRD_…`).
    InputKind(u32),
    /// Loads the packet's mark.
    Marked(u32),
    /// Loads one byte: the packet's family.
    Family(u32),
    /// Loads one byte: the transport protocol.
    Protocol(u32),
    /// Loads two bytes, in network order: the destination port.
    Port(u32),
    /// Loads the state of its connection, one bit each.
    ConnectionState(u32),
    /// Loads one byte: the direction of its connection, 1 for replies.
    ConnectionDirection(u32),
    /// Loads a part of its IP header: register, offset and length.
    Header(u32, u32, u32),
    /// Masks a register with these bits.
    Mask(u32, [u8; 4]),
    /// Continues if a register has this value.
    Is(u32, &'a [u8]),
    /// Continues if a register has another value.
    IsNot(u32, &'a [u8]),
    /// Continues if the key that begins in a register is in the set.
    In(u32, &'a str),
    /// Writes a number into a register.
    Value(u32, u32),
    /// Sets the packet's mark to a register's value.
    Mark(u32),
    /// Counts the packet.
    Count(&'a str),
    /// Masquerades: replaces the source by the address of the output interface.
    Masquerade,
    /// Ends with a verdict.
    Verdict(Verdict),
}

impl Expression<'_> {
    pub(super) fn write(&self, message: Message) -> Message {
        let part = |message: Message, name, data: &dyn Fn(Message) -> Message| {
            message.with_text(NFTA_EXPR_NAME, name).with_nested(NFTA_EXPR_DATA | NESTED, &[], data)
        };
        let value = |message: Message, kind: u16, value: &[u8]| {
            message.with_nested(kind | NESTED, &[], |it| it.with(NFTA_DATA_VALUE, value))
        };
        let meta = |message, register, key| {
            part(message, "meta", &|it| it.with_big(NFTA_META_KEY, key).with_big(NFTA_META_DREG, register))
        };
        let connection = |message, register, key| {
            part(message, "ct", &|it| it.with_big(NFTA_CT_KEY, key).with_big(NFTA_CT_DREG, register))
        };
        let payload = |message, base, register, offset, length| {
            part(message, "payload", &|it| {
                it.with_big(NFTA_PAYLOAD_DREG, register)
                    .with_big(NFTA_PAYLOAD_BASE, base)
                    .with_big(NFTA_PAYLOAD_OFFSET, offset)
                    .with_big(NFTA_PAYLOAD_LEN, length)
            })
        };
        let compare = |message, register, operation, with: &[u8]| {
            part(message, "cmp", &|it| {
                let it = it.with_big(NFTA_CMP_SREG, register).with_big(NFTA_CMP_OP, operation);
                value(it, NFTA_CMP_DATA, with)
            })
        };
        match *self {
            Self::InputInterface(register) => meta(message, register, NFT_META_IIF),
            Self::OutputInterface(register) => meta(message, register, NFT_META_OIF),
            Self::InputKind(register) => meta(message, register, NFT_META_IIFTYPE),
            Self::Marked(register) => meta(message, register, NFT_META_MARK),
            Self::Family(register) => meta(message, register, NFT_META_NFPROTO),
            Self::Protocol(register) => meta(message, register, NFT_META_L4PROTO),
            Self::ConnectionState(register) => connection(message, register, NFT_CT_STATE),
            Self::ConnectionDirection(register) => connection(message, register, NFT_CT_DIRECTION),
            Self::Header(register, offset, length) => {
                payload(message, NFT_PAYLOAD_NETWORK_HEADER, register, offset, length)
            }
            Self::Port(register) => payload(message, NFT_PAYLOAD_TRANSPORT_HEADER, register, 2, 2),
            Self::Mask(register, mask) => part(message, "bitwise", &|it| {
                let it = it
                    .with_big(NFTA_BITWISE_SREG, register)
                    .with_big(NFTA_BITWISE_DREG, register)
                    .with_big(NFTA_BITWISE_LEN, 4);
                value(value(it, NFTA_BITWISE_MASK, &mask), NFTA_BITWISE_XOR, &[0; 4])
            }),
            Self::Is(register, with) => compare(message, register, NFT_CMP_EQ, with),
            Self::IsNot(register, with) => compare(message, register, NFT_CMP_NEQ, with),
            Self::In(register, set) => part(message, "lookup", &|it| {
                it.with_text(NFTA_LOOKUP_SET, set).with_big(NFTA_LOOKUP_SREG, register)
            }),
            Self::Value(register, number) => part(message, "immediate", &|it| {
                let it = it.with_big(NFTA_IMMEDIATE_DREG, register);
                value(it, NFTA_IMMEDIATE_DATA, &number.to_ne_bytes())
            }),
            Self::Mark(register) => part(message, "meta", &|it| {
                it.with_big(NFTA_META_KEY, NFT_META_MARK).with_big(NFTA_META_SREG, register)
            }),
            Self::Count(name) => part(message, "objref", &|it| {
                it.with_big(NFTA_OBJREF_IMM_TYPE, NFT_OBJECT_COUNTER).with_text(NFTA_OBJREF_IMM_NAME, name)
            }),
            Self::Masquerade => part(message, "masq", &|it| it),
            Self::Verdict(verdict) => part(message, "immediate", &|it| {
                it.with_big(NFTA_IMMEDIATE_DREG, VERDICT).with_nested(
                    NFTA_IMMEDIATE_DATA | NESTED,
                    &[],
                    |data| {
                        data.with_nested(NFTA_DATA_VERDICT | NESTED, &[], |it| {
                            it.with_big(NFTA_VERDICT_CODE, verdict as u32)
                        })
                    },
                )
            }),
        }
    }
}
