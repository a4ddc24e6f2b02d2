//! The same flows on a stock kernel, in a virtual machine: the kernel's own Foo-over-UDP beside BPF, both relative to plain
//! routing there. The machine is emulated, so only the ratios say something.
//!
//! This program runs itself in the machine ([`inside`]), and reads the rows of the table from the machine's console.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tenure_linux::egress::Datapath;
use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::vm::VirtualMachine;

use super::traffic::{self, Size};
use crate::measure::Effort;
use crate::report::Report;

/// The argument by which this program knows that it is inside.
pub(crate) const ARGUMENT: &str = "--in-machine";
/// How a line of the console begins that has cells of a row.
const ROW: &str = "row of the table: ";
/// The machine is emulated, and has other things beside it.
const LIMIT: Duration = Duration::from_mins(30);

/// The table, from the machine.
pub(super) fn measure(effort: Effort) -> Result<Report> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let name = own.file_name().context("this program has no name")?.to_string_lossy().into_owned();
    let binaries = Binaries::locate([Program::Ip, Program::Nft])?;
    let machine = VirtualMachine::new()?
        .program(&own)
        .program(binaries.path(Program::Ip)?)
        .program(binaries.path(Program::Nft)?);
    let directory = tempfile::tempdir()?;
    let quick = if effort == Effort::Quick { " --quick" } else { "" };
    let ended = machine.run(directory.path(), &format!("{name} {ARGUMENT}{quick}"), LIMIT)?;
    ensure!(ended.code == 0, "the measurement in the machine failed: {}", ended.console);
    let lines = ended.console.lines().filter_map(|line| line.strip_prefix(ROW));
    let mut rows = lines.map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<Vec<String>>>>()?;
    ensure!(rows.len() > 1, "the machine showed no table: {}", ended.console);
    let mut report = Report::of_columns(
        "Egress: the same on Debian's cloud kernel, in an emulated machine",
        &rows.remove(0),
    );
    for row in &rows {
        report.cells(row);
    }
    Ok(report)
}

/// What this program does inside: measures both datapaths, and shows the rows.
pub(crate) fn inside(effort: Effort) -> Result<()> {
    let mut datapaths = [Datapath::bpf()?, Datapath::kernel()?];
    let mut out = std::io::stdout().lock();
    traffic::measure_by(&Size::emulated(effort), &mut datapaths, |row| {
        writeln!(out, "{ROW}{}", serde_json::to_string(row)?)?;
        Ok(())
    })
}
