//! A way to the API server: a client, what is known of how it is, and the chance in its waits.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kube::Client;
use tenure_handles::{Clock, Entropy, SeededEntropy};

use crate::backoff::Backoff;
use crate::health::Health;

/// A way to the API server. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    health: Arc<Health>,
    entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// The way of this client, on which nothing was heard yet.
    pub fn new(client: Client, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { client, health: Arc::new(Health::new(clock)), entropy }
    }

    /// The same for the program, or the part of one, of this name: no two of one name share an API server, so its name alone
    /// keeps it from coming back at the moment that another does.
    pub fn named(client: Client, clock: Arc<dyn Clock>, name: &str) -> Self {
        Self::new(client, clock, chance_of(name))
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How it is.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The chance in its waits.
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Waits after failures in a row.
    pub fn backoff(&self) -> Backoff {
        Backoff::new(Arc::clone(&self.entropy))
    }
}

/// Chance that replays from a name.
fn chance_of(name: &str) -> Arc<dyn Entropy> {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Arc::new(SeededEntropy::new(hasher.finish()))
}
