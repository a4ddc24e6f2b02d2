//! Documentation holds together: every link and anchor leads somewhere, every page is in the book, and what pages say of versions,
//! metrics and events is what the code has.

#![allow(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by failing")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository's root")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files with this ending below a directory of the repository, by their paths in it.
fn files(directory: &str, ending: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut directories = vec![PathBuf::from(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).expect("a directory of the repository") {
            let path = directory.join(entry.expect("an entry").file_name());
            if root().join(&path).is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == ending) {
                found.insert(path);
            }
        }
    }
    found
}

const AT_ROOT: [&str; 4] = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"];
const SUMMARY: &str = "docs/SUMMARY.md";

/// Every page for readers.
fn pages() -> BTreeSet<PathBuf> {
    files("docs", "md").into_iter().chain(AT_ROOT.map(PathBuf::from)).collect()
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let keep = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    text.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

/// The targets of links and pictures in prose, without those in code.
fn links(text: &str) -> Vec<String> {
    let text: String = prose(text).split('`').step_by(2).collect();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

/// The anchors that a page's headings have, as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|it| it.is_alphanumeric() || [' ', '-', '_'].contains(it));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    let mut number = |name: String| {
        let before = seen.entry(name.clone()).or_default();
        *before += 1;
        if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
    };
    headings.map(name).map(&mut number).collect()
}

/// A path without `..`, relative to the repository.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => drop(done.pop()),
            Component::CurDir => {}
            other => done.push(other),
        }
        done
    })
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in pages() {
        for link in links(&read(&page)) {
            if link.contains("://") {
                continue;
            }
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let directory = page.parent().unwrap_or(Path::new(""));
            let target = if path.is_empty() { page.clone() } else { normal(&directory.join(path)) };
            if !root().join(&target).exists() {
                wrong.push(format!("{}: {link}: there is no {}", page.display(), target.display()));
            } else if !anchor.is_empty() && !anchors(&read(&target)).contains(anchor) {
                wrong.push(format!("{}: {link}: {} has no such heading", page.display(), target.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "only {seen} links were found");
}

#[test]
fn every_page_that_is_named_in_code_marks_exists() {
    for page in pages() {
        let text = prose(&read(&page));
        for name in text.split('`').skip(1).step_by(2) {
            let is_page = name.starts_with("docs/")
                && !name.contains(|it: char| it.is_whitespace() || "*<…".contains(it));
            assert!(
                !is_page || root().join(name).exists(),
                "{} names {name}, which is not there",
                page.display()
            );
        }
    }
}

#[test]
fn the_book_has_every_page_once() {
    let listed: Vec<PathBuf> =
        links(&read(SUMMARY)).iter().map(|link| normal(&Path::new("docs").join(link))).collect();
    let once: BTreeSet<PathBuf> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "{SUMMARY} lists a page twice: {listed:?}");
    // The repository's front page is not part of the book, which has its own.
    let not_listed = ["README.md", SUMMARY].map(PathBuf::from);
    let wanted: BTreeSet<PathBuf> = pages().into_iter().filter(|page| !not_listed.contains(page)).collect();
    let missing: Vec<_> = wanted.difference(&once).collect();
    assert!(missing.is_empty(), "{SUMMARY} lacks {missing:?}");
    let unknown: Vec<_> = once.difference(&wanted).collect();
    assert!(unknown.is_empty(), "{SUMMARY} lists what is not there: {unknown:?}");
}

#[test]
fn every_picture_is_shown_on_a_page() {
    let all: String = pages().iter().map(read).collect();
    for picture in files("docs/images", "svg").into_iter().chain(files("docs/images", "png")) {
        let name = picture.file_name().expect("a name").to_string_lossy();
        assert!(all.contains(&format!("/{name})")), "no page shows {}", picture.display());
    }
}

/// The cells of the rows of tables whose first cell is code.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = read(page);
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The names in a table's first column.
fn documented(page: &str) -> BTreeSet<String> {
    rows(page).iter().map(|row| row[0].trim_matches('`').to_owned()).collect()
}

/// The sources of crates, without their tests.
fn sources(crates: &[&str]) -> Vec<String> {
    let of_tests = |path: &Path| {
        let is_test = |part: Component<'_>| {
            ["tests", "tests.rs", "testing.rs", "sim", "everything", "proptests.rs"]
                .iter()
                .any(|it| part.as_os_str() == *it)
        };
        path.components().skip(2).any(is_test)
    };
    let paths = crates.iter().flat_map(|name| files(&format!("crates/{name}/src"), "rs"));
    let code = paths.filter(|path| !of_tests(path)).map(read);
    code.map(|code| code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()).collect()
}

/// The texts in quotation marks that are names: letters, digits and `_` alone.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_name = |it: &&str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    code.split('"').filter(is_name)
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let code = sources(&["agent", "controller", "egress", "daemon", "watch", "tenured"]);
    let is_metric = |it: &&str| it.starts_with("tenure_") || it.starts_with("coil_");
    let registered: BTreeSet<&str> = code.iter().flat_map(|it| names(it)).filter(is_metric).collect();
    let documented = documented("docs/reference/metrics.md");
    assert!(registered.len() > 60, "only {} metrics were found", registered.len());
    for name in &registered {
        // A counter's name ends in `_total` where it is read.
        let shown = [(*name).to_owned(), format!("{name}_total")];
        assert!(shown.iter().any(|it| documented.contains(it)), "docs/reference/metrics.md lacks {name}");
    }
    for name in &documented {
        let plain = name.strip_suffix("_total").unwrap_or(name);
        assert!(
            registered.contains(plain),
            "docs/reference/metrics.md has {name}, which no program registers"
        );
    }
}

/// Texts of code that look like a reason and are none.
const NO_REASONS: [&str; 25] = [
    "AddressPools",
    "ClientIP",
    "CloudSettings",
    "ClusterIP",
    "EgressClients",
    "IPAMClaims",
    "IgnoreUnknown",
    "InternalIP",
    "MutatingWebhookConfiguration",
    "NetworkAttachmentDefinition",
    "NetworkAttachmentDefinitions",
    "NoExecute",
    "NodesWithoutSlice",
    "PartialEq",
    "PodDisruptionBudget",
    "PreferDualStack",
    "ReplicaFailure",
    "RoleBinding",
    "RollingUpdate",
    "ServiceAccount",
    "StandIn",
    "StatefulSet",
    "VirtualMachine",
    "VirtualMachineInstance",
    "NodeAddresses",
];

/// Whether a text is words without spaces, each with a capital letter: at least two of them.
fn is_camel(text: &str) -> bool {
    let capitals = text.bytes().filter(u8::is_ascii_uppercase).count();
    let plain = text.bytes().all(|it| it.is_ascii_alphabetic());
    plain && text.starts_with(|it: char| it.is_ascii_uppercase()) && capitals > 1 && text.len() > capitals
}

#[test]
fn every_reason_of_events_and_conditions_is_documented_and_every_documented_one_is_there() {
    let code = sources(&["agent", "controller", "whereabouts"]);
    let kinds: BTreeSet<String> = files("deploy/crds", "yaml")
        .iter()
        .filter_map(|path| {
            read(path).lines().find_map(|line| Some(line.strip_prefix("    kind: ")?.to_owned()))
        })
        .collect();
    assert!(kinds.len() > 10, "{kinds:?}");
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    for text in &code {
        let of_code =
            names(text).filter(|it| is_camel(it) && !NO_REASONS.contains(it) && !kinds.contains(*it));
        reasons.extend(of_code.map(str::to_owned));
        // One word alone is a reason where a field or an event says so.
        let one_word = text.lines().filter(|line| line.contains("Note::") || line.contains("reason: \""));
        let word = |it: &&str| it.starts_with(|it: char| it.is_ascii_uppercase());
        reasons.extend(
            one_word.flat_map(|line| names(line).filter(word).map(str::to_owned).collect::<Vec<_>>()),
        );
    }
    for text in sources(&["api"]) {
        let mut inside = false;
        for line in text.lines() {
            inside = line.contains("pub mod reason {") || inside && !line.trim().eq("}");
            reasons.extend(names(line).filter(|_| inside && line.contains("pub const")).map(str::to_owned));
        }
    }
    let page = "docs/reference/events.md";
    let documented: BTreeSet<String> = documented(page);
    assert!(reasons.len() > 60, "{reasons:?}");
    let missing: Vec<_> = reasons.difference(&documented).collect();
    assert!(missing.is_empty(), "{page} lacks {missing:?}");
    let all: BTreeSet<String> = sources(&["agent", "controller", "whereabouts", "api"])
        .iter()
        .flat_map(|it| names(it).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let gone: Vec<_> = documented.difference(&all).collect();
    assert!(gone.is_empty(), "{page} has what no program says: {gone:?}");
    let unneeded: Vec<_> = NO_REASONS.iter().filter(|it| !all.contains(**it)).collect();
    assert!(unneeded.is_empty(), "these are no longer in the code: {unneeded:?}");
}

/// The version of a module in a `go.mod`.
fn pinned(file: &str, module: &str) -> String {
    let text = read(file);
    let line = text.lines().find_map(|line| line.trim().strip_prefix(module)?.strip_prefix(" v"));
    let version = line.unwrap_or_else(|| panic!("{file} has no {module}"));
    version.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn the_compatibility_page_has_the_versions_that_the_tests_use() {
    let page = read("docs/compatibility.md");
    let manifest = read("Cargo.toml");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("rust-version");
    let schema =
        manifest.split("features = [\"v1_").nth(1).and_then(|it| it.split('"').next()).expect("k8s-openapi");
    let versions = read("crates/cni/src/version.rs");
    let versions: Vec<&str> =
        versions.lines().filter_map(|line| line.split_once(" => \"")?.1.strip_suffix("\",")).collect();
    let kube = "crates/testbed/kube/go.mod";
    let cni = "crates/testbed/cni/go.mod";
    for (what, version) in [
        ("Kubernetes", pinned(kube, "k8s.io/kubernetes")),
        ("API types", format!("1.{schema}")),
        ("containerd", pinned("crates/testbed/containerd/go.mod", "github.com/containerd/containerd/v2")),
        ("CNI reference plugins", pinned(cni, "github.com/containernetworking/plugins")),
        ("CNI library, `cnitool`", pinned(cni, "github.com/containernetworking/cni")),
        ("CNI versions", versions.join(", ")),
        ("Rust", rust.trim_matches('"').to_owned()),
    ] {
        let row = format!("| {what} | {version} |");
        assert!(page.contains(&row), "docs/compatibility.md lacks the row {row}");
    }
}
