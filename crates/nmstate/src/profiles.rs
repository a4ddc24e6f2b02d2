//! The profiles that NetworkManager keeps. One that is not active is in no state that nmstate reports, and puts its addresses on
//! the interface as soon as it is activated.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, OwnedValue};

use crate::bus::{self, NAME};
use crate::failure::{Failure, Reason};
use crate::removal::Removal;

const SETTINGS: [&str; 2] =
    ["/org/freedesktop/NetworkManager/Settings", "org.freedesktop.NetworkManager.Settings"];
const PROFILE: &str = "org.freedesktop.NetworkManager.Settings.Connection";
/// How long NetworkManager may take to show all profiles.
const LIMIT: Duration = Duration::from_secs(15);

/// What a profile says, by section and key.
type Sections = HashMap<String, HashMap<String, OwnedValue>>;

/// An error if a profile still has an address that goes.
pub(crate) fn check(removal: &Removal) -> Result<(), Failure> {
    let profiles = bus::run(async { tokio::time::timeout(LIMIT, list()).await })?;
    let profiles = profiles.unwrap_or_else(|_| {
        Err(bus::silent(format!("NetworkManager has not shown its profiles within {} s", LIMIT.as_secs())))
    })?;
    let gone = removal.by_interface()?;
    for profile in &profiles {
        let bound = text(profile, "connection", "interface-name").unwrap_or_default();
        let of_interface = gone.iter().filter(|(name, _)| bound.is_empty() || bound == **name);
        for (interface, addresses) in of_interface {
            let Some(address) = addresses.iter().find(|it| has(profile, **it)) else { continue };
            let name = text(profile, "connection", "id").unwrap_or_default();
            let message = format!(
                "profile {name:?} of NetworkManager has address {address} for {interface} and is not active, so it would put \
                 it back later; activate it (`nmcli connection up {name:?}`), or delete it"
            );
            return Err(Failure::of(interface, Reason::ProfileInactive, message));
        }
    }
    Ok(())
}

async fn list() -> Result<Vec<Sections>, Failure> {
    let connection = bus::connect().await?;
    read(&connection)
        .await
        .map_err(|error| bus::silent(format!("NetworkManager does not show its profiles: {error}")))
}

async fn read(connection: &Connection) -> Result<Vec<Sections>, zbus::Error> {
    let [object, interface] = SETTINGS;
    let paths: Vec<OwnedObjectPath> =
        bus::call(connection, [NAME, object, interface, "ListConnections"], &()).await?;
    let mut profiles = Vec::with_capacity(paths.len());
    for path in paths {
        // One may be gone before it is asked.
        let place = [NAME, path.as_str(), PROFILE, "GetSettings"];
        profiles.extend(bus::call::<Sections, _>(connection, place, &()).await.ok());
    }
    Ok(profiles)
}

fn text(profile: &Sections, section: &str, key: &str) -> Option<String> {
    let value = profile.get(section)?.get(key)?.try_clone().ok()?;
    String::try_from(value).ok()
}

fn has(profile: &Sections, address: IpAddr) -> bool {
    let section = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let data = profile.get(section).and_then(|it| it.get("address-data")).and_then(|it| it.try_clone().ok());
    let data = data.and_then(|it| Vec::<HashMap<String, OwnedValue>>::try_from(it).ok());
    data.into_iter().flatten().any(|mut entry| {
        let text = entry.remove("address").and_then(|it| String::try_from(it).ok());
        text.and_then(|it| it.parse::<IpAddr>().ok()) == Some(address)
    })
}
