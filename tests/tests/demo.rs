//! `tenure demo`, as a user runs it: the programs beside it, as root and as nobody in particular; and nothing is left of it,
//! however it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::wait::PATIENCE;

const NOBODY: u32 = 65534;

/// One demo at a time, so that one does not slow down another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A directory with the programs under their names.
struct Installed {
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Installed {
    fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for (program, name) in [
            (env!("CARGO_BIN_EXE_bed-tenure"), "tenure"),
            (env!("CARGO_BIN_EXE_bed-tenured"), "tenured"),
            (env!("CARGO_BIN_EXE_bed-controller"), "tenure-controller"),
            (env!("CARGO_BIN_EXE_bed-cni"), "tenure-cni"),
            (env!("CARGO_BIN_EXE_bed-gateway"), "tenure-egress"),
        ] {
            fs::hard_link(program, directory.path().join(name)).unwrap();
        }
        let all_may_look = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(directory.path(), all_may_look).unwrap();
        Self { directory, _alone: alone }
    }

    fn demo(&self) -> Command {
        let mut command = Command::new(self.directory.path().join("tenure"));
        command.args(["demo", "--seed", "5", "--operations", "2000"]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The processes of the demo that there are.
    fn processes(&self) -> Vec<PathBuf> {
        let of_the_demo = |entry: fs::DirEntry| {
            let program = fs::read_link(entry.path().join("exe")).ok()?;
            program.starts_with(self.directory.path()).then_some(program)
        };
        fs::read_dir("/proc").unwrap().flatten().filter_map(of_the_demo).collect()
    }

    /// That the machine is as if there had been no demo.
    #[track_caller]
    fn assert_nothing_is_left(&self, before: &Machine) {
        let began = SystemClock.elapsed();
        while !self.processes().is_empty() {
            assert!(SystemClock.elapsed() < began + PATIENCE, "still there: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(*before, Machine::look());
    }
}

/// What a demo must leave as it was.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    links: Vec<String>,
    mounts: Vec<String>,
    directory: bool,
}

impl Machine {
    fn look() -> Self {
        let links = fs::read_dir("/sys/class/net").unwrap().flatten();
        let mut links: Vec<String> =
            links.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        links.sort();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter(|line| line.contains("tenure-demo")).map(str::to_owned).collect();
        Self { links, mounts, directory: Path::new("/run/tenure-demo").exists() }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_it_played(output: &Output) {
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    // Columns are as wide as what is in them.
    let narrow = shown.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{}\n{shown}\n{said}", output.status);
    for line in [
        "1. Start a Kubernetes API",
        "default ┆ 10.64.0.0/24 + fd64::/120 ┆ 16",
        "equally many addresses",
        "node-c ┆ 192.0.2.3, 2001:db8::3",
        "pod-c3 ┆ node-c ┆ 10.64.0.",
        "node-b ┆ node-a ┆ 9 answered, slowest ",
        "DEL of pod-b3 succeeds in ",
        "ADD of pod-b4 is told to try again later (code 11), in ",
        "It holds 4 addresses for pod-b1 and pod-b2 as before, and has done the DEL of pod-b3.",
        "ADD of pod-b4, tried again, gives 10.64.0.",
        "The network has allowPersistentIPs. Claim vm gets 10.64.0.",
        "vm-1 is started ┆ vm-1 on node-a ┆ ┆ node-a",
        "vm-2 is started ┆ vm-1 on node-a ┆ vm-2 on node-b ┆ node-a",
        "vm-2 gets tenure/active ┆ vm-2 on node-b ┆ vm-1 on node-a ┆ node-b",
        "vm-1 is deleted ┆ vm-2 on node-b ┆ ┆ node-b",
        "node-b answers ",
        "No pod is left: 10.64.0.",
        "belongs to claim default/vm",
        "belonged to claim default/vm, which is gone.",
        "is held by default/pod-c3",
        "9 DELs, the slowest in ",
        "POOL SIZE USED COOLING FREE BLOCKS BLOCKS PER NODE CONDITIONS",
        "default 256 0 11 245 4/16 (claims) 1, node-a 1, node-b 1, node-c 1 Ready",
        "10. Ask a server outside which address it sees",
        "11. Plug a second network into all hosts",
        "node-a ┆ eth1 ┆ 10.10.10.",
        "node-c ┆ eth1 ┆ 10.10.10.",
        "They ping each other on it; the slowest answer took ",
        "is held by node node-a by policy storage (NodeIPPool storage, on interface eth1)",
        "The policy is deleted: after ",
        "12. The hosts are machines of a cloud",
        "web-1 is started ┆ 1 ┆ node-a ┆ node-a",
        "web-2 takes it over ┆ 2 ┆ node-b ┆ node-b",
        "web-1 is deleted ┆ 0 ┆ node-b ┆ node-b",
        "The address is 10.111.0.",
        "13. Prove the engine's invariants over 2000 random operations (replay with --seed 5).",
        "no address had two holders",
    ] {
        assert!(narrow.contains(line), "{line:?} is missing in\n{shown}");
    }
    assert_it_left_by_a_gateway(&narrow, &shown);
    let questions = shown.lines().find(|line| line.contains("questions were answered")).unwrap();
    let numbers: Vec<u64> = questions.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] >= 400 && numbers[0] * 10 >= numbers[1] * 9, "{questions}");
    // Kernel and pods go on without an agent.
    let pings = shown.lines().find(|line| line.contains("pings were answered")).unwrap();
    let numbers: Vec<u64> = pings.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] >= 300 && numbers[0] == numbers[1], "{pings}");
}

/// The scene of egress, or why this kernel cannot play it.
///
/// A gateway's pool has blocks of one address, and its node asks for two at once, one ahead: the gateway gets the address of
/// the block that comes first.
fn assert_it_left_by_a_gateway(narrow: &str, shown: &str) {
    if narrow.contains("Left out: this node cannot serve egress: ") {
        return;
    }
    let (_, said) =
        narrow.split_once("Its gateway nat-1 has ").unwrap_or_else(|| panic!("no gateway: {shown}"));
    let (gateway, _) = said.split_once("; datapath: ").unwrap_or_else(|| panic!("no datapath: {shown}"));
    let (v4, v6) = gateway.split_once(", ").unwrap_or_else(|| panic!("one address of two: {gateway}"));
    assert!(v4.starts_with("203.0.113.") && v6.starts_with("2001:db8:f::"), "{gateway}");
    // Pod, annotation, whether it has egress.
    for (pod, annotation, leaves) in [
        ("client", "has it", true),
        ("plain", "does not have it", false),
        ("plain", "gets it while it runs", true),
    ] {
        let begins = format!("{pod} ┆ {annotation} ┆ 10.64.0.");
        let row = narrow.lines().find(|line| line.contains(&begins));
        let row = row.unwrap_or_else(|| panic!("{begins:?} is missing in {shown}"));
        let seen = row.trim_end_matches([' ', '│']).rsplit(" ┆ ").next().unwrap();
        assert!(if leaves { seen == gateway } else { seen.starts_with("10.64.0.") }, "{row:?}: {shown}");
    }
    let serves = format!("1 of 1 gateways serve, as {gateway}.");
    assert!(narrow.contains(&serves), "{serves:?} is missing in {shown}");
}

#[test]
fn it_plays_every_scene_and_leaves_nothing() {
    let (installed, before) = (Installed::new(), Machine::look());
    let output = installed.demo().output().unwrap();
    assert_it_played(&output);
    assert!(!text(&output.stdout).contains("Left out"), "root may load programs: {}", text(&output.stdout));
    installed.assert_nothing_is_left(&before);
}

#[test]
fn whoever_is_not_root_sees_the_same_or_is_told_what_is_needed() {
    let (installed, before) = (Installed::new(), Machine::look());
    let as_nobody = |command: &mut Command| command.uid(NOBODY).gid(NOBODY).output().unwrap();
    // Needs util-linux; says what this kernel lets nobody do, independently of us.
    let allowed =
        as_nobody(Command::new("unshare").args(["--user", "--map-root-user", "--net", "--mount", "true"]));
    let output = as_nobody(&mut installed.demo());
    if allowed.status.success() {
        assert_it_played(&output);
    } else {
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("it needs root, or user namespaces"),
            "{said}"
        );
    }
    installed.assert_nothing_is_left(&before);
}

#[test]
fn where_the_kernel_refuses_namespaces_it_says_what_is_needed() {
    let (installed, before) = (Installed::new(), Machine::look());
    // Root without the right to make namespaces, and where nobody may make user namespaces either. Needs util-linux.
    let script = r#"echo 0 > /proc/sys/user/max_user_namespaces
        exec setpriv --bounding-set=-sys_admin "$0" demo"#;
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(installed.directory.path().join("tenure"));
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("it needs root, or user namespaces"), "{said}");
    assert_eq!(text(&output.stdout), "");
    installed.assert_nothing_is_left(&before);
}

#[test]
fn ctrl_c_and_a_sudden_end_leave_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let (installed, before) = (Installed::new(), Machine::look());
        let mut demo = installed.demo().spawn().unwrap();
        wait_for_line(&mut demo, "4. Start nine pods");
        assert!(installed.processes().len() >= 6, "{:?}", installed.processes());
        kill(Pid::from_raw(i32::try_from(demo.id()).unwrap()), signal).unwrap();
        let output = demo.wait_with_output().unwrap();
        if signal == Signal::SIGINT {
            let said = text(&output.stderr);
            assert!(output.status.code() == Some(130) && said.contains("nothing is left"), "{said}");
            assert_eq!(installed.processes(), Vec::<PathBuf>::new(), "it ended before the others");
        }
        installed.assert_nothing_is_left(&before);
    }
}

#[test]
fn a_missing_program_is_named() {
    let installed = Installed::new();
    fs::remove_file(installed.directory.path().join("tenured")).unwrap();
    let output = installed.demo().output().unwrap();
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("/tenured; the demo runs the programs"),
        "{said}"
    );
}

/// Reads what a demo shows until a line begins like this. What comes after is read too, so that the demo goes on.
fn wait_for_line(demo: &mut Child, start: &str) {
    let mut shown = BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(start) {
        line.clear();
        assert_ne!(shown.read_line(&mut line).unwrap(), 0, "the demo ended before {start:?}");
    }
    std::thread::spawn(move || std::io::copy(&mut shown, &mut std::io::sink()));
}
