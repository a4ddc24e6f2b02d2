//! Waits until a part is ready, or says why it never will be.

use std::path::Path;
use std::time::Duration;

use http::Request;
use kube::Client;
use tenure_handles::{Clock as _, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{ControlPlane, ControlPlaneError, Part};

/// Long enough for two cores that build something else at the same time.
const LIMIT: Duration = crate::wait::PATIENCE;
/// How often to ask.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);

impl ControlPlane {
    /// Waits until `part` is ready.
    pub(super) async fn ready(&self, part: Part) -> Result<(), ControlPlaneError> {
        let process = self.running(part)?;
        let probe = Probe::new(self, part)?;
        let (start, mut last) = (SystemClock.now(), String::new());
        while SystemClock.now().since(start) < LIMIT {
            if let Some(status) = process.ended() {
                let (log, end) = (process.log().to_owned(), end_of(process.log()));
                return Err(ControlPlaneError::Ended { part, how: status.to_string(), log, end });
            }
            match tokio::time::timeout(ANSWER, probe.ask()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(said)) => last = said,
                Err(_) => "no answer".clone_into(&mut last),
            }
            tokio::time::sleep(INTERVAL).await;
        }
        let (log, end) = (process.log().to_owned(), end_of(process.log()));
        Err(ControlPlaneError::NotReady { part, limit: LIMIT, last, log, end })
    }
}

/// Asks one part whether it is ready.
enum Probe {
    /// etcd speaks plain HTTP.
    Etcd(String),
    /// The others speak HTTPS with a certificate of our authority.
    Https(Client, &'static str),
}

impl Probe {
    fn new(plane: &ControlPlane, part: Part) -> Result<Self, ControlPlaneError> {
        let address = plane.layout.address(part);
        if part == Part::Etcd {
            return Ok(Self::Etcd(address));
        }
        let url = format!("https://{address}");
        let cluster_url = url.parse().map_err(|source| ControlPlaneError::Url { url, source })?;
        let mut config = plane.config()?;
        config.cluster_url = cluster_url;
        config.default_retry = false;
        Ok(Self::Https(
            Client::try_from(config)?,
            if part == Part::ApiServer { "/readyz" } else { "/healthz" },
        ))
    }

    async fn ask(&self) -> Result<(), String> {
        match self {
            Self::Etcd(address) => {
                let answer = plain_get(address, "/health").await.map_err(|error| error.to_string())?;
                if answer.contains("\"true\"") { Ok(()) } else { Err(answer) }
            }
            Self::Https(client, path) => {
                let request = Request::get(*path).body(Vec::new()).map_err(|error| error.to_string())?;
                client.request_text(request).await.map(drop).map_err(|error| error.to_string())
            }
        }
    }
}

async fn plain_get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The last lines of a log, on one line.
fn end_of(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(4).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_its_last_lines_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "1\n2\n3\n4\n5\n").unwrap();
        assert_eq!(end_of(&log), "2 | 3 | 4 | 5");
        assert_eq!(end_of(Path::new("/nowhere")), "");
    }
}
