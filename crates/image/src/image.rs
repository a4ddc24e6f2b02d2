//! An image: its files, what its containers run, and its writing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::archive::Archive;

/// An image that is being put together.
pub struct Image {
    name: String,
    layer: Archive,
    entrypoint: Vec<String>,
    environment: Vec<String>,
}

/// An image that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// How many bytes the tar has.
    pub size: usize,
    /// The digest by which the image can be named: that of its manifest.
    pub digest: String,
}

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file that goes into it could not be read, or the image not written.
    #[error("{act} {path} for the image {image}: {source}", path = path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The image.
        image: String,
        /// What the system says.
        source: io::Error,
    },
    /// A path inside it is one that no archive takes.
    #[error("adding {path:?} to the image {image}: {source}")]
    Path {
        /// The path.
        path: String,
        /// The image.
        image: String,
        /// What is wrong with it.
        source: io::Error,
    },
}

impl Image {
    /// An empty image. The name has a registry and a tag that is not `latest`: the kubelet would want to pull that.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), layer: Archive::new(), entrypoint: vec![], environment: vec![] }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a program; a static one, as there are no libraries.
    pub fn program(self, path: &str, from: &Path) -> Result<Self, ImageError> {
        let bytes = fs::read(from).map_err(|source| self.file_error("reading", from, source))?;
        self.with(path, |layer| layer.file(path, 0o755, &bytes))
    }

    /// Adds a file that everyone may read.
    pub fn file(self, path: &str, bytes: &[u8]) -> Result<Self, ImageError> {
        self.with(path, |layer| layer.file(path, 0o644, bytes))
    }

    /// Adds a symbolic link.
    pub fn link(self, path: &str, to: &str) -> Result<Self, ImageError> {
        self.with(path, |layer| layer.link(path, to))
    }

    /// Adds a directory with these permissions; those of files are there without.
    pub fn directory(self, path: &str, mode: u32) -> Result<Self, ImageError> {
        self.with(path, |layer| layer.directory(path, mode))
    }

    /// What its containers run if nothing else is said.
    #[must_use]
    pub fn entrypoint(mut self, command: &[&str]) -> Self {
        self.entrypoint = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// A variable of its containers' environment.
    #[must_use]
    pub fn variable(mut self, key: &str, value: &str) -> Self {
        self.environment.push(format!("{key}={value}"));
        self
    }

    /// Writes it as a tar of an OCI image layout.
    pub fn save(&self, path: &Path) -> Result<Saved, ImageError> {
        let (bytes, digest) =
            self.layout().map_err(|source| self.file_error("making the archive", path, source))?;
        // Others may be reading the file that was there before.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, &bytes).map_err(|source| self.file_error("writing", &new, source))?;
        fs::rename(&new, path).map_err(|source| self.file_error("writing", path, source))?;
        Ok(Saved { size: bytes.len(), digest })
    }

    /// The tar, and the digest of the manifest in it.
    fn layout(&self) -> io::Result<(Vec<u8>, String)> {
        let layer = self.layer.bytes()?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": self.environment},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        entry["annotations"] = json!({"io.containerd.image.name": self.name});
        entry["platform"] = json!({"architecture": architecture(), "os": "linux"});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        });
        let mut archive = Archive::new();
        archive.file("/oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.file("/index.json", 0o644, index.to_string().as_bytes())?;
        for blob in [&layer, &config, &manifest] {
            archive.file(&format!("/blobs/{}", digest_of(blob).replace(':', "/")), 0o644, blob)?;
        }
        Ok((archive.bytes()?, digest_of(&manifest)))
    }

    fn with(
        mut self,
        path: &str,
        add: impl FnOnce(&mut Archive) -> io::Result<()>,
    ) -> Result<Self, ImageError> {
        match add(&mut self.layer) {
            Ok(()) => Ok(self),
            Err(source) => Err(ImageError::Path { path: path.to_owned(), image: self.name, source }),
        }
    }

    fn file_error(&self, act: &'static str, path: &Path, source: io::Error) -> ImageError {
        ImageError::File { act, path: path.to_owned(), image: self.name.clone(), source }
    }
}

/// This machine's architecture, in Go's words.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest_of(blob), "size": blob.len()})
}

fn digest_of(blob: &[u8]) -> String {
    let hex: Vec<String> = digest(&SHA256, blob).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

#[cfg(test)]
mod tests;
