//! What an agent tells of itself, and what its journal does behind its back.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;
use tenure_agent::journal::{Image, codec};

use crate::agent::Machine;

/// What the agent says at its socket.
pub fn view_of(machine: &Machine<'_>) -> Result<Value, String> {
    let ask = || {
        let mut stream = UnixStream::connect(machine.file("state.sock"))?;
        write!(stream, "GET /v1/node HTTP/1.0\r\nHost: node\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error: std::io::Error| format!("it does not answer: {error}"))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|_| format!("it answers {answer:?}"))
}

/// What the agent's journal says, read behind its back.
pub fn journal_of(machine: &Machine<'_>) -> Result<Image, String> {
    let bytes = std::fs::read(machine.file("journal")).map_err(|error| format!("the journal: {error}"))?;
    let read = codec::read(&bytes).map_err(|error| format!("the journal: {error}"))?;
    if (read.torn, read.damaged) != (0, 0) {
        return Err(format!("the journal: {} bytes are torn, {} damaged", read.torn, read.damaged));
    }
    Ok(read.image)
}

/// The elements of a list; none if it is no list.
pub fn every(of: &Value) -> Vec<Value> {
    of.as_array().cloned().unwrap_or_default()
}

/// What an agent says is not well with it.
pub fn unwell(view: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if view["ready"] != true || !view["problem"].is_null() || !view["journal"]["problem"].is_null() {
        found.push(format!("it is not well: {view}"));
    }
    if let Some(watch) = every(&view["api"]["watches"]).iter().find(|watch| !watch["problem"].is_null()) {
        found.push(format!("a watch does not work: {watch}"));
    }
    for (what, of) in [("waits", &view["waiting"]), ("the kernel differs", &view["kernel"]["differences"])] {
        found.extend(every(of).iter().map(|it| format!("{what}: {it}")));
    }
    found
}
