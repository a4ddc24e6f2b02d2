//! What a process, and an agent, tell of themselves.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::machine::{Machine, SOON};

/// How much memory a process has in use, in bytes.
pub(crate) fn resident(pid: i32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kilobytes.context("the kernel does not say how much memory a process has")? * 1024.0)
}

/// How much processor time a process has had, and how much its children that are gone, in nanoseconds.
pub(crate) fn processor_time(pid: i32) -> Result<(f64, f64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may have anything in it; user and system time are the 14th field and those after it.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split_whitespace().skip(11));
    let ticks: Vec<f64> = fields.into_iter().flatten().take(4).filter_map(|it| it.parse().ok()).collect();
    let [user, system, users, systems] = ticks[..] else { bail!("the kernel does not say what {pid} took") };
    // The kernel counts hundredths of a second for everybody.
    Ok(((user + system) * 1e7, (users + systems) * 1e7))
}

/// How often the agent on a host has called the API server, but for watches that went on.
pub(crate) fn api_calls(machine: &Machine) -> Result<f64> {
    let metrics = page(&machine.path("/run/tenure/state.sock")?, "/metrics")?;
    let lines = metrics.lines().filter(|line| line.starts_with("tenure_agent_api_calls_total{"));
    let counts = lines.filter(|line| !line.contains("verb=\"watch\"")).filter_map(value);
    Ok(counts.sum())
}

/// A page that is served at a unix socket.
fn page(socket: &Path, path: &str) -> Result<String> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot reach {}", socket.display()))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(text.starts_with("HTTP/1.1 200"), "{path}: {}", text.lines().next().unwrap_or_default());
    Ok(text)
}

fn value(line: &str) -> Option<f64> {
    line.rsplit_once(' ')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = processor_time(own).unwrap().0;
        let began = std::time::Instant::now();
        let mut sum = 0_u64;
        while processor_time(own).unwrap().0 < before + 2e7 && began.elapsed() < SOON {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_time(own).unwrap().0 >= before + 2e7, "{sum}");
    }
}
