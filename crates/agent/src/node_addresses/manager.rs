//! NetworkManager, by the helper program: it knows nmstate's whole schema and D-Bus, and runs only while something changes.
//!
//! The helper applies a state with an open checkpoint, which NetworkManager takes back by itself after a time unless the
//! change is confirmed. So whatever happens to agent and helper, a change that cuts the node off does not last.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::kernel::failure;
use super::machine::{Again, Failure};

/// How long it may take to say who manages an interface.
const QUESTION: Duration = Duration::from_secs(10);
/// How long a change may take beyond the time that NetworkManager gives it.
const GRACE: Duration = Duration::from_secs(30);

/// The way to NetworkManager.
#[derive(Clone, Debug)]
pub(super) struct Manager {
    /// The helper program.
    pub(super) program: PathBuf,
    /// The socket of the system's D-Bus.
    pub(super) bus: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    network_manager: Running,
    #[serde(default)]
    interfaces: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Running {
    running: bool,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    supported: bool,
    #[serde(default)]
    reason: Option<String>,
}

/// What NetworkManager takes away.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Interfaces and addresses.
    pub(super) addresses: Vec<(String, IpNet)>,
    /// As under `routes.config` of a desired state.
    pub(super) routes: Vec<Value>,
}

impl Gone {
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty()
    }

    fn order(&self) -> Value {
        let address = |(interface, address): &(String, IpNet)| json!({"interface": interface, "address": address.to_string()});
        let addresses: Vec<Value> = self.addresses.iter().map(address).collect();
        json!({"addresses": addresses, "routes": self.routes})
    }
}

impl Manager {
    /// Whether NetworkManager manages these interfaces: all of them or none. Each comes with whether it could make one that is
    /// not there. `had` says that the policy is in its profiles, so that nobody else may take over.
    pub(super) async fn manages(&self, interfaces: &[(String, bool)], had: bool) -> Result<bool, Failure> {
        if !self.bus.exists() {
            let why = || format!("the socket of D-Bus, {}, is missing", self.bus.display());
            return if had { Err(taken_over(&why())) } else { Ok(false) };
        }
        let names = interfaces.iter().map(|(name, _)| name.as_str());
        let asked = self.command().arg("managed").args(names).stdin(Stdio::null()).output();
        let output = match timeout(QUESTION, asked).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = format!(
                    "this node has D-Bus, and whether NetworkManager manages its interfaces cannot be asked: {} is missing",
                    self.program.display()
                );
                return Err(failure(message, Again::Later));
            }
            Ok(Err(error)) => return Err(self.failed(&error.to_string())),
            Err(_) => return Err(self.failed(&format!("no answer in {} s", QUESTION.as_secs()))),
        };
        let answer: Answer = serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            self.failed(&format!("it cannot be read ({error}): {}", said.trim()))
        })?;
        decide(&answer, interfaces, had)
    }

    /// Applies a state, and takes away what was there before; to be confirmed within this time.
    pub(super) async fn apply(
        &self,
        state: &Value,
        gone: &Gone,
        within: Duration,
    ) -> Result<Applying, Failure> {
        if gone.is_empty() {
            return self.change("apply", state, within).await;
        }
        self.change("replace", &json!({"state": state, "remove": gone.order()}), within).await
    }

    /// Takes addresses and routes away, and leaves the rest as NetworkManager has it; to be confirmed within this time.
    pub(super) async fn remove(&self, gone: &Gone, within: Duration) -> Result<Applying, Failure> {
        self.change("remove", &gone.order(), within).await
    }

    async fn change(&self, verb: &str, order: &Value, within: Duration) -> Result<Applying, Failure> {
        let mut child = self
            .command()
            .arg(verb)
            .arg("--timeout")
            .arg(within.as_secs().to_string())
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| self.failed(&error.to_string()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(self.failed("it has no pipes"));
        };
        let mut applying = Applying { child, input, lines: BufReader::new(output).lines() };
        applying.tell(&order.to_string()).await?;
        applying.expect("applied", within + GRACE).await?;
        Ok(applying)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", self.bus.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    fn failed(&self, problem: &str) -> Failure {
        failure(format!("cannot ask {}: {problem}", self.program.display()), Again::Later)
    }
}

fn taken_over(why: &str) -> Failure {
    let message =
        format!("the policy is in NetworkManager's profiles, so that only it can change this: {why}");
    failure(message, Again::Later)
}

fn decide(answer: &Answer, interfaces: &[(String, bool)], had: bool) -> Result<bool, Failure> {
    let manager = &answer.network_manager;
    if !manager.running {
        let why = manager.reason.as_deref().unwrap_or("it does not run");
        return if had { Err(taken_over(why)) } else { Ok(false) };
    }
    let state = |name: &str| answer.interfaces.get(name).map_or("absent", String::as_str);
    if let Some((name, _)) = interfaces.iter().find(|(name, _)| state(name) == "unknown") {
        let message = format!("NetworkManager does not say whether it manages interface {name:?}");
        return Err(failure(message, Again::Later));
    }
    let (managed, others): (Vec<_>, Vec<_>) = interfaces
        .iter()
        .filter(|(name, _)| state(name) != "absent")
        .partition(|(name, _)| state(name) == "managed");
    let made = interfaces.iter().any(|(name, makes)| state(name) == "absent" && *makes);
    if let (Some((managed, _)), Some((other, _))) = (managed.first(), others.first()) {
        let message = format!(
            "NetworkManager manages interface {managed:?} and not {other:?}; accepted is a policy for each of them"
        );
        return Err(failure(message, Again::Later));
    }
    let by_manager = !managed.is_empty() || (made && others.is_empty());
    if let Some((other, _)) = others.first().filter(|_| had) {
        return Err(taken_over(&format!("it does not manage interface {other:?}")));
    }
    if by_manager && !manager.supported {
        let version = manager.version.as_deref().unwrap_or("of an unknown version");
        let reason = manager.reason.as_deref().unwrap_or("it is too old");
        return Err(failure(format!("NetworkManager {version} cannot be used: {reason}"), Again::Later));
    }
    Ok(by_manager)
}

/// A change that NetworkManager takes back unless it is confirmed.
#[derive(Debug)]
pub(super) struct Applying {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Applying {
    /// Makes the change last.
    pub(super) async fn commit(self) -> Result<(), Failure> {
        self.end("commit", "committed").await
    }

    /// Takes the change back.
    pub(super) async fn roll_back(self) -> Result<(), Failure> {
        self.end("rollback", "rolledBack").await
    }

    async fn end(mut self, verb: &str, word: &str) -> Result<(), Failure> {
        self.tell(verb).await?;
        self.expect(word, GRACE).await?;
        drop(timeout(GRACE, self.child.wait()).await);
        Ok(())
    }

    async fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let told = async {
            self.input.write_all(line.as_bytes()).await?;
            self.input.write_all(b"\n").await?;
            self.input.flush().await
        };
        told.await.map_err(|error| {
            failure(format!("cannot tell the helper of NetworkManager: {error}"), Again::Later)
        })
    }

    async fn expect(&mut self, word: &str, patience: Duration) -> Result<(), Failure> {
        let line = match timeout(patience, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => String::new(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer in {} s", patience.as_secs()),
        };
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| json!({"error": {"message": line}}));
        if said[word] == json!(true) {
            return Ok(());
        }
        let message = said["error"]["message"].as_str().unwrap_or(&line);
        let message = if message.is_empty() { "the helper ended without an answer" } else { message };
        // What somebody may do about the host is noticed by trying again.
        let of_host = matches!(said["error"]["reason"].as_str(), Some("unmanaged" | "networkManagerTooOld"));
        let hopeless = said["error"]["retry"] == json!(false) && !of_host;
        let again = if hopeless { Again::Never } else { Again::Later };
        Err(failure(format!("NetworkManager did not take the change: {message}"), again))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(manager: &Value, interfaces: &Value) -> Result<bool, String> {
        decided_after(manager, interfaces, false)
    }

    fn decided_after(manager: &Value, interfaces: &Value, had: bool) -> Result<bool, String> {
        let answer = json!({"networkManager": manager, "interfaces": interfaces});
        let answer: Answer = serde_json::from_value(answer).unwrap();
        let asked = [("eth1".to_owned(), false), ("eth2".to_owned(), true)];
        decide(&answer, &asked, had).map_err(|failure| failure.message)
    }

    #[test]
    fn all_interfaces_are_managed_or_none() {
        let good = json!({"running": true, "version": "1.42.4", "supported": true});
        assert_eq!(decided(&json!({"running": false, "reason": "no"}), &json!({})), Ok(false));
        assert_eq!(decided(&good, &json!({"eth1": "managed", "eth2": "managed"})), Ok(true));
        assert_eq!(decided(&good, &json!({"eth1": "unmanaged", "eth2": "unmanaged"})), Ok(false));
        assert_eq!(decided(&good, &json!({"eth1": "managed", "eth2": "absent"})), Ok(true));
        assert_eq!(
            decided(&good, &json!({"eth1": "absent", "eth2": "absent"})),
            Ok(true),
            "eth2 can be made"
        );
        let mixed = decided(&good, &json!({"eth1": "managed", "eth2": "unmanaged"})).unwrap_err();
        assert!(mixed.contains("\"eth1\" and not \"eth2\""), "{mixed}");
        let old = json!({"running": true, "version": "1.0", "supported": false});
        let old = decided(&old, &json!({"eth1": "managed"})).unwrap_err();
        assert!(old.contains("NetworkManager 1.0 cannot be used"), "{old}");
    }

    #[test]
    fn what_is_in_profiles_is_nobody_elses() {
        let good = json!({"running": true, "version": "1.42.4", "supported": true});
        let both = json!({"eth1": "managed", "eth2": "managed"});
        assert_eq!(decided_after(&good, &both, true), Ok(true));
        let stopped = json!({"running": false, "reason": "it sleeps"});
        for (manager, interfaces, why) in [
            (stopped, json!({}), "it sleeps"),
            (good, json!({"eth1": "unmanaged", "eth2": "absent"}), "does not manage interface \"eth1\""),
        ] {
            let refused = decided_after(&manager, &interfaces, true).unwrap_err();
            assert!(refused.contains("only it can change this") && refused.contains(why), "{refused}");
        }
    }

    #[tokio::test]
    async fn without_d_bus_nobody_is_asked() {
        let manager = Manager { program: "/no/such/program".into(), bus: "/no/such/socket".into() };
        let interfaces = [("eth1".to_owned(), false)];
        assert_eq!(manager.manages(&interfaces, false).await, Ok(false));
        let refused = manager.manages(&interfaces, true).await.unwrap_err();
        assert!(refused.message.contains("/no/such/socket, is missing"), "{refused:?}");
    }

    /// A stand-in for the helper that says what it is told to say.
    fn helper(script: &str) -> (tempfile::TempDir, Manager) {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("helper");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let bus = directory.path().join("bus");
        std::fs::write(&bus, "").unwrap();
        (directory, Manager { program, bus })
    }

    #[tokio::test]
    async fn a_change_is_applied_and_confirmed_or_taken_back() {
        let (_directory, manager) = helper(
            "read state; echo '{\"applied\": true}'; read verb; case $verb in \
             commit) echo '{\"committed\": true}';; rollback) echo '{\"rolledBack\": true}';; esac",
        );
        let state = json!({"interfaces": []});
        let gone = Gone::default();
        let apply = || manager.apply(&state, &gone, Duration::from_secs(5));
        apply().await.unwrap().commit().await.unwrap();
        apply().await.unwrap().roll_back().await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_is_passed_on_in_its_words() {
        let (_directory, manager) =
            helper("read state; echo '{\"error\": {\"message\": \"no such VLAN\"}}'; exit 1");
        let refused = manager.apply(&json!({}), &Gone::default(), Duration::from_secs(5)).await.unwrap_err();
        assert!(refused.message.contains("no such VLAN") && refused.again == Again::Later, "{refused:?}");
        let (_directory, manager) = helper(
            "read state; echo '{\"error\": {\"message\": \"no such key\", \"retry\": false}}'; exit 1",
        );
        let refused = manager.apply(&json!({}), &Gone::default(), Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refused.again, Again::Never, "{refused:?}");
        let (_directory, manager) = helper("exit 1");
        let refused = manager.apply(&json!({}), &Gone::default(), Duration::from_secs(5)).await.unwrap_err();
        assert!(refused.message.contains("NetworkManager"), "{refused:?}");
    }
}
