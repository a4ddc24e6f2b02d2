//! A real Prometheus, Debian's: it scrapes targets, evaluates rules, and answers queries on a loopback port. It ends with the test
//! process.
//!
//! Debian builds it without the discovery that asks Kubernetes. So somebody else says what that would find, with its labels; what is
//! kept of it, and under which labels, Prometheus decides by the configuration.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::binaries::{Binaries, Program as Known};
use crate::ports::Port;
use crate::process::{Process, Program};
use crate::wait::{PATIENCE, eventually};

/// A running Prometheus.
pub struct Prometheus {
    _process: Process,
    address: SocketAddr,
    _port: Port,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one that scrapes every three seconds what `scrape` says, with `scrape_configs` as in a configuration, and evaluates the
    /// rules of a file every second. Wherever the configuration asks Kubernetes, it finds `targets`: groups of addresses and labels.
    pub async fn start(scrape: &str, rules: &Path, targets: &[Value]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let found = directory.path().join("targets.json");
        fs::write(&found, json!(targets).to_string())?;
        let mut config: Value = serde_saphyr::from_str(scrape).context("reading scrape_configs")?;
        config["global"] =
            json!({"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "1s"});
        config["rule_files"] = json!([fs::canonicalize(rules)?]);
        for job in config["scrape_configs"].as_array_mut().context("scrape_configs is a list")? {
            let job = job.as_object_mut().context("a job is an object")?;
            if job.remove("kubernetes_sd_configs").is_some() {
                job.insert("file_sd_configs".to_owned(), json!([{"files": [found]}]));
            }
        }
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, config.to_string())?;
        let program = Binaries::locate(Known::MONITORING)?.path(Known::Prometheus)?.to_owned();
        let port = Port::reserve()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let log = directory.path().join("prometheus.log");
        let process = Program::new("prometheus", program, log)
            .flag("--config.file", &file)
            .flag("--storage.tsdb.path", directory.path().join("data"))
            .flag("--web.listen-address", address.to_string())
            .start()?;
        let started = Self { _process: process, address, _port: port, _directory: directory };
        eventually("Prometheus is ready", async || Ok(started.get("/-/ready").ok())).await?;
        Ok(started)
    }

    /// Where its pages are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What an expression is now: one value for each series.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let answer = self.api(&format!("query?query={}", encoded(expression)))?;
        Ok(answer["result"].as_array().cloned().unwrap_or_default())
    }

    /// The targets that were found, each with its labels and whether it is up.
    pub fn targets(&self) -> Result<Vec<Value>> {
        Ok(self.api("targets?state=active")?["activeTargets"].as_array().cloned().unwrap_or_default())
    }

    fn api(&self, path: &str) -> Result<Value> {
        let mut answer: Value = serde_json::from_str(&self.get(&format!("/api/v1/{path}"))?)?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].take())
    }

    /// The body of a page, whatever its status if it is JSON: Prometheus says there what is wrong.
    fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("a head and a body")?;
        let status = head.lines().next().unwrap_or_default();
        ensure!(status.contains(" 200 ") || body.starts_with('{'), "{path}: {status}: {body}");
        Ok(body.to_owned())
    }
}

/// Text as a value in the query of an address.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
