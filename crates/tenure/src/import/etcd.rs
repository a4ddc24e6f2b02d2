//! Reading keys out of etcd: over its JSON gateway, or from a file that `etcdctl get --prefix … -w json` has written.
//!
//! All pages are of one revision, so what is read is what etcd had at one moment. The gateway does not know users by
//! certificates: with users, etcd refuses a client certificate that has a common name there. Such an etcd takes a password and a
//! certificate without one, or the file.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};

/// Keys of a page. A value of Coil v1 has up to 16384 blocks in it.
const PAGE: u32 = 100;
/// The most bytes of an answer.
const MOST_BYTES: usize = 256 * 1024 * 1024;
/// The gateway of etcd 3.4 and later, and of 3.3.
const VERSIONS: [&str; 2] = ["v3", "v3beta"];

/// Where the keys are.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct EtcdOptions {
    /// Addresses of etcd's members, with commas; the first that answers is asked
    #[arg(long, value_name = "URL", value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
    etcd_endpoints: Vec<String>,
    /// File with the certificate authority of etcd's servers
    #[arg(long, value_name = "FILE")]
    etcd_tls_ca: Option<PathBuf>,
    /// File with a client certificate
    #[arg(long, value_name = "FILE", requires = "etcd_tls_key")]
    etcd_tls_cert: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "etcd_tls_cert")]
    etcd_tls_key: Option<PathBuf>,
    /// User of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_username: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", requires = "etcd_username")]
    etcd_password_file: Option<PathBuf>,
    /// Read a file instead, or - for standard input: what `etcdctl get --prefix PREFIX -w json` writes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["etcd_tls_ca", "etcd_tls_cert", "etcd_username"])]
    etcd_dump: Option<PathBuf>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

#[derive(Deserialize)]
struct Page {
    header: Header,
    #[serde(default)]
    kvs: Vec<Pair>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Header {
    /// A string from the gateway, a number from etcdctl.
    revision: Value,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

/// Every key with this prefix, in order.
pub(super) async fn read(options: &EtcdOptions, prefix: &str) -> Result<Vec<Entry>> {
    let mut entries = match &options.etcd_dump {
        Some(path) => from_file(path, prefix)?,
        None => from_members(options, prefix).await?,
    };
    entries.sort();
    Ok(entries)
}

fn from_file(path: &PathBuf, prefix: &str) -> Result<Vec<Entry>> {
    let act = || format!("reading {}", path.display());
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let page: Page = serde_json::from_str(&text.with_context(act)?)
        .with_context(act)
        .context("accepted is what `etcdctl get --prefix PREFIX -w json` writes")?;
    if page.more {
        bail!(
            "{}: keys are missing (\"more\": true); accepted is a file of all keys, without --limit",
            act()
        );
    }
    let entries = page.kvs.iter().map(Pair::decode).collect::<Result<Vec<_>>>().with_context(act)?;
    Ok(entries.into_iter().filter(|entry| entry.key.starts_with(prefix.as_bytes())).collect())
}

impl Pair {
    fn decode(&self) -> Result<Entry> {
        let bytes = |text: &str| STANDARD.decode(text).with_context(|| format!("\"{text}\" is no base64"));
        Ok(Entry { key: bytes(&self.key)?, value: bytes(&self.value)? })
    }
}

async fn from_members(options: &EtcdOptions, prefix: &str) -> Result<Vec<Entry>> {
    let mut problems = Vec::new();
    for endpoint in &options.etcd_endpoints {
        let read = async {
            let mut member = Member::connect(options, endpoint).await?;
            member.authenticate(options).await?;
            member.every(prefix).await
        };
        match read.await {
            Ok(entries) => return Ok(entries),
            Err(error) => problems.push(format!("{endpoint}: {error:#}")),
        }
    }
    bail!("cannot read etcd: {}", problems.join("; "))
}

/// One member of etcd.
struct Member {
    client: Client,
    version: &'static str,
    token: Option<String>,
}

impl Member {
    async fn connect(options: &EtcdOptions, endpoint: &str) -> Result<Self> {
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            bail!("accepted is an address such as https://10.0.0.1:2379");
        }
        // kube's client is an HTTP client with TLS: it gets the files as a kubeconfig names them.
        let file: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{"name": "etcd", "cluster": {
                "server": endpoint, "certificate-authority": options.etcd_tls_ca,
            }}],
            "users": [{"name": "etcd", "user": {
                "client-certificate": options.etcd_tls_cert, "client-key": options.etcd_tls_key,
            }}],
            "contexts": [{"name": "etcd", "context": {"cluster": "etcd", "user": "etcd"}}],
            "current-context": "etcd",
        }))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.context("reading the files for TLS")?)?;
        Ok(Self { client, version: VERSIONS[0], token: None })
    }

    async fn authenticate(&mut self, options: &EtcdOptions) -> Result<()> {
        #[derive(Deserialize)]
        struct Answer {
            token: String,
        }
        let (Some(name), Some(path)) = (&options.etcd_username, &options.etcd_password_file) else {
            return Ok(());
        };
        let password =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let password = password.trim_end_matches(['\r', '\n']);
        let question = json!({"name": name, "password": password});
        let answer = self.ask("auth/authenticate", &question).await.context("authenticating")?;
        let Answer { token } = serde_json::from_slice(&answer).context("authenticating")?;
        self.token = Some(token);
        Ok(())
    }

    async fn every(&mut self, prefix: &str) -> Result<Vec<Entry>> {
        let end = STANDARD.encode(behind(prefix.as_bytes()));
        let (mut from, mut revision, mut entries) = (prefix.as_bytes().to_vec(), None, Vec::new());
        loop {
            let mut question = json!({"key": STANDARD.encode(&from), "range_end": end, "limit": PAGE});
            if let Some(revision) = &revision {
                question["revision"] = Value::clone(revision);
            }
            let answer = self.ask("kv/range", &question).await.context("reading the keys")?;
            let page: Page = serde_json::from_slice(&answer).context("reading the keys")?;
            revision.get_or_insert(page.header.revision);
            for pair in &page.kvs {
                entries.push(pair.decode()?);
            }
            let last = entries.last().filter(|_| page.more && !page.kvs.is_empty());
            let Some(last) = last else { return Ok(entries) };
            from.clone_from(&last.key);
            from.push(0);
        }
    }

    async fn ask(&mut self, what: &str, question: &Value) -> Result<Vec<u8>> {
        let (mut status, mut answer) = self.ask_once(what, question).await?;
        if status == StatusCode::NOT_FOUND && self.version == VERSIONS[0] {
            self.version = VERSIONS[1];
            (status, answer) = self.ask_once(what, question).await?;
        }
        if status.is_success() {
            return Ok(answer);
        }
        let told: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let told = ["message", "error"].iter().find_map(|field| told.get(*field)?.as_str());
        let told = told.map_or_else(|| String::from_utf8_lossy(&answer).into_owned(), str::to_owned);
        let help = if status == StatusCode::NOT_FOUND {
            "; it has no JSON gateway: give --etcd-dump a file of `etcdctl get --prefix PREFIX -w json`"
        } else if told.contains("CommonName") {
            "; its gateway takes a user's password with a client certificate that has no common name; give \
             --etcd-dump a file of `etcdctl get --prefix PREFIX -w json`, or such a certificate"
        } else if told.contains("user name is empty") || told.contains("permission denied") {
            "; give --etcd-username and --etcd-password-file of a user that may read the prefix, or --etcd-dump"
        } else {
            ""
        };
        Err(anyhow!("etcd answers {status}: {}{help}", super::finding::quoted(told.trim())))
    }

    async fn ask_once(&self, what: &str, question: &Value) -> Result<(StatusCode, Vec<u8>)> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("/{}/{what}", self.version))
            .header("Content-Type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let answer = self.client.send(request.body(Body::from(question.to_string().into_bytes()))?).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|error| anyhow!("reading the answer: {error}"))?;
        Ok((status, body.to_bytes().to_vec()))
    }
}

/// The first key that does not have this prefix any more; `\0` for "to the end".
fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_range_ends_behind_the_last_key_with_the_prefix() {
        assert_eq!(behind(b"/coil/"), b"/coil0");
        assert_eq!(behind(b"a\xff\xff"), b"b");
        assert_eq!((behind(b"\xff"), behind(b"")), (vec![0], vec![0]));
    }

    #[tokio::test]
    async fn a_file_of_etcdctl_is_read_and_one_that_is_cut_short_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let pair = |key: &str| json!({"key": STANDARD.encode(key), "value": STANDARD.encode("v")});
        let pairs = [pair("/coil/pool/b"), pair("/other"), pair("/coil/pool/a")];
        let mut dump = json!({"header": {"revision": 7}, "kvs": pairs, "count": 3});
        write!(file, "{dump}").unwrap();
        let options = EtcdOptions { etcd_dump: Some(file.path().to_owned()), ..EtcdOptions::default() };
        let keys: Vec<Vec<u8>> =
            read(&options, "/coil/").await.unwrap().into_iter().map(|entry| entry.key).collect();
        assert_eq!(keys, [b"/coil/pool/a", b"/coil/pool/b"]);

        dump["more"] = json!(true);
        file.as_file_mut().set_len(0).unwrap();
        std::fs::write(file.path(), dump.to_string()).unwrap();
        let error = read(&options, "/coil/").await.unwrap_err().to_string();
        assert!(error.contains("keys are missing"), "{error}");
    }

    #[tokio::test]
    async fn an_endpoint_that_does_not_answer_is_named() {
        let options = EtcdOptions {
            etcd_endpoints: vec!["10.0.0.1:2379".into(), "http://127.0.0.1:9".into()],
            ..EtcdOptions::default()
        };
        let error = read(&options, "/coil/").await.unwrap_err().to_string();
        assert!(error.contains("10.0.0.1:2379: accepted is an address such as https://"), "{error}");
        assert!(error.contains("http://127.0.0.1:9: "), "{error}");
    }
}
