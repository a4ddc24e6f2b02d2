//! Builds programs from the Go modules beside this crate's sources.
//!
//! The modules' files are part of this crate, so that a build needs neither the repository nor a working directory.
//! `go.sum` pins every byte: the build may read modules, not choose them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cache::failed;
use super::packages::last_lines;
use super::progress::Progress;
use super::search::Search;
use super::{BinariesError, Program};
use crate::process::Program as Launch;

/// A Go module beside this crate's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoModule {
    /// Kubernetes: one binary that is all its programs.
    Kube,
    /// containerd and its shim.
    Containerd,
    /// CNI plugins and cnitool.
    Cni,
    /// Helm.
    Helm,
}

/// A file of a module: its name and what is in it.
type ModuleFile = (&'static str, &'static str);

impl GoModule {
    pub(super) const ALL: [Self; 4] = [Self::Kube, Self::Containerd, Self::Cni, Self::Helm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kube => "kube",
            Self::Containerd => "containerd",
            Self::Cni => "cni",
            Self::Helm => "helm",
        }
    }

    /// A description, and how long an uncached build takes on two cores.
    fn expected(self) -> (&'static str, &'static str) {
        match self {
            Self::Kube => {
                ("kube-apiserver and the other programs of Kubernetes", "about 8 min the first time")
            }
            Self::Containerd => ("containerd and its shim", "about 3 min the first time"),
            Self::Cni => ("CNI plugins and cnitool", "about half a minute the first time"),
            Self::Helm => ("Helm", "about 3 min the first time"),
        }
    }

    fn files(self) -> &'static [ModuleFile] {
        match self {
            Self::Kube => &[
                ("go.mod", include_str!("../../kube/go.mod")),
                ("go.sum", include_str!("../../kube/go.sum")),
                ("main.go", include_str!("../../kube/main.go")),
            ],
            Self::Containerd => &[
                ("go.mod", include_str!("../../containerd/go.mod")),
                ("go.sum", include_str!("../../containerd/go.sum")),
            ],
            Self::Cni => {
                &[("go.mod", include_str!("../../cni/go.mod")), ("go.sum", include_str!("../../cni/go.sum"))]
            }
            Self::Helm => &[
                ("go.mod", include_str!("../../helm/go.mod")),
                ("go.sum", include_str!("../../helm/go.sum")),
            ],
        }
    }

    /// Writes its files below `directory`; returns the directory.
    fn write(self, directory: &Path) -> Result<PathBuf, BinariesError> {
        let source = directory.join("source");
        fs::create_dir_all(&source).map_err(failed("creating", &source))?;
        for (name, text) in self.files() {
            let path = source.join(name);
            fs::write(&path, text).map_err(failed("writing", &path))?;
        }
        Ok(source)
    }

    /// The word after `word` at the beginning of a line of its `go.mod`.
    fn pinned(self, word: &str) -> &'static str {
        let go_mod = self.files()[0].1;
        let mut lines = go_mod.lines().map(|line| line.trim().trim_start_matches("require "));
        lines
            .find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.split_whitespace().next())
            .unwrap_or_default()
    }

    /// The packages to build, as arguments of `go build`: those with a `main`.
    fn packages(self) -> Vec<&'static str> {
        let go_mod = self.files()[0].1;
        let tools = go_mod.split_once("\ntool (\n").and_then(|(_, rest)| rest.split_once("\n)"));
        match tools {
            Some((tools, _)) => tools.lines().map(str::trim).collect(),
            // One tool has a line of its own.
            None => vec![Some(self.pinned("tool")).filter(|tool| !tool.is_empty()).unwrap_or(".")],
        }
    }

    /// Values that the programs' own build scripts set, mostly their version.
    fn link_flags(self) -> String {
        let set: Vec<(&str, &str)> = match self {
            Self::Kube => {
                let version = self.pinned("k8s.io/kubernetes");
                let mut parts = version.trim_start_matches('v').split('.');
                vec![
                    ("k8s.io/component-base/version.gitVersion", version),
                    ("k8s.io/component-base/version.gitMajor", parts.next().unwrap_or_default()),
                    ("k8s.io/component-base/version.gitMinor", parts.next().unwrap_or_default()),
                ]
            }
            Self::Containerd => {
                vec![(
                    "github.com/containerd/containerd/v2/version.Version",
                    self.pinned("github.com/containerd/containerd/v2"),
                )]
            }
            Self::Cni => vec![(
                "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
                self.pinned("github.com/containernetworking/plugins"),
            )],
            Self::Helm => {
                vec![("helm.sh/helm/v4/internal/version.version", self.pinned("helm.sh/helm/v4"))]
            }
        };
        let set: Vec<String> = set.iter().map(|(name, value)| format!("-X {name}={value}")).collect();
        format!("-s -w {}", set.join(" "))
    }

    /// A hash of everything that the programs are built from.
    pub(super) fn key(self, go: &Go) -> u64 {
        let files = self.files().iter().flat_map(|(name, text)| [*name, *text]);
        fingerprint(files.chain([self.link_flags().as_str(), go.version.as_str()]))
    }
}

/// The Go toolchain of this machine.
#[derive(Clone, Debug)]
pub(super) struct Go {
    path: PathBuf,
    /// Its own version text: `go1.26.8 linux/amd64`.
    version: String,
}

impl Go {
    /// The toolchain on `PATH`, or where Go's own packages install it, if it is new enough for `module`.
    pub(super) fn find(module: GoModule) -> Result<Self, BinariesError> {
        let needed = module.pinned("go");
        let refused = |found: String| BinariesError::Go {
            module: module.expected().0,
            needed: needed.to_owned(),
            found,
        };
        let usual = PathBuf::from("/usr/local/go/bin/go");
        let path = Search::from_environment()
            .command("go")
            .or_else(|| usual.is_file().then_some(usual))
            .ok_or_else(|| refused("and there is none on PATH".to_owned()))?;
        // A toolchain that fetches another one would download a prebuilt program.
        let output = Command::new(&path)
            .arg("version")
            .env("GOTOOLCHAIN", "local")
            .output()
            .map_err(|error| refused(format!("and {} does not run: {error}", path.display())))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said.trim().strip_prefix("go version ").unwrap_or_default().to_owned();
        if numbers(version.trim_start_matches("go")) < numbers(needed) {
            return Err(refused(format!("and {} is {version:?}", path.display())));
        }
        Ok(Self { path, version })
    }

    /// Builds `module` into `directory`.
    pub(super) fn build(&self, module: GoModule, directory: &Path) -> Result<(), BinariesError> {
        let (what, expected) = module.expected();
        let mut progress = Progress::begin(format!("building {what} from Go modules"), expected);
        let source = module.write(directory)?;
        let all = self.list(module, &source, || progress.update("downloading modules"))?;

        let log = directory.join("build.log");
        let flags = module.link_flags();
        let output = directory.join(if module == GoModule::Kube { "kube" } else { "" });
        let output = output.to_string_lossy();
        let options = [
            "build",
            "-v",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            &flags,
            "-o",
            &output,
        ];
        let arguments = [&options, module.packages().as_slice()].concat();
        self.run(module, &source, &log, &arguments, || {
            progress.update(&format!("{} of {all} packages", lines(&log)));
        })?;

        if module == GoModule::Kube {
            for program in Program::all().filter(|program| program.source() == super::Source::Go(module)) {
                let link = directory.join(program.name());
                symlink("kube", &link).map_err(failed("linking", &link))?;
            }
        }
        progress.done();
        Ok(())
    }

    /// Downloads the sources of `module`.
    pub(super) fn fetch(&self, module: GoModule) -> Result<(), BinariesError> {
        let directory = tempfile::tempdir().map_err(failed("creating", &std::env::temp_dir()))?;
        let source = module.write(directory.path())?;
        self.list(module, &source, || ()).map(drop)
    }

    /// Downloads only the needed modules, unlike `go mod download`, which takes all; returns the number of
    /// packages.
    fn list(&self, module: GoModule, source: &Path, tick: impl FnMut()) -> Result<usize, BinariesError> {
        let log = source.join("list.log");
        let arguments = [&["list", "-mod=readonly", "-deps"], module.packages().as_slice()].concat();
        self.run(module, source, &log, &arguments, tick)?;
        Ok(lines(&log))
    }

    /// Runs `go` in `source` with its output in `log`, calling `tick` every second.
    fn run(
        &self,
        module: GoModule,
        source: &Path,
        log: &Path,
        arguments: &[&str],
        mut tick: impl FnMut(),
    ) -> Result<(), BinariesError> {
        // With low priority, because the machine is used for other things during these minutes.
        let go = Launch::new("go", "/bin/sh", log)
            .args(["-c", r#"exec nice -n 10 "$@""#, "go"])
            .arg(&self.path)
            .arg("-C")
            .arg(source)
            .args(arguments)
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            .env("GOFLAGS", "")
            .start()?;
        while !go.wait(Duration::from_secs(1)) {
            tick();
        }
        if go.ended().is_some_and(|status| status.success()) {
            return Ok(());
        }
        let text = fs::read_to_string(log).unwrap_or_default();
        let end = last_lines(&text);
        Err(BinariesError::Build { module: module.expected().0, log: log.to_owned(), end })
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().filter(|line| !line.starts_with("go: ")).count())
}

/// `1.26.8 linux/amd64` as `[1, 26, 8]`; missing parts count as zero.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split(|character: char| !character.is_ascii_digit());
    [(); 3].map(|()| parts.next().and_then(|part| part.parse().ok()).unwrap_or(0))
}

/// FNV-1a over the texts, each with its end marked: the same on every machine and with every compiler.
fn fingerprint<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = texts.flat_map(|text| text.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_go_program_has_a_package_or_a_link_that_bears_its_name() {
        for program in Program::all() {
            let super::super::Source::Go(module) = program.source() else { continue };
            if module != GoModule::Kube {
                let packages = module.packages();
                let ends = packages
                    .iter()
                    .filter(|package| package.rsplit('/').next() == Some(program.name()))
                    .count();
                assert_eq!(ends, 1, "{program} in {packages:?}");
            }
        }
        let main = GoModule::Kube.files()[2].1;
        for program in
            Program::all().filter(|program| program.source() == super::super::Source::Go(GoModule::Kube))
        {
            assert!(main.contains(&format!("\"{program}\":")), "main.go does not know {program}");
        }
    }

    #[test]
    fn versions_come_from_go_mod() {
        assert!(
            GoModule::Kube.link_flags().contains("gitVersion=v1.35.4 "),
            "{}",
            GoModule::Kube.link_flags()
        );
        assert!(GoModule::Kube.link_flags().ends_with("gitMinor=35"), "{}", GoModule::Kube.link_flags());
        assert!(GoModule::Containerd.link_flags().ends_with("version.Version=v2.4.2"));
        assert!(GoModule::Cni.link_flags().ends_with("BuildVersion=v1.9.1"));
        assert!(GoModule::Helm.link_flags().ends_with("version.version=v4.3.1"));
    }

    #[test]
    fn an_older_go_is_less() {
        assert!(numbers("1.26.8 linux/amd64") > numbers("1.26.6"));
        assert!(numbers("1.19.8 linux/amd64") < numbers("1.25.0"));
        assert!(numbers("1.26rc1") < numbers("1.26.1"));
    }

    #[test]
    fn the_key_changes_with_what_is_built_and_with_what_builds_it() {
        let go = |version: &str| Go { path: PathBuf::new(), version: version.to_owned() };
        let kube = GoModule::Kube.key(&go("go1.26.8 linux/amd64"));
        assert_eq!(kube, GoModule::Kube.key(&go("go1.26.8 linux/amd64")));
        assert_ne!(kube, GoModule::Kube.key(&go("go1.26.9 linux/amd64")));
        assert_ne!(kube, GoModule::Cni.key(&go("go1.26.8 linux/amd64")));
        assert_ne!(fingerprint(["ab", "c"].into_iter()), fingerprint(["a", "bc"].into_iter()));
    }
}
