//! Installs the CNI plugin and the network's configuration where the container runtime looks for them.
//!
//! Each file is complete or missing, even after a power failure: it is written under another name, synced and
//! renamed. A file that is already right is not touched, so a restart changes nothing that the runtime
//! watches. Nothing is removed when the agent stops: the plugin answers without the agent as far as possible,
//! and the next agent finds its node as the last one left it.

pub mod gke;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use tenure_agent::run::Progress;
use tenure_cni::plugin::SOCKET_VARIABLE;
use tenure_cni::rpc;

/// The plugin's file name beside the agent's program.
const PLUGIN: &str = "tenure-cni";
/// Our own name for it.
const OURS: &str = "tenure";
/// The name by which networks ask Whereabouts for addresses.
const WHEREABOUTS: &str = "whereabouts";
/// The name of the network whose configuration is installed.
pub const NETWORK: &str = "tenure";
/// The names under which runtimes call it: ours, and Coil's, Whereabouts' and GCP-CNI's for existing configurations.
const PLUGIN_NAMES: [&str; 4] = [OURS, "coil", WHEREABOUTS, gke::PLUGIN];
/// A runtime uses the first file in alphabetical order.
const CONFIGURATION: &str = "10-tenure.conflist";

/// A file could not be installed.
#[derive(Debug, thiserror::Error)]
#[error("install {what}: {act} {}", path.display())]
pub struct InstallError {
    what: &'static str,
    act: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The result for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It already existed with the same content and permissions.
    AlreadyThere,
    /// It was written.
    Written,
    /// Another program has the name, and may not be replaced.
    LeftToAnother,
}

/// Installs the plugin from beside this program into `directory`, under each of its names. Whereabouts' own
/// program keeps its name unless `replace_whereabouts`, and GCP-CNI's unless `replace_gcp`: from then on two
/// programs write the same objects, so people must decide that.
pub fn plugin(directory: &Path, replace_whereabouts: bool, replace_gcp: bool) -> Result<(), InstallError> {
    let failed = |act, path: &Path| error("the CNI plugin", act, path);
    let own = std::env::current_exe().map_err(failed("find", Path::new("/proc/self/exe")))?;
    let from = own.with_file_name(PLUGIN);
    let bytes = fs::read(&from).map_err(failed("read", &from))?;
    for name in PLUGIN_NAMES {
        let path = directory.join(name);
        let (replace, flag) = match name {
            WHEREABOUTS => (replace_whereabouts, "--replace-whereabouts"),
            gke::PLUGIN => (replace_gcp, "--cni-rewrite=gke"),
            _ => (true, ""),
        };
        match put_plugin(directory, name, &bytes, replace)? {
            Installed::LeftToAnother => tracing::warn!(
                path = %path.display(),
                "another program has this name and serves its networks; {flag} puts the CNI plugin there"
            ),
            installed => {
                tracing::info!(path = %path.display(), ?installed, "the CNI plugin is in place");
            }
        }
    }
    Ok(())
}

/// Removes the plugin under each of its names, unless another program has the name, and the network's configurations. Returns what
/// was removed, and what was left to other programs.
pub fn remove(plugins: &Path, configurations: &Path) -> (Vec<PathBuf>, Vec<PathBuf>, Vec<InstallError>) {
    let (mut removed, mut left, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let mut note = |path: PathBuf, outcome: Result<bool, InstallError>| match outcome {
        Ok(true) => removed.push(path),
        Ok(false) => {}
        Err(error) => failed.push(error),
    };
    // First, so that the runtime starts no pod with a plugin that is gone.
    for name in [CONFIGURATION, gke::OURS] {
        let path = configurations.join(name);
        note(path.clone(), take_away(&path));
    }
    for name in PLUGIN_NAMES {
        let path = plugins.join(name);
        match is_anothers(&path) {
            Ok(true) => left.push(path),
            Ok(false) => note(path.clone(), take_away(&path)),
            Err(error) => note(path, Err(error)),
        }
    }
    (removed, left, failed)
}

/// Removes a file of ours, and what an interrupted write left beside it. Tells whether there was one.
fn take_away(path: &Path) -> Result<bool, InstallError> {
    let mut there = false;
    for path in [path, &beside(path)] {
        match fs::remove_file(path) {
            Ok(()) => there = true,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
            Err(failed) => return Err(error("what was installed", "remove", path)(failed)),
        }
    }
    Ok(there)
}

/// Where a file is written before it is renamed. With this ending no runtime reads it as a configuration.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn put_plugin(directory: &Path, name: &str, bytes: &[u8], replace: bool) -> Result<Installed, InstallError> {
    let path = directory.join(name);
    if !replace && is_anothers(&path)? {
        return Ok(Installed::LeftToAnother);
    }
    put("the CNI plugin", &path, bytes, 0o755)
}

/// Whether a program that is not ours, in any version, has the path: all of ours contain the agent's socket.
fn is_anothers(path: &Path) -> Result<bool, InstallError> {
    match fs::read(path) {
        Ok(there) => Ok(!there.windows(rpc::SOCKET.len()).any(|part| part == rpc::SOCKET.as_bytes())),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(failed) => Err(error("the CNI plugin", "read", path)(failed)),
    }
}

/// The configuration of the cluster's network.
#[derive(Clone, Copy, Debug)]
pub struct Network<'n> {
    /// The agent's socket.
    pub socket: &'n Path,
    /// Whether claims may keep its addresses.
    pub persistent_ips: bool,
}

/// Installs the network's configuration into `directory`, if given, as soon as the agent answers at its
/// socket: from then on the runtime reports that its network is ready.
pub async fn configuration_once_serving(
    directory: Option<&Path>,
    network: Network<'_>,
    mut progress: Progress,
) -> Result<(), InstallError> {
    match directory {
        Some(directory) if progress.serving().await => configuration(directory, network),
        _ => Ok(()),
    }
}

fn configuration(directory: &Path, network: Network<'_>) -> Result<(), InstallError> {
    let path = directory.join(CONFIGURATION);
    if network.socket != Path::new(rpc::SOCKET) {
        tracing::warn!(
            "the plugin finds this agent only if the container runtime's environment has {SOCKET_VARIABLE}={}",
            network.socket.display()
        );
    }
    let installed = put("the network's configuration", &path, configuration_text(network).as_bytes(), 0o644)?;
    tracing::info!(path = %path.display(), ?installed, "the network's configuration is in place");
    Ok(())
}

fn configuration_text(network: Network<'_>) -> String {
    let mut plugin = json!({"type": OURS});
    if network.persistent_ips {
        // Inside the plugin: a runtime does not pass on what a list has beside its plugins.
        plugin["allowPersistentIPs"] = json!(true);
    }
    // From 1.1.0 on a runtime asks for the plugin's STATUS and marks the whole node unready if there is no
    // answer or a pool is exhausted. Running pods would be evicted while an agent is upgraded.
    let configuration = json!({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [plugin]});
    format!("{configuration:#}\n")
}

/// Makes `path` a file of these bytes and permissions, atomically for readers.
fn put(what: &'static str, path: &Path, bytes: &[u8], mode: u32) -> Result<Installed, InstallError> {
    let is_so = |metadata: fs::Metadata| metadata.is_file() && metadata.permissions().mode() & 0o7777 == mode;
    if fs::symlink_metadata(path).is_ok_and(is_so) && fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(Installed::AlreadyThere);
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(error(what, "make", directory))?;
    let beside = beside(path);
    let written = write_beside(&beside, bytes, mode).map_err(error(what, "write", &beside)).and_then(|()| {
        fs::rename(&beside, path).map_err(error(what, "rename what was written beside to", path))
    });
    if let Err(failed) = written {
        // The file is useless; a failure to remove it is not the error to report.
        let _ = fs::remove_file(&beside);
        return Err(failed);
    }
    File::open(directory).and_then(|open| open.sync_all()).map_err(error(what, "sync", directory))?;
    Ok(Installed::Written)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(path)?;
    // The mode above is subject to the umask of this process, and does not change a file that a crash left.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn error(
    what: &'static str,
    act: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> InstallError + use<> {
    let path = path.to_owned();
    move |source| InstallError { what, act, path, source }
}

#[cfg(test)]
mod tests;
