//! What anybody says on the agent's socket, in pieces of any size. The first byte is the size of the pieces.
//!
//! However it is cut, it means the same; whatever it is, what is kept of it is bounded; and a call that came in whole is one that
//! there is.

use tenure_cni::rpc;
use tenure_grpc::server::{Connection, Event, MOST_CALLS};

use crate::{Violation, hold};

/// More than a connection keeps beside what it was told.
const ASIDE: usize = 1 << 20;

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let (first, bytes) = input.split_first().unwrap_or((&0, &[]));
    let size = usize::from(*first) + 1;
    let heard = |size: usize| {
        let mut connection = Connection::new(&rpc::METHODS);
        bytes.chunks(size).for_each(|piece| connection.receive(piece));
        let events: Vec<Event> = std::iter::from_fn(|| connection.event()).collect();
        (events, connection.outgoing().to_vec())
    };
    let (whole, pieces) = (heard(bytes.len().max(1)), heard(size));
    hold(whole == pieces, || format!("in one piece {whole:?}, in pieces of {size} {pieces:?}"))?;
    converse(bytes, size)
}

/// Answers every other call with what it said, and reads slowly.
fn converse(bytes: &[u8], size: usize) -> Result<(), Violation> {
    let mut connection = Connection::new(&rpc::METHODS);
    let mut under_way = Vec::new();
    for (number, piece) in bytes.chunks(size).enumerate() {
        while !connection.wants_input() && !connection.outgoing().is_empty() {
            connection.wrote(connection.outgoing().len());
        }
        connection.receive(piece);
        while let Some(event) = connection.event() {
            match event {
                Event::Call(call) => {
                    hold(rpc::verb(call.path).is_some(), || format!("a call of {}", call.path))?;
                    under_way.push(call);
                }
                Event::Cancelled(stream) => {
                    let before = under_way.len();
                    under_way.retain(|call| call.stream != stream);
                    hold(under_way.len() + 1 == before, || format!("no call on {stream} was cancelled"))?;
                }
            }
        }
        hold(under_way.len() <= MOST_CALLS, || format!("{} calls at once", under_way.len()))?;
        if number % 2 == 0
            && let Some(call) = under_way.pop()
        {
            connection.answer(call.stream, Ok(call.message().to_vec()));
        }
        let kept = connection.kept();
        hold(kept <= ASIDE + 2 * bytes.len(), || format!("{kept} bytes are kept of {}", bytes.len()))?;
        connection.wrote(connection.outgoing().len().min(size));
    }
    connection.shut_down();
    for call in under_way {
        connection.answer(call.stream, Ok(Vec::new()));
    }
    Ok(())
}
