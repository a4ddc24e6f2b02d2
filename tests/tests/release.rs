//! What a release has besides its programs: manual pages that readers show without a complaint, completions that shells and kubectl take, and a
//! bill of materials that agrees with the lock files. Needs zsh, fish and mandoc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tenure_testbed::binaries::{Binaries, Program};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const TENURE: &str = env!("CARGO_BIN_EXE_bed-tenure");
/// Asks zsh, which completes only what somebody types, by typing.
const ASK_ZSH: &str = include_str!("release/ask.zsh");

/// Runs the tool in the sources' directory.
fn release(arguments: &[&str]) {
    let made =
        Command::new(env!("CARGO_BIN_EXE_bed-release")).args(arguments).current_dir(ROOT).output().unwrap();
    assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
}

/// Pages and completions, written anew.
fn manual() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    release(&["manual", directory.path().to_str().unwrap(), "--seconds", "1700000000"]);
    directory
}

fn program(program: Program) -> PathBuf {
    Binaries::locate([program]).unwrap().path(program).unwrap().to_owned()
}

/// What a command prints; it must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// What is seen on paper: a bold letter is typed twice, with a backspace between.
fn plain(typed: &str) -> String {
    let mut seen = String::new();
    for letter in typed.chars() {
        if letter == '\u{8}' {
            seen.pop();
        } else {
            seen.push(letter);
        }
    }
    seen
}

#[test]
fn manual_pages_are_shown_without_a_complaint() {
    let (manual, mandoc) = (manual(), program(Program::Mandoc));
    let pages: Vec<_> = ["man1", "man8"]
        .into_iter()
        .flat_map(|section| files(&manual.path().join("share/man").join(section)))
        .collect();
    assert!(pages.len() > 15, "{pages:?}");
    for page in &pages {
        let lint = Command::new(&mandoc).args(["-T", "lint", "-W", "warning"]).arg(page).output().unwrap();
        let complaints = String::from_utf8(lint.stdout).unwrap();
        assert!(complaints.is_empty(), "{complaints}");
        let shown = plain(&output(Command::new(&mandoc).args(["-T", "utf8"]).arg(page)));
        for part in ["NAME", "SYNOPSIS", "Tenure", "2023-11-14"] {
            assert!(shown.contains(part), "{}: no {part} in {shown}", page.display());
        }
    }
}

#[test]
fn bash_and_fish_complete_verbs_flags_and_values() {
    let (manual, fish) = (manual(), program(Program::Fish));
    let script = manual.path().join("share/bash-completion/completions/tenure");
    let bash = |line: &str| {
        let ask = r#". "$0"; COMP_WORDS=($1 "$2"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="$1 $2"
            _tenure tenure "$2" "${COMP_WORDS[COMP_CWORD - 1]}"; printf '%s\n' "${COMPREPLY[@]}""#;
        let (before, last) = line.rsplit_once(' ').unwrap();
        output(Command::new("bash").args(["--norc", "-c", ask]).arg(&script).args([before, last]))
    };
    let script = manual.path().join("share/fish/vendor_completions.d/tenure.fish");
    let fish = |line: &str| {
        let ask = format!("source {}; complete --do-complete '{line}'", script.display());
        let home = manual.path();
        output(Command::new(&fish).args(["--no-config", "-c", &ask]).env("HOME", home))
    };
    for ask in [&bash as &dyn Fn(&str) -> String, &fish] {
        for (line, expected) in [
            ("tenure poo", "pools"),
            ("tenure pools --out", "--output"),
            ("tenure pools --output js", "json"),
        ] {
            let found = ask(line);
            let words: BTreeSet<&str> = found.lines().filter_map(|line| line.split('\t').next()).collect();
            assert_eq!(words, BTreeSet::from([expected]), "{line}");
        }
    }
}

#[test]
fn zsh_completes_verbs_and_values() {
    let (manual, zsh) = (manual(), program(Program::Zsh));
    let functions = manual.path().join("share/zsh/site-functions");
    for (typed, expected) in
        [("tenure poo", "tenure pools "), ("tenure pools --output js", "tenure pools --output json ")]
    {
        // It waits for what the other zsh says.
        let mut ask = Command::new("timeout");
        ask.arg("300")
            .arg(&zsh)
            .args(["-f", "-c", ASK_ZSH])
            .arg(&functions)
            .arg(typed)
            .env("HOME", manual.path())
            .env("TERM", "dumb");
        assert_eq!(output(&mut ask).trim_end_matches('\n'), expected);
    }
}

#[test]
fn scripts_of_all_programs_are_read_by_their_shells() {
    let manual = manual();
    let check = |directory: &str, shell: &Path, arguments: &[&str]| {
        let scripts = files(&manual.path().join(directory));
        assert_eq!(scripts.len(), 4, "{scripts:?}");
        for script in scripts {
            output(Command::new(shell).args(arguments).arg(&script).env("HOME", manual.path()));
        }
    };
    check("share/bash-completion/completions", Path::new("bash"), &["--norc", "-n"]);
    check("share/zsh/site-functions", &program(Program::Zsh), &["-f", "-n"]);
    check("share/fish/vendor_completions.d", &program(Program::Fish), &["--no-config", "--no-execute"]);
    let script = fs::read_to_string(manual.path().join("share/zsh/site-functions/_tenure")).unwrap();
    assert_eq!(output(Command::new(TENURE).args(["completions", "zsh"])), script, "the verb writes the same");
}

#[test]
fn kubectl_completes_the_plugin() {
    let (manual, kubectl) = (manual(), program(Program::Kubectl));
    let bin = manual.path().join("bin");
    symlink(TENURE, bin.join("kubectl-tenure")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let asked = |words: &[&str]| {
        output(
            Command::new(&kubectl)
                .args(["__complete", "tenure"])
                .args(words)
                .env("PATH", &path)
                .env("HOME", manual.path()),
        )
    };
    let found = asked(&["poo"]);
    assert_eq!(found.lines().next(), Some("pools\tList pools: size, use, blocks and conditions"), "{found}");
    assert!(found.contains(":4"), "{found}");
    assert!(asked(&["pools", "--output", "js"]).starts_with("json"));
    let listed =
        output(Command::new(&kubectl).args(["plugin", "list"]).env("PATH", &path).env("HOME", manual.path()));
    assert!(listed.contains("kubectl-tenure"), "{listed}");
}

#[test]
fn the_bill_of_materials_is_whole_and_agrees_with_the_lock_files() {
    let directory = tempfile::tempdir().unwrap();
    let made = ["one", "two"].map(|name| {
        let path = directory.path().join(name);
        release(&["bill", path.to_str().unwrap(), "--seconds", "1700000000"]);
        fs::read_to_string(path).unwrap()
    });
    assert_eq!(made[0], made[1], "it is the same each time");
    let bill: Value = serde_json::from_str(&made[0]).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let text =
        |of: &Value, name: &str| of[name].as_str().unwrap_or_else(|| panic!("no {name} in {of}")).to_owned();
    let components = bill["components"].as_array().unwrap();
    let references: BTreeSet<String> = components.iter().map(|it| text(it, "bom-ref")).collect();
    assert_eq!(references.len(), components.len(), "each has a name of its own");

    let locks = ["Cargo.lock", "crates/nmstate/Cargo.lock"]
        .map(|lock| fs::read_to_string(format!("{ROOT}/{lock}")).unwrap());
    for it in
        components.iter().filter(|it| it["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/")))
    {
        let entry = format!("name = \"{}\"\nversion = \"{}\"\n", text(it, "name"), text(it, "version"));
        let rest = locks
            .iter()
            .find_map(|lock| Some(lock.split_once(&entry)?.1))
            .unwrap_or_else(|| panic!("{entry}"));
        let checksum = format!("checksum = \"{}\"", text(&it["hashes"][0], "content"));
        assert!(rest.split("\n[[").next().unwrap().contains(&checksum), "{entry}: {checksum}");
        text(&it["licenses"][0], "expression");
    }
    let scopes: BTreeMap<String, String> =
        components.iter().map(|it| (text(it, "name"), text(it, "scope"))).collect();
    for (name, scope) in [
        ("tenured", "required"),
        ("tenure-nmstate", "required"),
        ("ring", "required"),
        ("kube", "required"),
        ("serde_derive", "excluded"),
        ("musl", "required"),
    ] {
        assert_eq!(scopes.get(name).map(String::as_str), Some(scope), "{name}");
    }
    assert!(
        !scopes.contains_key("tenure-testbed") && !scopes.contains_key("proptest"),
        "nothing of tests alone"
    );
    for entry in bill["dependencies"].as_array().unwrap() {
        let from = text(entry, "ref");
        assert!(
            references.contains(&from) || from == text(&bill["metadata"]["component"], "bom-ref"),
            "{from}"
        );
        for on in entry["dependsOn"].as_array().unwrap() {
            assert!(
                references.contains(on.as_str().unwrap()),
                "{from} needs {on}, which the bill does not have"
            );
        }
    }
}
