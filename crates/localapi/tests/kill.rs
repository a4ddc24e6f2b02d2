//! What was acknowledged is on disk: a process that writes is killed at a random moment, over and over.
//!
//! This binary is both sides. As the child it writes to the file that it is given, says what it is about to do and
//! what was acknowledged. As the parent it kills the child, opens the file and compares. The seed is printed and can
//! be given with `TENURE_SEED`.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test with its own main")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use tenure_handles::{Entropy, SeededEntropy, SystemClock, SystemEntropy};
use tenure_localapi::{LocalApi, Options};

const ROUNDS: u64 = 20;
const WRITERS: u64 = 6;
const NAMES_PER_WRITER: u64 = 3;
/// Small, so that old revisions are forgotten all the time.
const HISTORY: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("child") => {
            let path = arguments.next().expect("a path");
            let seed = arguments.next().expect("a seed").parse().expect("a number");
            child(Path::new(&path), seed);
        }
        // `cargo test -- --list` and filters: there is one test here.
        Some("--list") => say("kill: test"),
        _ => parent(),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may be gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn open(path: &Path, seed: u64) -> LocalApi {
    Options::default().history(HISTORY).open(path, SystemClock, SeededEntropy::new(seed)).unwrap()
}

fn child(path: &Path, seed: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let api = open(path, seed);
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write_for_ever(api.clone(), writer, seed)));
        futures::future::join_all(writers).await;
    });
}

/// One writer per name, so that at most one write of a name is under way.
async fn write_for_ever(api: LocalApi, writer: u64, seed: u64) {
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    let entropy = SeededEntropy::new(seed ^ (writer << 32));
    for step in 0_u64.. {
        let name = format!("w{writer}-{}", entropy.next_u64() % NAMES_PER_WRITER);
        let existing = maps.get_opt(&name).await.unwrap();
        match existing {
            Some(_) if entropy.next_u64().is_multiple_of(4) => {
                say(&format!("try {name} -"));
                maps.delete(&name, &DeleteParams::default()).await.unwrap();
                say(&format!("done {name} {}", api.resource_version()));
            }
            existing => {
                let data = format!("{seed}-{step}");
                say(&format!("try {name} {data}"));
                let mut map = existing.clone().unwrap_or_default();
                map.metadata.name = Some(name.clone());
                map.data = Some(BTreeMap::from([("k".to_owned(), data)]));
                let written = if existing.is_some() {
                    maps.replace(&name, &PostParams::default(), &map).await.unwrap()
                } else {
                    maps.create(&PostParams::default(), &map).await.unwrap()
                };
                say(&format!("done {name} {}", written.resource_version().unwrap()));
            }
        }
    }
}

/// What is known of one name: what was acknowledged, and what was under way.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    acknowledged: State,
    under_way: Option<State>,
}

/// The data of an object, or none where there is no object.
type State = Option<String>;

fn parent() {
    let seed = std::env::var("TENURE_SEED")
        .ok()
        .map_or_else(|| SystemEntropy::new().unwrap().next_u64(), |text| text.parse().unwrap());
    say(&format!("running 1 test\nkilling a writer {ROUNDS} times, TENURE_SEED={seed}"));
    let chance = SeededEntropy::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut version = 0;
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let words = 1 + chance.next_u64() % 80;
        let delay = Duration::from_micros(chance.next_u64() % 3_000);
        let lines = run_and_kill(&path, chance.next_u64(), words, delay);
        for line in &lines {
            acknowledged += usize::from(take_in(line, &mut known, &mut version));
        }
        check(&path, round, &mut known, &mut version);
    }
    assert!(acknowledged > 100, "only {acknowledged} writes were acknowledged in {ROUNDS} rounds");
    say(&format!("{acknowledged} acknowledged writes, none lost\ntest result: ok. 1 passed"));
}

/// Everything that a child said before it was killed, `delay` after so many words: slow disks get as far as fast ones.
fn run_and_kill(path: &Path, seed: u64, words: u64, delay: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("child")
        .arg(path)
        .arg((seed >> 1).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (said, heard) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in output.lines() {
            let _ = said.send(());
            lines.push(line.unwrap());
        }
        lines
    });
    for _ in 0..words {
        heard.recv_timeout(Duration::from_secs(20)).expect("the child says something");
    }
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Whether the line was an acknowledgement. A last line that was cut off says nothing.
fn take_in(line: &str, known: &mut BTreeMap<String, Known>, version: &mut u64) -> bool {
    let parts: Vec<&str> = line.split(' ').collect();
    let [word, name, value] = parts.as_slice() else { return false };
    let entry = known.entry((*name).to_owned()).or_default();
    match *word {
        "try" => {
            entry.under_way = Some((*value != "-").then(|| (*value).to_owned()));
            false
        }
        "done" => {
            entry.acknowledged = entry.under_way.take().expect("it was tried");
            *version = (*version).max(value.parse().unwrap_or(0));
            true
        }
        other => panic!("the child said {other:?}"),
    }
}

fn check(path: &Path, round: u64, known: &mut BTreeMap<String, Known>, version: &mut u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = open(path, round);
        let found = api.resource_version();
        assert!(found >= *version, "round {round}: version {found} after {version} was acknowledged");
        *version = found;
        let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
        let list = maps.list(&ListParams::default()).await.unwrap();
        let mut there: BTreeMap<String, String> =
            list.items.iter().map(|map| (map.name_any(), map.data.as_ref().unwrap()["k"].clone())).collect();
        for (name, entry) in known.iter_mut() {
            let actual = there.remove(name);
            let fits = actual == entry.acknowledged || entry.under_way.as_ref() == Some(&actual);
            assert!(fits, "round {round}: {name} is {actual:?}, known was {entry:?}");
            *entry = Known { acknowledged: actual, under_way: None };
        }
        assert!(there.is_empty(), "round {round}: nobody wrote {there:?}");
        api.close();
    });
}
