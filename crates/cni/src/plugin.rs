//! The whole plugin: environment and standard input in, one call to the agent, result out.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use prost::Message;
use serde_json::json;

use crate::call::{Call, Verb};
use crate::config::NetworkConfig;
use crate::failure::{Code, Failure};
use crate::grpc::{CallError, UnaryCall};
use crate::rpc;
use crate::tombstone;
use crate::version::Version;

/// How long the agent may take. Longer than it lets a pod wait for a block, shorter than a kubelet waits.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the plugin returns to the runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// For standard output; empty if the verb has no result.
    pub stdout: Vec<u8>,
    /// For standard error; empty if there is nothing to report.
    pub stderr: String,
    /// The exit code.
    pub code: u8,
}

/// The variable of the plugin's own environment by which the node's administrator sets the agent's socket. A
/// tenant who writes a network's configuration or a pod's arguments cannot set it.
pub const SOCKET_VARIABLE: &str = "TENURE_SOCKET";

/// The paths that the plugin uses. Only the node's administrator sets them: the plugin runs as root, and
/// whoever could name another socket could make root connect to it and write files beside it.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The agent's socket.
    pub socket: &'a Path,
    /// Where a DEL leaves a tombstone when the agent is down.
    pub tombstones: &'a Path,
}

/// The agent's socket and the directory of its tombstones, as the node's administrator set them.
pub fn places(named: Option<OsString>) -> (PathBuf, PathBuf) {
    match named.filter(|socket| Path::new(socket).is_absolute()).map(PathBuf::from) {
        // An agent's tombstones are beside its socket.
        Some(socket) => {
            let tombstones = socket.with_file_name("tombstones");
            (socket, tombstones)
        }
        None => (rpc::SOCKET.into(), tombstone::DIRECTORY.into()),
    }
}

/// The name that this process was called by.
pub fn own_name() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    Path::new(&called).file_name().and_then(|name| name.to_str()).unwrap_or("tenure").to_owned()
}

/// The whole program: the process's own environment, standard input and output.
pub fn main() -> ExitCode {
    let mut stdin = Vec::new();
    // Without standard input there is no configuration, and that is what the refusal will say. One that does not end is
    // refused for its size.
    let _ = std::io::stdin().lock().take(NetworkConfig::LARGEST as u64 + 1).read_to_end(&mut stdin);
    let (socket, tombstones) = places(std::env::var_os(SOCKET_VARIABLE));
    let places = Places { socket: &socket, tombstones: &tombstones };
    let outcome = run(&own_name(), |name| std::env::var_os(name), stdin, places);
    let _ = std::io::stderr().write_all(outcome.stderr.as_bytes());
    match std::io::stdout().write_all(&outcome.stdout) {
        Ok(()) => ExitCode::from(outcome.code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the plugin under the name `plugin`.
pub fn run<V: Into<OsString>>(
    plugin: &str,
    variable: impl Fn(&str) -> Option<V>,
    stdin: Vec<u8>,
    places: Places<'_>,
) -> Outcome {
    let version = NetworkConfig::version_text(&stdin);
    match answer(plugin, variable, stdin, places) {
        Ok(outcome) => outcome,
        Err(failure) => Outcome {
            stdout: failure.to_json(&version).to_string().into_bytes(),
            stderr: format!("{plugin}: {failure}\n"),
            code: 1,
        },
    }
}

fn answer<V: Into<OsString>>(
    plugin: &str,
    variable: impl Fn(&str) -> Option<V>,
    stdin: Vec<u8>,
    places: Places<'_>,
) -> Result<Outcome, Failure> {
    let call = Call::read(variable, stdin)?;
    let Some(path) = rpc::path(call.verb) else { return Ok(versions(&call.config)) };
    let config = NetworkConfig::parse(&call.config)?;
    check_version(call.verb, config.version)?;
    check_socket(call.verb, &config, places.socket)?;
    let message = rpc::Call::new(&call, plugin);
    let bytes = message.encode_to_vec();
    let request =
        UnaryCall { path, message: &bytes, traceparent: call.traceparent.as_deref(), patience: PATIENCE };
    match request.send(places.socket) {
        Ok(reply) => {
            let reply = rpc::Reply::decode(&*reply).map_err(|error| {
                Failure::new(Code::Internal, format!("the agent's answer cannot be read: {error}")).detail(
                    "plugin and tenured may be of incompatible versions: install both from one release",
                )
            })?;
            match reply.failure {
                Some(failure) => Err(failure.into()),
                None => Ok(Outcome { stdout: reply.result, stderr: String::new(), code: 0 }),
            }
        }
        Err(error) if call.verb == Verb::Del && agent_is_down(&error) => {
            leave_tombstone(&config.name, &message, places.tombstones, &error)
        }
        Err(error) => Err(unreachable(call.verb, places.socket, &error)),
    }
}

/// VERSION: echoes the configuration's own version, whatever it is.
fn versions(config: &[u8]) -> Outcome {
    let supported: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
    let answer = json!({"cniVersion": NetworkConfig::version_text(config), "supportedVersions": supported});
    Outcome { stdout: answer.to_string().into_bytes(), stderr: String::new(), code: 0 }
}

/// CHECK came with 0.4.0, STATUS and GC with 1.1.0.
fn check_version(verb: Verb, version: Version) -> Result<(), Failure> {
    let since = match verb {
        Verb::Check => Version::V0_4_0,
        Verb::Status | Verb::Gc => Version::V1_1_0,
        Verb::Add | Verb::Del | Verb::Version => return Ok(()),
    };
    if version >= since {
        return Ok(());
    }
    let message = format!("{} does not exist in cniVersion {:?}", verb.as_str(), version.as_str());
    Err(Failure::new(Code::IncompatibleVersion, message)
        .detail(format!("accepted is {:?} or newer", since.as_str())))
}

/// A configuration may repeat the agent's socket, but not change it. A DEL goes to the node's own agent
/// whatever the configuration says: nothing was ever added elsewhere, and it must be possible to delete a
/// pod.
fn check_socket(verb: Verb, config: &NetworkConfig, socket: &Path) -> Result<(), Failure> {
    match &config.socket {
        Some(named) if Path::new(named) != socket && verb != Verb::Del => Err(Failure::new(
            Code::InvalidConfig,
            format!("field socket of the network configuration is {named:?}"),
        )
        .detail(format!(
            "accepted is {:?}, or no such field; another one is named by the node's administrator, in the environment variable \
             {SOCKET_VARIABLE} of the container runtime",
            socket.display().to_string()
        ))),
        _ => Ok(()),
    }
}

/// Whether the call cannot have reached a live agent.
fn agent_is_down(error: &CallError) -> bool {
    matches!(error, CallError::Connect { .. } | CallError::Broken { .. })
}

/// A DEL must not fail because the agent is down: the agent performs it at its next start.
fn leave_tombstone(
    network: &str,
    call: &rpc::Call,
    tombstones: &Path,
    error: &CallError,
) -> Result<Outcome, Failure> {
    match tombstone::leave(tombstones, network, call) {
        Ok(path) => Ok(Outcome {
            stdout: Vec::new(),
            stderr: format!(
                "{}: {error}; the agent will perform this DEL at its next start ({})\n",
                call.plugin,
                path.display()
            ),
            code: 0,
        }),
        Err(cause) => Err(Failure::new(
            Code::TryAgainLater,
            format!("the agent is down and a tombstone cannot be left in {}: {cause}", tombstones.display()),
        )
        .detail("start tenured, or make the directory writable")),
    }
}

fn unreachable(verb: Verb, socket: &Path, error: &CallError) -> Failure {
    let code = match (verb, error) {
        (Verb::Status, _) => Code::NotAvailable,
        (_, CallError::Protocol(_)) => Code::Internal,
        _ => Code::TryAgainLater,
    };
    let source = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::new(code, format!("cannot ask tenured for {}: {error}{source}", verb.as_str()))
        .detail(format!("is tenured running on this node, with its socket at {}?", socket.display()))
}

#[cfg(test)]
mod tests;
