//! Calls on the system bus of D-Bus, and what their errors mean.

use std::io::ErrorKind;

use zbus::Connection;
use zbus::zvariant::{DynamicType, OwnedValue};

use crate::failure::{Failure, Reason};

/// NetworkManager's name on the bus, and its main interface.
pub(crate) const NAME: &str = "org.freedesktop.NetworkManager";
/// Its main object.
pub(crate) const ROOT: &str = "/org/freedesktop/NetworkManager";

/// Connects to the system bus.
pub(crate) async fn connect() -> Result<Connection, Failure> {
    Connection::system().await.map_err(|error| {
        let nobody = matches!(&error, zbus::Error::Connection(cause, _)
            if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused));
        let message = format!("the system bus of D-Bus cannot be reached ({error})");
        if nobody {
            let why =
                "NetworkManager does not run on this host, or /run/dbus is not mounted into the agent's pod";
            return Failure::new(Reason::NetworkManagerMissing, format!("{message}: {why}"));
        }
        silent(format!("{message}; let the agent use it: it must run as root"))
    })
}

/// Reads a property of an object of NetworkManager.
pub(crate) async fn property<T>(
    bus: &Connection,
    path: &str,
    interface: &str,
    name: &str,
) -> Result<T, zbus::Error>
where
    T: TryFrom<OwnedValue>,
    T::Error: Into<zbus::zvariant::Error>,
{
    let place = [NAME, path, "org.freedesktop.DBus.Properties", "Get"];
    let value: OwnedValue = call(bus, place, &(interface, name)).await?;
    T::try_from(value).map_err(|error| zbus::Error::Variant(error.into()))
}

/// Calls `[service, object, interface, method]`.
pub(crate) async fn call<T, B>(bus: &Connection, place: [&str; 4], body: &B) -> Result<T, zbus::Error>
where
    T: serde::de::DeserializeOwned + zbus::zvariant::Type,
    B: serde::Serialize + DynamicType,
{
    let [service, object, interface, method] = place;
    let answer = bus.call_method(Some(service), object, Some(interface), method, body).await?;
    answer.body().deserialize()
}

/// Runs questions to their end.
pub(crate) fn run<T>(questions: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Reason::ApplyFailed, format!("cannot wait for answers from D-Bus: {error}"))
    })?;
    Ok(runtime.block_on(questions))
}

/// There is something, and it does not answer.
pub(crate) fn silent(message: String) -> Failure {
    Failure::new(Reason::NetworkManagerSilent, message)
}
