//! The commands of `docs/start-host.md` do what the page says, on a host made of namespaces. Those of `docs/start-cluster.md` are
//! run by `install`. Needs root and iproute2.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::hosts::{Host, Mounts};
use tenure_testbed::wait::PATIENCE;
use tenure_tests::pages::Script;
use tenure_tests::programs;
use tenure_tests::reference::root;

/// The directories that the reader changes.
const OWN: [&str; 6] =
    ["/etc/cni", "/etc/tenure", "/opt/cni", "/usr/local/bin", "/var/lib/cni", "/var/lib/tenure"];

#[test]
fn five_minutes_on_one_host_go_as_the_page_says() {
    let directory = tempfile::tempdir().unwrap();
    let checkout = directory.path().join("checkout");
    let built = checkout.join("target/release");
    fs::create_dir_all(&built).unwrap();
    symlink(root().join("deploy"), checkout.join("deploy")).unwrap();
    for (name, program) in
        [("tenured", programs::tenured()), ("tenure-cni", programs::plugin()), ("tenure", programs::tenure())]
    {
        symlink(program, built.join(name)).unwrap();
    }
    let mounts = OWN.iter().fold(Mounts::default(), |mounts, own| {
        mounts.bind(directory.path().join(own.trim_start_matches('/').replace('/', "-")), own)
    });
    let host = Host::with_mounts("reader", mounts).unwrap();
    let binaries = Binaries::locate([Program::Cnitool]).unwrap();
    let tools = binaries.path(Program::Cnitool).unwrap().parent().unwrap();
    let path = format!("{}:{}", std::env::var("PATH").unwrap(), tools.display());

    let script = Script::of("docs/start-host.md");
    let output = |name: &str| File::create(directory.path().join(name)).unwrap();
    let shell = host
        .command("env")
        .args(["-u", "KUBECONFIG", "bash", "-c", &script.text()])
        .env("HOME", directory.path())
        .env("PATH", format!("/usr/local/bin:{path}"))
        .env("NO_COLOR", "1")
        .current_dir(&checkout)
        .stdin(Stdio::null())
        .stdout(output("said"))
        .stderr(output("complained"))
        .spawn()
        .unwrap();
    let ended = shell.wait_for(PATIENCE);
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let complained = text(&directory.path().join("complained"));
    let log = text(&checkout.join("tenured.log"));
    if let Err(problem) = script.compare(&text(&directory.path().join("said"))) {
        panic!("{problem}\non standard error:\n{complained}\ntenured:\n{log}");
    }
    assert!(ended.is_some_and(|ended| ended.success()), "{ended:?}: {complained}");
    host.end_processes();
}
