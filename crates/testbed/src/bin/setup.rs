//! Prepares everything that tests and benchmarks need beyond cargo, and reports what it did: `cargo xtask
//! setup`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::binaries::{Binaries, Kernel, NetworkManagerFiles, Program};

fn main() -> ExitCode {
    match prepare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "the test bed is not complete: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> anyhow::Result<()> {
    let start = SystemClock.now();
    let binaries = Binaries::locate(Program::all())?;
    let kernel = Kernel::locate(binaries.path(Program::Busybox)?)?;
    let network_manager = NetworkManagerFiles::locate()?;
    let mut out = io::stdout().lock();
    for (program, found) in binaries.iter() {
        writeln!(out, "{:24} {:24} {}", program.name(), found.origin.to_string(), found.path.display())?;
    }
    writeln!(out, "{:24} {:24} {}", "Linux", kernel.version, kernel.image.display())?;
    writeln!(out, "{:24} {:24} {}", "NetworkManager", "unpacked", network_manager.root.display())?;
    writeln!(out, "the test bed is complete ({:.1} s)", SystemClock.now().since(start).as_secs_f64())?;
    Ok(())
}
