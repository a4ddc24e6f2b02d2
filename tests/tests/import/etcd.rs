//! A real etcd, filled as Coil v1 fills it, over plain HTTP, and over TLS with client certificates and users.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use serde_json::{Value, json};
use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::process::{self, Process};
use tenure_testbed::wait::eventually;

/// An etcd that runs until this is dropped.
pub(crate) struct Etcd {
    client: Client,
    _process: Process,
    pub(crate) plain: String,
    pub(crate) secure: String,
    pub(crate) directory: tempfile::TempDir,
}

/// Base64 as JSON has it of bytes.
fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

fn port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

impl Etcd {
    pub(crate) async fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        certificates(directory.path())?;
        let file = |name: &str| directory.path().join(name);
        let plain = format!("http://127.0.0.1:{}", port()?);
        let secure = format!("https://127.0.0.1:{}", port()?);
        let peers = format!("http://127.0.0.1:{}", port()?);
        let binaries = Binaries::locate([Program::Etcd])?;
        let process = process::Program::new("etcd", binaries.path(Program::Etcd)?, file("etcd.log"))
            .flag("--data-dir", file("data"))
            .flag("--listen-client-urls", format!("{plain},{secure}"))
            .flag("--advertise-client-urls", &plain)
            .flag("--listen-peer-urls", &peers)
            .flag("--initial-advertise-peer-urls", &peers)
            .flag("--initial-cluster", format!("default={peers}"))
            .flag("--cert-file", file("server.crt"))
            .flag("--key-file", file("server.key"))
            .flag("--trusted-ca-file", file("ca.crt"))
            .flag("--client-cert-auth", "true")
            .arg("--unsafe-no-fsync")
            .start()?;
        let client = Client::try_from(Config::new(plain.parse()?))?;
        let etcd = Self { client, _process: process, plain, secure, directory };
        eventually("etcd", async || etcd.ask("kv/range", &json!({"key": base64("x")})).await.map(Some))
            .await?;
        Ok(etcd)
    }

    /// Calls the gateway.
    pub(crate) async fn ask(&self, what: &str, question: &Value) -> Result<Value> {
        let request = Request::builder().method(Method::POST).uri(format!("/v3/{what}"));
        let answer = self.client.send(request.body(Body::from(question.to_string().into_bytes()))?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        ensure!(status.is_success(), "{what}: {status}: {text}");
        serde_json::from_str(&text).context(text)
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> Result<()> {
        let question = json!({"key": base64(&format!("/coil/{key}")), "value": base64(value)});
        self.ask("kv/put", &question).await.map(drop)
    }

    /// Everything, as `etcdctl get --prefix /coil/ -w json` writes it.
    pub(crate) async fn dump(&self) -> Result<PathBuf> {
        let all =
            self.ask("kv/range", &json!({"key": base64("/coil/"), "range_end": base64("/coil0")})).await?;
        let path = self.directory.path().join("dump.json");
        std::fs::write(&path, all.to_string())?;
        Ok(path)
    }

    /// From now on only users with a password get anything: `root`, and `coil` below its prefix.
    pub(crate) async fn demand_passwords(&self) -> Result<()> {
        for (user, role) in [("root", "root"), ("coil", "coil")] {
            self.ask("auth/user/add", &json!({"name": user, "password": format!("{user}-secret")})).await?;
            self.ask("auth/role/add", &json!({"name": role})).await?;
            self.ask("auth/user/grant", &json!({"user": user, "role": role})).await?;
        }
        let permission = json!({"permType": "READ", "key": base64("/coil/"), "range_end": base64("/coil0")});
        self.ask("auth/role/grant", &json!({"name": "coil", "perm": permission})).await?;
        self.ask("auth/enable", &json!({})).await.map(drop)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// An authority, and certificates of the server and of a client. The gateway is a client of its own server.
fn certificates(directory: &Path) -> Result<()> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?;
    std::fs::write(directory.join("ca.crt"), authority.pem())?;
    let issuer = Issuer::new(params, key);
    // With users, the gateway refuses a client certificate with a common name, and Coil's has one.
    for (name, common_name) in [("server", None), ("client", None), ("named", Some("coil"))] {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        if let Some(common_name) = common_name {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        std::fs::write(directory.join(format!("{name}.crt")), certificate.pem())?;
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}
