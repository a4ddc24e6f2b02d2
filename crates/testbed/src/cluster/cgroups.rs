//! A node's control groups.
//!
//! Each node has its own group in every hierarchy; otherwise kubelets would delete each other's pods. Groups
//! are the only part of a node that the kernel does not remove with its last process, so their names tell the
//! owner: `tenure-RUN-NODE`, where `RUN` is the name of the run's directory and contains the process ID of
//! its owner.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ClusterError;
use crate::run_directory;

const PREFIX: &str = "tenure-cluster-";
/// A group stays busy for a moment after the last process in it was killed.
const TRIES: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(25);

/// The control groups of one node. Dropping this removes them and all below, and kills their remaining
/// processes.
#[derive(Debug)]
pub(super) struct Cgroups {
    name: String,
}

impl Cgroups {
    /// Creates them for the node `node` of the run with the directory name `run`.
    pub(super) fn create(run: &str, node: &str) -> Result<Self, ClusterError> {
        let cgroups = Self { name: format!("tenure-{run}-{node}") };
        cgroups.create_all()?;
        Ok(cgroups)
    }

    /// Empties them, as a reboot would.
    pub(super) fn clear(&self) -> Result<(), ClusterError> {
        self.remove_all();
        self.create_all()
    }

    fn create_all(&self) -> Result<(), ClusterError> {
        for root in hierarchies()? {
            self.create_in(&root).map_err(|source| ClusterError::File {
                act: "making the control group",
                path: root.join(&self.name),
                source,
            })?;
        }
        Ok(())
    }

    /// Their path in every hierarchy.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    fn remove_all(&self) {
        for root in hierarchies().unwrap_or_default() {
            let group = root.join(&self.name);
            if let Err(error) = remove(&group) {
                tracing::warn!(%error, group = %group.display(), "a control group could not be removed");
            }
        }
    }

    fn create_in(&self, root: &Path) -> io::Result<()> {
        let group = root.join(&self.name);
        // In the unified hierarchy, groups have the controllers that their parents enable.
        if let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) {
            for controller in controllers.split_whitespace() {
                // A controller that cannot be enabled is not needed.
                let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        fs::create_dir_all(&group)?;
        // In version 1 a cpuset starts empty, and no process can be moved into an empty one.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = fs::read_to_string(root.join(file)) {
                fs::write(group.join(file), value.trim())?;
            }
        }
        Ok(())
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove_all();
    }
}

/// Removes the groups of runs whose process is gone, and ends the processes in them.
pub(super) fn sweep() -> Result<(), ClusterError> {
    for root in hierarchies()? {
        let Ok(entries) = fs::read_dir(&root) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(run) = name.to_str().and_then(run_of) else { continue };
            if is_over(&run) && remove(&entry.path()).is_err() {
                tracing::warn!(group = %entry.path().display(), "a left-over control group could not be removed");
            }
        }
    }
    Ok(())
}

/// The process ID and the directory's name of a group's run.
fn run_of(group: &str) -> Option<(u32, String)> {
    let mut words = group.strip_prefix(PREFIX)?.split('-');
    let (pid, count) = (words.next()?.parse().ok()?, words.next()?.parse::<u64>().ok()?);
    Some((pid, format!("cluster-{pid}-{count}")))
}

fn is_over((pid, run): &(u32, String)) -> bool {
    if !Path::new("/proc").join(pid.to_string()).exists() {
        return true;
    }
    // Another process may have the ID by now. The run's own process holds the lock in its directory.
    let Ok(directory) = run_directory::base().map(|base| base.join(run)) else { return false };
    directory.is_dir() && !run_directory::is_owned(&directory)
}

/// Removes a group and those below it; first kills their processes.
fn remove(group: &Path) -> io::Result<()> {
    for _ in 1..TRIES {
        match try_remove(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(INTERVAL),
            result => return result,
        }
    }
    try_remove(group)
}

fn try_remove(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            try_remove(&entry.path())?;
        }
    }
    for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
        // Zero stands for a process of another PID namespace that has no ID here.
        if let Some(pid) = pid.parse().ok().filter(|pid| *pid > 0) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The mount points of the hierarchies, of version 1 and 2.
fn hierarchies() -> Result<Vec<PathBuf>, ClusterError> {
    let path = PathBuf::from("/proc/self/mounts");
    let mounts =
        fs::read_to_string(&path).map_err(|source| ClusterError::File { act: "reading", path, source })?;
    Ok(cgroup_mounts(&mounts).map(PathBuf::from).collect())
}

fn cgroup_mounts(mounts: &str) -> impl Iterator<Item = &str> {
    mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (target, kind) = (words.next()?, words.next()?);
        matches!(kind, "cgroup" | "cgroup2").then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found: Vec<&str> = cgroup_mounts(mounts).collect();
        assert_eq!(found, ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"]);
    }

    #[test]
    fn a_group_says_whose_it_is_and_others_are_left_alone() {
        assert_eq!(run_of("tenure-cluster-12-3-node-1"), Some((12, "cluster-12-3".to_owned())));
        assert_eq!(run_of("tenure-cluster-x-3-node-1"), None);
        assert_eq!(run_of("system.slice"), None);
    }

    #[test]
    fn a_run_is_over_when_its_process_is_gone() {
        // Process IDs end at 2^22.
        assert!(is_over(&(u32::MAX, "cluster-4294967295-0".to_owned())));
        assert!(!is_over(&(std::process::id(), "cluster-of-another-directory".to_owned())));
    }
}
