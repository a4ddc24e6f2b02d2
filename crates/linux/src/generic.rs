//! Generic netlink: resolves a family by its name, and builds messages to it.

use netlink_packet_core::{NlasIterator, parse_u16};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::netns::{self, NetNs};
use crate::socket::{Error, Kind, Message, Raw, Request, Socket};

// See include/uapi/linux/genetlink.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Length of the header of a generic message.
pub(crate) const HEADER: usize = 4;
/// The flag of nested attributes; newer families require it.
pub(crate) const NESTED: u16 = 0x8000;

/// Opens a generic netlink socket in a namespace.
pub(crate) fn open(namespace: &NetNs) -> Result<Socket<Raw>, netns::Error> {
    namespace.raw_socket(NETLINK_GENERIC)
}

/// The number of the family of this name; `None` if the kernel does not have it. The lookup makes the kernel load its module.
pub(crate) fn family(socket: &mut Socket<Raw>, name: &str) -> Result<Option<u16>, Error> {
    let message = message(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1)
        .with_text(CTRL_ATTR_FAMILY_NAME, name)
        .named(format!("find the generic netlink family {name}"));
    let answer = match socket.get(&Request::get(message)) {
        Err(error) if error.kind() == Kind::Gone => None,
        answer => answer?,
    };
    Ok(answer.and_then(|answer| {
        let attributes = NlasIterator::new(answer.body.get(HEADER..)?).map_while(Result::ok);
        let mut ids = attributes.filter(|attribute| attribute.kind() == CTRL_ATTR_FAMILY_ID);
        ids.find_map(|id| parse_u16(id.value()).ok())
    }))
}

/// A message to a family.
pub(crate) fn message(family: u16, command: u8, version: u8) -> Message {
    Message::new(family, [command, version, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_name_and_another_one_is_not() {
        let mut socket = open(&NetNs::current().unwrap()).unwrap();
        assert_eq!(family(&mut socket, "nlctrl").unwrap(), Some(GENL_ID_CTRL));
        assert_eq!(family(&mut socket, "no-such").unwrap(), None);
    }
}
