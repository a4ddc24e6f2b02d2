//! What NetworkManager says about itself and its devices.
//!
//! nmstate asks for all of this, too, but waits two seconds for a NetworkManager that is not there, and two minutes for an
//! interface that is not managed. So this asks first, with a limit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use zbus::Connection;
use zbus::zvariant::OwnedObjectPath;

use crate::bus::{self, NAME, ROOT};
use crate::failure::{Failure, Reason};

const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
/// The oldest version that this was tried with: Debian 12's. Older ones do not tell their capabilities.
const OLDEST: [u32; 2] = [1, 42];
/// How long NetworkManager may take to answer all questions of `managed`, which promises an answer in two seconds.
pub(crate) const SHORT: Duration = Duration::from_millis(1500);
/// The same for a change, which takes seconds in any case.
pub(crate) const LONG: Duration = Duration::from_secs(15);
/// How long a NetworkManager that has just started may take of that to find its devices.
const STARTUP: Duration = Duration::from_secs(1);
/// How often to look at what changes.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);
/// NetworkManager's number for a device that it leaves alone.
const UNMANAGED: u32 = 10;
/// The numbers of devices that are on their way from one state to another.
const ON_THE_WAY: [std::ops::RangeInclusive<u32>; 2] = [40..=90, 110..=110];

/// What NetworkManager said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    version: String,
    /// The state of each existing interface.
    devices: BTreeMap<String, u32>,
    checkpoints: Vec<String>,
}

/// What NetworkManager has to do with an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Management {
    Managed,
    Unmanaged,
    Absent,
}

impl Seen {
    /// An error if NetworkManager is older than what this was tried with.
    pub(crate) fn supported(&self) -> Result<(), Failure> {
        if is_supported(&self.version) {
            return Ok(());
        }
        let [major, minor] = OLDEST;
        let message = format!(
            "NetworkManager {} is too old: this needs {major}.{minor} or newer; upgrade it, or let it leave the \
             interface alone (unmanaged-devices), so that the agent configures it itself",
            self.version
        );
        Err(Failure::new(Reason::NetworkManagerTooOld, message))
    }

    /// What NetworkManager has to do with this interface.
    pub(crate) fn management(&self, interface: &str) -> Management {
        match self.devices.get(interface) {
            None => Management::Absent,
            Some(&state) if state <= UNMANAGED => Management::Unmanaged,
            Some(_) => Management::Managed,
        }
    }

    /// The checkpoints that are open, whoever made them.
    pub(crate) fn checkpoints(&self) -> &[String] {
        &self.checkpoints
    }

    /// The answer to `managed`.
    pub(crate) fn answer(&self, interfaces: &[&str]) -> Value {
        let mut about =
            json!({ "running": true, "version": self.version, "supported": self.supported().is_ok() });
        if let Err(failure) = self.supported() {
            about["reason"] = json!(failure.message());
        }
        let words = interfaces.iter().map(|name| {
            let word = match self.management(name) {
                Management::Managed => "managed",
                Management::Unmanaged => "unmanaged",
                Management::Absent => "absent",
            };
            ((*name).to_owned(), json!(word))
        });
        json!({ "networkManager": about, "interfaces": words.collect::<serde_json::Map<_, _>>() })
    }
}

/// Asks NetworkManager; an error if there is none, or if it does not answer in time.
///
/// If it has just been started, this gives it time to look at the interfaces that the caller is interested in.
pub(crate) fn ask(interfaces: &[&str], limit: Duration) -> Result<Seen, Failure> {
    let answer = bus::run(async { tokio::time::timeout(limit, look(interfaces)).await })?;
    answer.unwrap_or_else(|_| {
        let message = format!(
            "NetworkManager or D-Bus has not answered within {} ms; try again, or look at `systemctl status \
             NetworkManager dbus`",
            limit.as_millis()
        );
        Err(bus::silent(message))
    })
}

async fn look(interfaces: &[&str]) -> Result<Seen, Failure> {
    let connection = bus::connect().await?;
    // Asking NetworkManager itself could start it.
    let is_there: bool = bus::call(
        &connection,
        ["org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner"],
        &(NAME,),
    )
    .await
    .map_err(|error| bus::silent(format!("D-Bus does not say whether NetworkManager runs: {error}")))?;
    if !is_there {
        let message = "NetworkManager does not run on this host; start it, or let the agent configure the interface itself";
        return Err(Failure::new(Reason::NetworkManagerMissing, message.to_owned()));
    }
    let asked = async {
        let version = bus::property::<String>(&connection, ROOT, NAME, "Version").await?;
        let checkpoints =
            bus::property::<Vec<OwnedObjectPath>>(&connection, ROOT, NAME, "Checkpoints").await?;
        let checkpoints = checkpoints.iter().map(|path| path.as_str().to_owned()).collect();
        let mut seen = Seen { version, devices: list(&connection).await?, checkpoints };
        let mut left = STARTUP;
        // Until it has looked at all interfaces, it calls them unmanaged.
        while interfaces.iter().any(|name| seen.management(name) != Management::Managed)
            && !left.is_zero()
            && bus::property::<bool>(&connection, ROOT, NAME, "Startup").await?
        {
            tokio::time::sleep(INTERVAL).await;
            left = left.saturating_sub(INTERVAL);
            seen.devices = list(&connection).await?;
        }
        Ok::<_, zbus::Error>(seen)
    };
    asked.await.map_err(|error| bus::silent(format!("NetworkManager answers with an error: {error}")))
}

/// The state of each existing interface. A device may be gone before it is asked.
pub(crate) async fn list(connection: &Connection) -> Result<BTreeMap<String, u32>, zbus::Error> {
    let paths: Vec<OwnedObjectPath> = bus::call(connection, [NAME, ROOT, NAME, "GetAllDevices"], &()).await?;
    let mut devices = BTreeMap::new();
    for path in paths {
        let Ok(is_real) = bus::property::<bool>(connection, path.as_str(), DEVICE, "Real").await else {
            continue;
        };
        let Ok(name) = bus::property::<String>(connection, path.as_str(), DEVICE, "Interface").await else {
            continue;
        };
        let Ok(state) = bus::property::<u32>(connection, path.as_str(), DEVICE, "State").await else {
            continue;
        };
        if is_real {
            devices.insert(name, state);
        }
    }
    Ok(devices)
}

/// Whether a device with this state is on its way to another one.
pub(crate) fn is_on_the_way(state: u32) -> bool {
    ON_THE_WAY.iter().any(|range| range.contains(&state))
}

/// Whether a version (`1.42.4`, `1.52.0-rc1`) is new enough.
fn is_supported(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
    [numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()] >= OLDEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(version: &str) -> Seen {
        let devices = [("eth0", 100), ("eth1", 30), ("eth2", 10), ("eth3", 20)];
        let devices = devices.map(|(name, state)| (name.to_owned(), state)).into();
        Seen { version: version.to_owned(), devices, checkpoints: Vec::new() }
    }

    #[test]
    fn a_version_before_1_42_is_too_old_and_the_answer_says_what_to_do() {
        for old in ["1.30.0", "1.41.90", "0.9.10", ""] {
            let failure = seen(old).supported().unwrap_err();
            let line = failure.line();
            assert_eq!(line["error"]["reason"], "networkManagerTooOld", "{old}");
            assert_eq!(line["error"]["retry"], false);
            assert!(line["error"]["message"].as_str().unwrap().contains("needs 1.42 or newer"), "{line}");
            let answer = seen(old).answer(&["eth0"]);
            assert_eq!(answer["networkManager"]["supported"], false);
            assert_eq!(answer["networkManager"]["reason"], line["error"]["message"]);
        }
        for new in ["1.42.0", "1.42.4", "1.52.0-rc1", "2.0"] {
            assert_eq!(seen(new).supported(), Ok(()), "{new}");
        }
    }

    #[test]
    fn an_interface_is_managed_unmanaged_or_absent() {
        let answer = seen("1.42.4").answer(&["eth0", "eth1", "eth2", "eth3", "eth4"]);
        let expected = json!({"eth0": "managed", "eth1": "managed", "eth2": "unmanaged", "eth3": "managed", "eth4": "absent"});
        assert_eq!(answer["interfaces"], expected);
        assert_eq!(
            answer["networkManager"],
            json!({"running": true, "version": "1.42.4", "supported": true})
        );
    }
}
