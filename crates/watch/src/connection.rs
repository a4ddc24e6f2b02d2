//! A connection to the API server: a client, its health, and the randomness of its waits.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kube::Client;
use tenure_handles::{Clock, Entropy, SeededEntropy};

use crate::backoff::Backoff;
use crate::health::Health;

/// A connection to the API server. Cheap to clone.
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
    /// A connection through this client.
    pub fn new(client: Client, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { client, health: Arc::new(Health::new(clock)), entropy }
    }

    /// The same with randomness from a name. Names are unique in a cluster, so two programs that lose the API server together
    /// return at different times.
    pub fn named(client: Client, clock: Arc<dyn Clock>, name: &str) -> Self {
        Self::new(client, clock, chance_of(name))
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Its health.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The randomness of its waits.
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// A new sequence of waits.
    pub fn backoff(&self) -> Backoff {
        Backoff::new(Arc::clone(&self.entropy))
    }
}

/// Randomness that is the same for the same name.
fn chance_of(name: &str) -> Arc<dyn Entropy> {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Arc::new(SeededEntropy::new(hasher.finish()))
}
