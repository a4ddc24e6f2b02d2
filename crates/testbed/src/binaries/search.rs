//! Finds programs that are already on the machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Found, Origin, Program};

/// The directories to search.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    assets: Option<PathBuf>,
    path: Vec<PathBuf>,
    cni_path: Vec<PathBuf>,
}

impl Search {
    /// Searches as this process's environment says.
    pub(super) fn from_environment() -> Self {
        Self::new(
            std::env::var_os("KUBEBUILDER_ASSETS"),
            std::env::var_os("PATH"),
            std::env::var_os("CNI_PATH"),
        )
    }

    fn new(assets: Option<OsString>, path: Option<OsString>, cni_path: Option<OsString>) -> Self {
        let split = |value: Option<OsString>| {
            value.map(|value| {
                std::env::split_paths(&value).filter(|path| path.is_absolute()).collect::<Vec<_>>()
            })
        };
        let mut path = split(path).unwrap_or_default();
        // Debian installs runc here, and users other than root do not have it on their PATH.
        for directory in ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from) {
            if !path.contains(&directory) {
                path.push(directory);
            }
        }
        Self {
            assets: assets.filter(|value| !value.is_empty()).map(PathBuf::from),
            path,
            cni_path: split(cni_path).unwrap_or_default(),
        }
    }

    /// The first match for `program`.
    pub(super) fn find(&self, program: Program) -> Option<Found> {
        let asset =
            self.assets.iter().map(|directory| directory.join(program.name())).find(|path| runs(path));
        if let Some(path) = asset {
            return Some(Found { path, origin: Origin::Assets });
        }
        let directories = if program.is_cni_plugin() { &self.cni_path } else { &self.path };
        let path = directories
            .iter()
            .map(|directory| directory.join(program.name()))
            .find(|path| runs(path) && will_do(program, path))?;
        Some(Found { path, origin: Origin::Path })
    }

    /// The first file of that name on `PATH`.
    pub(super) fn command(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        self.path.iter().map(|directory| directory.join(name.as_ref())).find(|path| runs(path))
    }
}

fn runs(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn will_do(program: Program, path: &Path) -> bool {
    if program.must_be_static() && !is_static(path) {
        return false;
    }
    let Some((arguments, wanted)) = program.version_on_path() else { return true };
    let Ok(output) = Command::new(path).args(arguments).output() else { return false };
    // BIRD prints it on standard error.
    is_version(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()), wanted)
}

/// Whether one of the words of `text` is a version that begins with `wanted`.
fn is_version(text: &str, wanted: &str) -> bool {
    text.split_whitespace().any(|word| word.strip_prefix('v').unwrap_or(word).starts_with(wanted))
}

/// A dynamically linked ELF file names its loader near its beginning.
fn is_static(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let beginning = &bytes[..bytes.len().min(4096)];
    bytes.starts_with(b"\x7fELF")
        && !beginning.windows(8).any(|window| window == b"/ld-linu" || window == b"/ld-musl")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn program(directory: &Path, name: &str, script: &str) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn assets_come_before_path_and_a_gap_in_them_is_filled_from_path() {
        let (assets, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let asset = program(assets.path(), "etcd", "");
        program(path.path(), "etcd", "");
        let other = program(path.path(), "kubectl", "echo Client Version: v1.35.2");
        let search = Search::new(Some(assets.path().into()), Some(path.path().into()), None);
        let etcd = search.find(Program::Etcd).unwrap();
        assert_eq!((etcd.path, etcd.origin), (asset, Origin::Assets));
        let kubectl = search.find(Program::Kubectl).unwrap();
        assert_eq!((kubectl.path, kubectl.origin), (other, Origin::Path));
        assert!(search.find(Program::KubeApiserver).is_none());
    }

    #[test]
    fn the_bridge_of_iproute2_is_not_taken_for_the_cni_plugin() {
        let (path, cni) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        program(path.path(), "bridge", "");
        let search = |cni: Option<&Path>| Search::new(None, Some(path.path().into()), cni.map(Into::into));
        assert!(search(None).find(Program::Bridge).is_none());
        let plugin = program(cni.path(), "bridge", "");
        assert_eq!(search(Some(cni.path())).find(Program::Bridge).unwrap().path, plugin);
    }

    #[test]
    fn a_kubelet_or_containerd_of_another_line_is_passed_over_on_path() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        program(old.path(), "kubelet", "echo Kubernetes v1.36.1");
        program(old.path(), "containerd", "echo containerd github.com/containerd/containerd 1.7.28 abcdef");
        let path = std::env::join_paths([old.path(), new.path()]).unwrap();
        let search = Search::new(None, Some(path), None);
        assert!(search.find(Program::Kubelet).is_none());
        assert!(search.find(Program::Containerd).is_none());
        let kubelet = program(new.path(), "kubelet", "echo Kubernetes v1.35.9");
        let containerd =
            program(new.path(), "containerd", "echo containerd github.com/containerd/containerd/v2 v2.3.0 x");
        assert_eq!(search.find(Program::Kubelet).unwrap().path, kubelet);
        assert_eq!(search.find(Program::Containerd).unwrap().path, containerd);
    }

    #[test]
    fn a_file_that_cannot_be_run_is_no_program() {
        let path = tempfile::tempdir().unwrap();
        fs::write(path.path().join("etcd"), "").unwrap();
        assert!(
            Search::new(Some(path.path().into()), Some(path.path().into()), None)
                .find(Program::Etcd)
                .is_none()
        );
    }

    #[test]
    fn a_script_or_a_dynamically_linked_file_is_not_static() {
        let path = tempfile::tempdir().unwrap();
        assert!(!is_static(&program(path.path(), "busybox", "")));
        let mut elf = b"\x7fELF".to_vec();
        elf.extend([0; 600]);
        fs::write(path.path().join("static"), &elf).unwrap();
        assert!(is_static(&path.path().join("static")));
        elf.extend(b"/lib64/ld-linux-x86-64.so.2");
        fs::write(path.path().join("dynamic"), &elf).unwrap();
        assert!(!is_static(&path.path().join("dynamic")));
    }
}
