//! An image: its files, what its containers run, and its writing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::archive::Archive;
use crate::elf::{architecture, is_static};

/// Where images of programs have them.
const PROGRAMS: &str = "/usr/local/bin";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image that is being put together.
pub struct Image {
    name: String,
    layer: Archive,
    architecture: &'static str,
    created: Option<String>,
    entrypoint: Vec<String>,
    environment: Vec<String>,
    labels: BTreeMap<String, String>,
}

/// An image that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// How many bytes the tar has.
    pub size: usize,
    /// The digest by which the image can be named: that of its manifest, or of its index if there are several manifests.
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
    /// A program that would not run in it.
    #[error("adding {path} to the image {image}: it is not {wanted}, so it would not run there", path = path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// The image.
        image: String,
        /// What it would have to be.
        wanted: &'static str,
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
        Self {
            name: name.to_owned(),
            layer: Archive::new(),
            architecture: own_architecture(),
            created: None,
            entrypoint: vec![],
            environment: vec![],
            labels: BTreeMap::new(),
        }
    }

    /// The architecture of its programs, in the words of images (`amd64`, `arm64`); this machine's if not given.
    #[must_use]
    pub fn architecture(self, architecture: &'static str) -> Self {
        Self { architecture, ..self }
    }

    /// When it was made, in the form of RFC 3339. Images without it are of no time.
    #[must_use]
    pub fn created(self, time: &str) -> Self {
        Self { created: Some(time.to_owned()), ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An image of these programs, of which `entrypoint` is what its containers run: all static, because it has no libraries, and all for
    /// one architecture, which becomes the image's.
    pub fn of_programs(name: &str, entrypoint: &str, programs: &[PathBuf]) -> Result<Self, ImageError> {
        let mut image = Self::named(name).variable("PATH", PROGRAMS);
        let mut architectures = Vec::new();
        for path in programs {
            let bytes = fs::read(path).map_err(|source| image.file_error("reading", path, source))?;
            let refused = |wanted| ImageError::Program { path: path.clone(), image: name.to_owned(), wanted };
            if !is_static(&bytes) {
                return Err(refused("a static program"));
            }
            architectures.push(architecture(&bytes).ok_or_else(|| refused("for amd64 or arm64"))?);
            if architectures.first() != architectures.last() {
                return Err(refused("for the same architecture as the first program"));
            }
            let inside = format!("{PROGRAMS}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            image = image.with(&inside, |layer| layer.file(&inside, 0o755, &bytes))?;
        }
        let image = image.entrypoint(&[&format!("{PROGRAMS}/{entrypoint}")]);
        Ok(match architectures.first() {
            Some(architecture) => image.architecture(architecture),
            None => image,
        })
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

    /// A label: what people and registries read of it.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Writes it as a tar of an OCI image layout.
    pub fn save(&self, path: &Path) -> Result<Saved, ImageError> {
        self.save_with(&[], path)
    }

    /// Writes it, and the `others` for other architectures, as one image that every machine takes its own part of.
    pub fn save_with(&self, others: &[Self], path: &Path) -> Result<Saved, ImageError> {
        let made = self.layout(others);
        let (bytes, digest) = made.map_err(|source| self.file_error("making the archive", path, source))?;
        // Others may be reading the file that was there before.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, &bytes).map_err(|source| self.file_error("writing", &new, source))?;
        fs::rename(&new, path).map_err(|source| self.file_error("writing", path, source))?;
        Ok(Saved { size: bytes.len(), digest })
    }

    /// The tar, and the digest by which it is named.
    fn layout(&self, others: &[Self]) -> io::Result<(Vec<u8>, String)> {
        let mut blobs = Vec::new();
        let mut manifests = vec![self.manifest(&mut blobs)?];
        for other in others {
            manifests.push(other.manifest(&mut blobs)?);
        }
        let mut named = match <[Value; 1]>::try_from(manifests) {
            Ok([only]) => only,
            Err(several) => {
                let index = index(&several).to_string().into_bytes();
                let descriptor = descriptor(INDEX, &index);
                blobs.push(index);
                descriptor
            }
        };
        let digest = named["digest"].as_str().unwrap_or_default().to_owned();
        named["annotations"] = json!({"io.containerd.image.name": self.name});
        let mut archive = Archive::new();
        archive.file("/oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.file("/index.json", 0o644, index(&[named]).to_string().as_bytes())?;
        for blob in &blobs {
            archive.file(&format!("/blobs/{}", digest_of(blob).replace(':', "/")), 0o644, blob)?;
        }
        Ok((archive.bytes()?, digest))
    }

    /// The descriptor of its manifest. The manifest and what it names become blobs.
    fn manifest(&self, blobs: &mut Vec<Vec<u8>>) -> io::Result<Value> {
        let layer = self.layer.bytes()?;
        let mut config = json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": self.environment},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(&layer)]},
        });
        if let Some(created) = &self.created {
            config["created"] = json!(created);
        }
        if !self.labels.is_empty() {
            config["config"]["Labels"] = json!(self.labels);
        }
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut entry = descriptor(MANIFEST, &manifest);
        entry["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        blobs.extend([layer, config, manifest]);
        Ok(entry)
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
fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest_of(blob), "size": blob.len()})
}

fn index(manifests: &[Value]) -> Value {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
}

/// The digest of these bytes, as images have it: `sha256:` and its hexadecimal digits.
pub fn digest_of(blob: &[u8]) -> String {
    let hex: Vec<String> = digest(&SHA256, blob).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

#[cfg(test)]
mod tests;
