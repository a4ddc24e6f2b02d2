//! Serves a local API for `kubectl`.
//!
//! ```text
//! cargo run -p tenure-localapi --example serve -- /tmp/tenure.redb 127.0.0.1:8001
//! kubectl --server http://127.0.0.1:8001 get namespaces
//! ```
//!
//! A second argument that contains a slash is the path of a unix socket:
//! `curl --unix-socket /tmp/tenure.sock http://localhost/api/v1/namespaces`.

use std::io::Write;

use tenure_handles::{SystemClock, SystemEntropy};
use tenure_localapi::{LocalApi, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(place)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve FILE ADDRESS:PORT|/PATH/OF/SOCKET".into());
    };
    let api = LocalApi::open(file, SystemClock, SystemEntropy::new()?)?;
    let server = if place.contains('/') {
        Server::unix(api.clone(), &place).await?
    } else {
        Server::loopback(api.clone(), place.parse()?).await?
    };
    let shown = server.address().map_or(place, |address| format!("http://{address}"));
    writeln!(std::io::stdout(), "serving {shown}")?;
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    api.close();
    Ok(())
}
