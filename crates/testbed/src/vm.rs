//! A virtual machine with a stock kernel that runs one program and ends.
//!
//! What this machine's kernel does not have (tunnels, VLANs, bonds) another one has. It boots by qemu's plain emulation
//! in seconds; its root is an archive in memory with the program, what it is linked with, and the kernel's modules for
//! networks. The program runs as root with nothing beside it, and what it prints comes back.

mod archive;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::binaries::{Binaries, Kernel, Program};
use crate::process;

use archive::Archive;

/// The kernel's modules that go along: networks, and what they need.
const MODULES: [&str; 5] = ["kernel/net", "kernel/lib", "kernel/crypto", "kernel/arch", "kernel/drivers/net"];
/// How a line begins that says how the program ended.
const ENDED: &str = "the program ended with ";

/// What came of a program in a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it said on its way out.
    pub code: i32,
    /// All that the machine's console showed.
    pub console: String,
}

/// What a virtual machine is made of.
#[derive(Clone, Debug)]
pub struct VirtualMachine {
    qemu: PathBuf,
    kernel: Kernel,
    busybox: PathBuf,
    programs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    modules: Vec<String>,
}

impl VirtualMachine {
    /// A machine with busybox, and nothing else yet. Downloads what is missing.
    pub fn new() -> Result<Self> {
        let binaries = Binaries::locate([Program::Qemu, Program::Busybox])?;
        let busybox = binaries.path(Program::Busybox)?.to_owned();
        let kernel = Kernel::locate(&busybox)?;
        let qemu = binaries.path(Program::Qemu)?.to_owned();
        Ok(Self { qemu, kernel, busybox, programs: Vec::new(), files: Vec::new(), modules: Vec::new() })
    }

    /// With a program of this machine in `/bin`, and what it is linked with.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }

    /// With a file of this machine, at the same path.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// With a module loaded before the program starts.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }

    /// Boots, runs a line of shell, and waits for its end.
    pub fn run(&self, directory: &Path, line: &str, limit: Duration) -> Result<Ended> {
        let root = directory.join("root.cpio");
        self.archive(line)?.write(&root).context("write the machine's root")?;
        let console = directory.join("console");
        let machine = process::Program::new("the virtual machine", &self.qemu, &console)
            .args([
                "-accel",
                "tcg",
                "-m",
                "2048",
                "-smp",
                "2",
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args(["-serial", "stdio", "-kernel"])
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(&root)
            .args(["-append", "console=ttyS0 quiet panic=-1 ipv6.disable=0"])
            .start()?;
        let ended = machine.wait(limit);
        let console = fs::read(&console).context("read the machine's console")?;
        let console = String::from_utf8_lossy(&console).replace('\r', "");
        ensure!(ended, "the virtual machine did not end within {limit:?}; its console: {console}");
        let code = console.lines().rev().find_map(|line| line.strip_prefix(ENDED)?.trim().parse().ok());
        match code {
            Some(code) => Ok(Ended { code, console }),
            None => bail!("the virtual machine ended before its program; its console: {console}"),
        }
    }

    fn archive(&self, line: &str) -> Result<Archive> {
        let mut archive = Archive::default();
        for directory in ["proc", "sys", "dev", "run", "tmp", "root", "etc"] {
            archive.directory(directory);
        }
        archive.program("bin/busybox", fs::read(&self.busybox)?);
        for name in ["sh", "mount", "modprobe", "poweroff", "cat", "sleep", "echo", "dmesg"] {
            archive.link(&format!("bin/{name}"), "/bin/busybox");
        }
        // Where the kernel looks for it when it needs a module.
        archive.link("sbin/modprobe", "/bin/busybox");
        archive.program("init", self.init(line).into_bytes());
        for program in &self.programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            archive.program(&format!("bin/{name}"), fs::read(program)?);
            for library in libraries(program)? {
                archive.program(library.trim_start_matches('/'), fs::read(&library)?);
            }
        }
        for file in &self.files {
            let text = fs::read(file).with_context(|| format!("read {}", file.display()))?;
            archive.program(file.to_string_lossy().trim_start_matches('/'), text);
        }
        let modules = format!("lib/modules/{}", self.kernel.version);
        for part in MODULES {
            archive.tree(&self.kernel.modules.join(part), &format!("{modules}/{part}"))?;
        }
        for entry in fs::read_dir(&self.kernel.modules)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let name = entry.file_name();
                archive.program(&format!("{modules}/{}", name.to_string_lossy()), fs::read(entry.path())?);
            }
        }
        Ok(archive)
    }

    fn init(&self, line: &str) -> String {
        let modules: Vec<String> = self.modules.iter().map(|module| format!("modprobe {module}\n")).collect();
        let modules = modules.concat();
        format!(
            "#!/bin/sh\nexport PATH=/bin:/sbin HOME=/root\n\
             mount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t devtmpfs dev /dev\n\
             mount -t tmpfs tmpfs /run\nmount -t tmpfs tmpfs /tmp\n{modules}({line})\necho \"{ENDED}$?\"\npoweroff -f\n"
        )
    }
}

/// The files that a program is linked with at run time.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    Ok(text.lines().filter_map(path).collect())
}
