//! The checkpoint of a change: NetworkManager returns to it on request, and by itself when its time is over.
//!
//! nmstate makes it. Its own functions for the end of it take whichever checkpoint is open, and do not tell which devices
//! could not be restored. So this names the checkpoint, and looks at the answer.

use std::collections::HashMap;
use std::time::Duration;

use zbus::zvariant::ObjectPath;

use crate::bus::{self, NAME, ROOT};
use crate::devices::{self, INTERVAL};
use crate::failure::{Failure, Reason};

/// How long a call may take; a rollback is the longest.
const LIMIT: Duration = Duration::from_mins(1);

/// Restarts the time after which NetworkManager rolls back to this checkpoint.
pub(crate) fn restart_timeout(checkpoint: &str, seconds: u32) -> Result<(), Failure> {
    let adjusted: Result<(), _> = call_for(checkpoint, "CheckpointAdjustRollbackTimeout", Some(seconds));
    adjusted.map_err(|error| gone(checkpoint, &error))
}

/// Keeps what was applied since this checkpoint.
pub(crate) fn commit(checkpoint: &str) -> Result<(), Failure> {
    let committed: Result<(), _> = call_for(checkpoint, "CheckpointDestroy", None);
    committed.map_err(|error| gone(checkpoint, &error))
}

/// Returns to this checkpoint, and waits until all devices are where they were.
pub(crate) fn roll_back(checkpoint: &str) -> Result<(), Failure> {
    let rolled_back: Result<HashMap<String, u32>, _> = call_for(checkpoint, "CheckpointRollback", None);
    let devices = rolled_back.map_err(|error| gone(checkpoint, &error))?;
    let settled = bus::run(async { tokio::time::timeout(LIMIT, settle()).await })?;
    let failed: Vec<String> =
        devices.into_iter().filter(|(_, code)| *code != 0).map(|(path, _)| path).collect();
    if !failed.is_empty() {
        let message = format!(
            "NetworkManager could not restore {}; look at `nmcli device` and `journalctl -u NetworkManager`",
            failed.join(", ")
        );
        return Err(Failure::new(Reason::RollbackFailed, message));
    }
    settled.unwrap_or_else(|_| {
        let message = format!(
            "NetworkManager has rolled back, but not all devices were at rest within {} s; look at `nmcli device`",
            LIMIT.as_secs()
        );
        Err(Failure::new(Reason::RollbackFailed, message))
    })
}

/// Waits until no device is on its way to another state.
async fn settle() -> Result<(), Failure> {
    let connection = bus::connect().await?;
    loop {
        let devices = devices::list(&connection)
            .await
            .map_err(|error| bus::silent(format!("NetworkManager is gone during the rollback: {error}")))?;
        if !devices.values().any(|state| devices::is_on_the_way(*state)) {
            return Ok(());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Calls a method of NetworkManager that takes a checkpoint and maybe seconds.
fn call_for<T>(checkpoint: &str, method: &str, seconds: Option<u32>) -> Result<T, Failure>
where
    T: serde::de::DeserializeOwned + zbus::zvariant::Type,
{
    let path = ObjectPath::try_from(checkpoint)
        .map_err(|error| Failure::new(Reason::TimedOut, format!("{checkpoint} is no checkpoint: {error}")))?;
    let called = async {
        let connection = bus::connect().await?;
        let place = [NAME, ROOT, NAME, method];
        let answer = match seconds {
            Some(seconds) => bus::call(&connection, place, &(path, seconds)).await,
            None => bus::call(&connection, place, &(path,)).await,
        };
        answer.map_err(|error| Failure::new(Reason::TimedOut, error.to_string()))
    };
    let called = bus::run(async { tokio::time::timeout(LIMIT, called).await })?;
    called.unwrap_or_else(|_| {
        let message = format!("{method} was not answered within {} s", LIMIT.as_secs());
        Err(Failure::new(Reason::TimedOut, message))
    })
}

fn gone(checkpoint: &str, failure: &Failure) -> Failure {
    let message = format!(
        "NetworkManager no longer has {checkpoint} ({}): it has rolled back after its timeout, or it was restarted; \
         look at the interface before trying again",
        failure.message()
    );
    Failure::new(Reason::TimedOut, message)
}
