//! nftables over netlink: tables, chains, rules, sets and counters, in transactions.
//!
//! A transaction is one `sendmsg`: all of it is applied, or nothing. A table has one owner, which replaces it as a whole.

mod expression;

use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::sys::socket::{setsockopt, sockopt};

use crate::link::Traffic;
use crate::netns::{self, NetNs};
use crate::socket::{Error, Message, Raw, Request, Socket};

pub(crate) use self::expression::{Expression, FIRST, SECOND, Verdict};

// See include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYSTEM: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_NEWSET: u16 = 9;
const NFT_MSG_NEWSETELEM: u16 = 12;
const NFT_MSG_DELSETELEM: u16 = 14;
const NFT_MSG_NEWOBJ: u16 = 18;
const NFT_MSG_GETOBJ: u16 = 19;
/// Both IPv4 and IPv6.
const NFPROTO_INET: u8 = 1;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;
const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;
const NFT_OBJECT_COUNTER: u32 = 1;
/// Without the flag bits of an attribute type.
const KIND: u16 = 0x3fff;
/// The flag of nested attributes.
const NESTED: u16 = 0x8000;
/// Length of the header of a netfilter message.
const HEADER: usize = 4;
/// Elements per message: each takes up to 40 bytes of an attribute, which can have 64 KiB.
const MOST_ELEMENTS: usize = 1024;
/// Room for one transaction: tens of thousands of elements.
const SEND_BUFFER: usize = 8 * 1024 * 1024;

/// A base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Its name.
    pub(crate) name: &'static str,
    /// `filter`, `nat` or `route`.
    pub(crate) kind: &'static str,
    /// Its hook.
    pub(crate) hook: Hook,
    /// Its priority among chains of the same hook.
    pub(crate) priority: i32,
    /// Its policy for packets that no rule decides.
    pub(crate) policy: Verdict,
}

/// A hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

/// Changes that are applied together.
#[derive(Debug)]
pub(crate) struct Transaction {
    table: &'static str,
    requests: Vec<Request>,
    sets: u32,
}

/// Opens a netfilter socket in a namespace.
pub(crate) fn open(namespace: &NetNs) -> Result<Socket<Raw>, netns::Error> {
    let socket = namespace.raw_socket(NETLINK_NETFILTER)?;
    // A transaction is one message. A process that may change nftables may also exceed the common buffer limit.
    let _ = setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER);
    Ok(socket)
}

/// Whether this table exists.
pub(crate) fn has_table(socket: &mut Socket<Raw>, table: &str) -> Result<bool, Error> {
    let message = message(NFT_MSG_GETTABLE)
        .with_text(NFTA_TABLE_NAME, table)
        .named(format!("look for the nftables table {table}"));
    Ok(socket.get(&Request::get(message))?.is_some())
}

/// The values of a table's counters.
pub(crate) fn counters(socket: &mut Socket<Raw>, table: &str) -> Result<Vec<(String, Traffic)>, Error> {
    let message = message(NFT_MSG_GETOBJ)
        .with_text(NFTA_OBJ_TABLE, table)
        .with_big(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER)
        .named(format!("read the counters of the nftables table {table}"));
    let found = socket.list(&Request::list(message))?;
    Ok(found.iter().filter_map(|answer| read_counter(&answer.body, table)).collect())
}

impl Transaction {
    /// A transaction on this table.
    pub(crate) fn on(table: &'static str) -> Self {
        Self { table, requests: vec![frame(NFNL_MSG_BATCH_BEGIN)], sets: 0 }
    }

    /// Creates the table, or empties the existing one.
    pub(crate) fn afresh(table: &'static str) -> Self {
        let mut transaction = Self::on(table);
        transaction.put(Request::create_or_change, NFT_MSG_NEWTABLE, "make", |it| it);
        transaction.remove();
        transaction.put(Request::create_or_change, NFT_MSG_NEWTABLE, "make", |it| it);
        transaction
    }

    /// Removes the table.
    pub(crate) fn remove(&mut self) {
        self.put(Request::remove, NFT_MSG_DELTABLE, "remove", |it| it);
    }

    fn put(
        &mut self,
        how: fn(Message) -> Request,
        kind: u16,
        act: &str,
        rest: impl FnOnce(Message) -> Message,
    ) {
        // The table's name is also the first attribute of messages about chains, rules and sets.
        let message = rest(message(kind).with_text(NFTA_TABLE_NAME, self.table));
        self.requests.push(how(message.named(format!("{act} the nftables table {}", self.table))));
    }

    /// Adds a chain.
    pub(crate) fn chain(&mut self, chain: Chain) {
        debug_assert_eq!(NFTA_CHAIN_TABLE, NFTA_TABLE_NAME);
        self.put(Request::create_or_change, NFT_MSG_NEWCHAIN, "add a chain to", |message| {
            message
                .with_text(NFTA_CHAIN_NAME, chain.name)
                .with_nested(NFTA_CHAIN_HOOK | NESTED, &[], |hook| {
                    hook.with_big(NFTA_HOOK_HOOKNUM, chain.hook as u32)
                        .with_big(NFTA_HOOK_PRIORITY, chain.priority.cast_unsigned())
                })
                .with_big(NFTA_CHAIN_POLICY, chain.policy as u32)
                .with_text(NFTA_CHAIN_TYPE, chain.kind)
        });
    }

    /// Appends a rule to a chain. Its expressions run in order, as long as they match.
    pub(crate) fn rule(&mut self, chain: &'static str, expressions: &[Expression<'_>]) {
        debug_assert_eq!(NFTA_RULE_TABLE, NFTA_TABLE_NAME);
        self.put(Request::append, NFT_MSG_NEWRULE, "add a rule to", |message| {
            message.with_text(NFTA_RULE_CHAIN, chain).with_nested(
                NFTA_RULE_EXPRESSIONS | NESTED,
                &[],
                |list| {
                    expressions.iter().fold(list, |list, expression| {
                        list.with_nested(NFTA_LIST_ELEM | NESTED, &[], |element| expression.write(element))
                    })
                },
            )
        });
    }

    /// Adds a counter for rules.
    pub(crate) fn counter(&mut self, name: &str) {
        debug_assert_eq!(NFTA_OBJ_TABLE, NFTA_TABLE_NAME);
        self.put(Request::create_or_change, NFT_MSG_NEWOBJ, "add a counter to", |message| {
            message.with_text(NFTA_OBJ_NAME, name).with_big(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER).with_nested(
                NFTA_OBJ_DATA | NESTED,
                &[],
                |data| data,
            )
        });
    }

    /// Adds a set of keys of this many bytes. `kind` tells `nft` how to print them.
    pub(crate) fn set(&mut self, name: &str, kind: u32, key_length: u32) {
        debug_assert_eq!(NFTA_SET_TABLE, NFTA_TABLE_NAME);
        self.sets += 1;
        let id = self.sets;
        self.put(Request::create_or_change, NFT_MSG_NEWSET, "add a set to", |message| {
            message
                .with_text(NFTA_SET_NAME, name)
                .with_big(NFTA_SET_FLAGS, 0)
                .with_big(NFTA_SET_KEY_TYPE, kind)
                .with_big(NFTA_SET_KEY_LEN, key_length)
                .with_big(NFTA_SET_ID, id)
        });
    }

    /// Adds elements to a set.
    pub(crate) fn add_elements(&mut self, set: &str, keys: &[Vec<u8>]) {
        self.elements(Request::create_or_change, NFT_MSG_NEWSETELEM, "add elements to a set of", set, keys);
    }

    /// Removes elements from a set.
    pub(crate) fn remove_elements(&mut self, set: &str, keys: &[Vec<u8>]) {
        self.elements(Request::remove, NFT_MSG_DELSETELEM, "remove elements from a set of", set, keys);
    }

    fn elements(&mut self, how: fn(Message) -> Request, kind: u16, act: &str, set: &str, keys: &[Vec<u8>]) {
        debug_assert_eq!(NFTA_SET_ELEM_LIST_TABLE, NFTA_TABLE_NAME);
        for keys in keys.chunks(MOST_ELEMENTS) {
            self.put(how, kind, act, |message| {
                message.with_text(NFTA_SET_ELEM_LIST_SET, set).with_nested(
                    NFTA_SET_ELEM_LIST_ELEMENTS | NESTED,
                    &[],
                    |list| {
                        keys.iter().fold(list, |list, key| {
                            list.with_nested(NFTA_LIST_ELEM | NESTED, &[], |element| {
                                element.with_nested(NFTA_SET_ELEM_KEY | NESTED, &[], |data| {
                                    data.with(NFTA_DATA_VALUE, key)
                                })
                            })
                        })
                    },
                )
            });
        }
    }

    /// Commits: applies all of it, or nothing.
    pub(crate) fn commit(mut self, socket: &mut Socket<Raw>) -> Result<(), Error> {
        self.requests.push(frame(NFNL_MSG_BATCH_END));
        socket.apply_at_once(&self.requests)
    }
}

fn frame(kind: u16) -> Request {
    let [s0, s1] = SUBSYSTEM.to_be_bytes();
    Request::frame(Message::new(kind, [0, 0, s0, s1]).named("begin and end a transaction of nftables"))
}

fn message(kind: u16) -> Message {
    Message::new(SUBSYSTEM << 8 | kind, [NFPROTO_INET, 0, 0, 0])
}

fn read_counter(body: &[u8], table: &str) -> Option<(String, Traffic)> {
    let text = |value: &[u8]| {
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        String::from_utf8_lossy(&value[..end]).into_owned()
    };
    let (mut owner, mut name, mut counted) = (None, None, Traffic::default());
    for attribute in NlasIterator::new(body.get(HEADER..)?).map_while(Result::ok) {
        match attribute.kind() & KIND {
            NFTA_OBJ_TABLE => owner = Some(text(attribute.value())),
            NFTA_OBJ_NAME => name = Some(text(attribute.value())),
            NFTA_OBJ_DATA => {
                for number in NlasIterator::new(attribute.value()).map_while(Result::ok) {
                    let value = u64::from_be_bytes(number.value().try_into().ok()?);
                    match number.kind() & KIND {
                        NFTA_COUNTER_BYTES => counted.bytes = value,
                        NFTA_COUNTER_PACKETS => counted.packets = value,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (owner? == table).then_some((name?, counted))
}
