//! A host that NetworkManager manages: the real one, with a D-Bus of its own, in a root of its own.
//!
//! A [`Disk`] is what survives a reboot: NetworkManager's configuration, profiles and state. [`Disk::boot`] gives it to
//! a [`Host`]: it mounts the root, and starts dbus-daemon and NetworkManager inside. The root has the machine's `/usr`
//! below that of the packages, and nothing else of the machine's files. Its `/sys` is read-only: NetworkManager
//! takes that for a container and does not wait for a udev that would have to know the host's interfaces.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::binaries::NetworkManagerFiles;
use crate::hosts::{Host, HostChild};
use crate::run_directory::RunDirectory;
use crate::wait;

/// Mounts the root `$1`, with the packages' files below `$2`. The host's other programs find D-Bus where it always is.
const MOUNT: &str = r#"
set -eu
mount -t overlay overlay -o "lowerdir=$2/usr:/usr" "$1/usr"
mount -t tmpfs tmpfs "$1/run"
mkdir -p "$1/run/dbus" "$1/run/NetworkManager"
ln -s "$1/run/dbus" /run/dbus
mount -t sysfs -o ro sysfs "$1/sys"
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
"#;

/// Everybody in the root may do everything, and no service is started on demand.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow send_type="signal"/><allow receive_sender="*"/>
  </policy>
</busconfig>
"#;

/// The files of a host with NetworkManager. Survives reboots; removed when it is dropped.
#[derive(Debug)]
pub struct Disk {
    files: NetworkManagerFiles,
    directory: RunDirectory,
}

impl Disk {
    /// A disk with a fresh NetworkManager that leaves these interfaces alone and has no profiles.
    pub fn new(unmanaged: &[&str]) -> Result<Self> {
        let files = NetworkManagerFiles::locate()?;
        let directory =
            RunDirectory::create("network-manager").context("making a directory for NetworkManager")?;
        let disk = Self { files, directory };
        disk.fill(unmanaged).context("writing NetworkManager's files")?;
        Ok(disk)
    }

    fn fill(&self, unmanaged: &[&str]) -> io::Result<()> {
        let root = self.root();
        for directory in [
            "usr",
            "run",
            "proc",
            "sys",
            "dev",
            "tmp",
            "etc/NetworkManager/system-connections",
            "var/lib/NetworkManager",
        ] {
            fs::create_dir_all(root.join(directory))?;
        }
        for (name, target) in [
            ("bin", "usr/bin"),
            ("sbin", "usr/sbin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
            ("var/run", "../run"),
        ] {
            std::os::unix::fs::symlink(target, root.join(name))?;
        }
        for name in ["passwd", "group"] {
            fs::copy(Path::new("/etc").join(name), root.join("etc").join(name))?;
        }
        fs::write(root.join("etc/bus.conf"), BUS)?;
        let unmanaged: Vec<String> = unmanaged.iter().map(|name| format!("interface-name:{name}")).collect();
        let configuration = format!(
            "[main]\nplugins=keyfile\ndns=none\nrc-manager=unmanaged\nno-auto-default=*\n\
             [keyfile]\nunmanaged-devices={}\n",
            unmanaged.join(";")
        );
        fs::write(root.join("etc/NetworkManager/NetworkManager.conf"), configuration)
    }

    /// The directory that is the root of NetworkManager's programs.
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The profiles that NetworkManager has written, by file name.
    pub fn profiles(&self) -> Result<Vec<(String, String)>> {
        let mut profiles = Vec::new();
        for entry in fs::read_dir(self.root().join("etc/NetworkManager/system-connections"))? {
            let entry = entry?;
            profiles
                .push((entry.file_name().to_string_lossy().into_owned(), fs::read_to_string(entry.path())?));
        }
        profiles.sort();
        Ok(profiles)
    }

    /// Mounts the files in a host, and starts D-Bus, but not NetworkManager. The host must be a new one, or one whose
    /// processes have ended.
    pub fn mount<'d>(&'d self, host: &'d Host) -> Result<ManagedHost<'d>> {
        let (root, files) = (self.root(), &self.files.root);
        host.command("sh").args(["-c", MOUNT, "mount"]).arg(&root).arg(files).succeed()?;
        let bus =
            self.start(host, "dbus-daemon", &["--config-file=/etc/bus.conf", "--nofork", "--nopidfile"])?;
        // In the host's file system: the machine does not see its mounts.
        let socket = host.path(root.join("run/dbus/system_bus_socket"))?;
        wait::until("the socket of D-Bus", || socket.exists().then_some(()));
        Ok(ManagedHost { disk: self, host, bus, network_manager: None })
    }

    /// The same with NetworkManager running.
    pub fn boot<'d>(&'d self, host: &'d Host) -> Result<ManagedHost<'d>> {
        let mut managed = self.mount(host)?;
        managed.start_network_manager()?;
        Ok(managed)
    }

    /// Starts a program in the root. Its output is kept with the logs of the test bed.
    fn start(&self, host: &Host, program: &str, arguments: &[&str]) -> Result<HostChild> {
        let log = self.directory.logs().join(format!("{}-{program}.log", host.name()));
        let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
        let command = host.command("chroot").arg(self.root()).arg(program).args(arguments);
        Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
    }

    /// Keeps the logs even if the test succeeds.
    pub fn keep_logs(&self) {
        self.directory.keep_logs();
    }
}

/// A host with a running D-Bus, and maybe a running NetworkManager. They end with the host's processes.
#[derive(Debug)]
pub struct ManagedHost<'d> {
    disk: &'d Disk,
    host: &'d Host,
    bus: HostChild,
    network_manager: Option<HostChild>,
}

impl ManagedHost<'_> {
    /// The host, whose programs find D-Bus below `/run/dbus`.
    pub fn host(&self) -> &Host {
        self.host
    }

    /// What `nmcli` answers.
    pub fn nmcli(&self, arguments: &[&str]) -> Result<String> {
        let command = self.host.command("chroot").arg(self.disk.root()).arg("nmcli");
        Ok(command.args(arguments).succeed()?)
    }

    /// Starts NetworkManager, and waits until it has looked at all interfaces.
    pub fn start_network_manager(&mut self) -> Result<()> {
        ensure!(self.network_manager.is_none(), "NetworkManager of {} runs already", self.host.name());
        self.network_manager = Some(self.disk.start(self.host, "NetworkManager", &["--debug"])?);
        wait::until("NetworkManager", || {
            let answer = self.nmcli(&["--terse", "--fields", "STARTUP", "general"]);
            answer.is_ok_and(|startup| startup.trim() == "started").then_some(())
        });
        Ok(())
    }

    /// Ends NetworkManager as its service does; what it has configured stays.
    pub fn stop_network_manager(&mut self) -> Result<()> {
        if let Some(running) = self.network_manager.take() {
            running.signal(nix::sys::signal::Signal::SIGTERM)?;
            ensure!(
                running.wait_for(wait::PATIENCE).is_some(),
                "NetworkManager of {} does not end",
                self.host.name()
            );
        }
        Ok(())
    }

    /// Ends D-Bus, and removes its socket.
    pub fn stop_bus(&mut self) -> Result<()> {
        self.bus.kill()?;
        let socket = self.host.path(self.disk.root().join("run/dbus/system_bus_socket"))?;
        fs::remove_file(&socket).with_context(|| format!("removing {}", socket.display()))
    }

    /// NetworkManager, if it runs.
    pub fn network_manager(&self) -> Option<&HostChild> {
        self.network_manager.as_ref()
    }
}
