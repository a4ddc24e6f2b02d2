//! The files of a release: for each architecture an archive with programs, manual pages and completions; one image for all; the bill of
//! materials; and the checksums of these files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use tenure_image::{Archive, Image, architecture, digest_of};

use crate::{bill, manual};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the image runs.
const ENTRYPOINT: &str = "tenured";
/// What a user reads, and the manifests.
const DOCUMENTS: [&str; 4] = ["LICENSE", "README.md", "CHANGELOG.md", "docs"];
const MANIFESTS: &str = "deploy";
/// The file of checksums.
const SUMS: &str = "SHA256SUMS";
/// Where programs have the sources of their packages, in messages of panics: `xtask` has the compiler write it so.
const REGISTRY: &[u8] = b"/cargo/registry/src/";

/// What is packed.
#[derive(Args, Debug)]
pub struct Pack {
    /// The image's name
    #[arg(long)]
    image: String,
    /// The time of everything, in seconds since 1970
    #[arg(long)]
    seconds: u64,
    /// The commit
    #[arg(long)]
    revision: String,
    /// Where the files go; those of an earlier release there are removed
    #[arg(long)]
    output: PathBuf,
    /// The programs: the same ones for each architecture
    #[arg(required = true)]
    programs: Vec<PathBuf>,
}

impl Pack {
    /// Makes the files, in the sources' directory.
    pub fn run(&self) -> Result<()> {
        let groups = by_architecture(&self.programs)?;
        self.remove_earlier()?;
        fs::create_dir_all(&self.output).with_context(|| format!("cannot make {}", self.output.display()))?;
        let bill = bill::of_release(self.seconds)?;
        for programs in groups.values() {
            all_in_bill(programs, &bill)?;
        }
        let mut names = vec![format!("tenure-{VERSION}.cdx.json")];
        self.write(&names[0], bill.as_bytes())?;
        let manual = manual::files(&day(self.seconds)?)?;
        for (architecture, programs) in &groups {
            names.push(self.archive(architecture, programs, &manual)?);
        }
        names.push(self.image(&groups)?);
        self.sums(names)
    }

    /// Removes what an earlier run wrote, and nothing else.
    fn remove_earlier(&self) -> Result<()> {
        let sums = self.output.join(SUMS);
        let Ok(text) = fs::read_to_string(&sums) else { return Ok(()) };
        let names = text.lines().filter_map(|line| Some(line.split_once("  ")?.1)).chain([SUMS]);
        for path in names.filter(|name| !name.contains('/')).map(|name| self.output.join(name)) {
            if path.exists() {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Everything for one architecture, below one directory.
    fn archive(&self, architecture: &str, programs: &[PathBuf], manual: &[manual::File]) -> Result<String> {
        let top = format!("/tenure-{VERSION}-linux-{architecture}");
        let mut archive = Archive::of(self.seconds);
        for path in programs {
            let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            archive.file(&format!("{top}/bin/{}", file_name(path)), 0o755, &bytes)?;
        }
        archive.link(&format!("{top}/bin/kubectl-tenure"), "tenure")?;
        for file in manual {
            let mode = if file.executable { 0o755 } else { 0o644 };
            archive.file(&format!("{top}/{}", file.path), mode, &file.bytes)?;
        }
        for document in DOCUMENTS {
            add(&mut archive, &format!("{top}/share/doc/tenure"), Path::new(document))?;
        }
        add(&mut archive, &top, Path::new(MANIFESTS))?;
        let name = format!("{}.tar", top.trim_start_matches('/'));
        self.write(&name, &archive.bytes()?)?;
        // Without name and time, which gzip would keep.
        let packed = Command::new("gzip").args(["-9", "-n", "-f", &name]).current_dir(&self.output).status();
        let packed = packed.context("cannot start gzip, which compresses the archive")?;
        ensure!(packed.success(), "gzip ended with {packed} for {name}");
        Ok(format!("{name}.gz"))
    }

    /// One image, of which each machine takes its own part.
    fn image(&self, groups: &BTreeMap<&'static str, Vec<PathBuf>>) -> Result<String> {
        let images = groups.values().map(|programs| {
            let labels = [
                ("title", "Tenure"),
                ("description", "One IP address engine for Kubernetes"),
                ("version", VERSION),
                ("revision", &self.revision),
                ("licenses", env!("CARGO_PKG_LICENSE")),
            ];
            let image =
                Image::of_programs(&self.image, ENTRYPOINT, programs)?.created(&instant(self.seconds)?);
            Ok(labels.into_iter().fold(image, |image, (key, value)| {
                image.label(&format!("org.opencontainers.image.{key}"), value)
            }))
        });
        let images = images.collect::<Result<Vec<_>>>()?;
        let (first, others) = images.split_first().context("no programs")?;
        let name = format!("tenure-{VERSION}-image.tar");
        let saved = first.save_with(others, &self.output.join(&name))?;
        writeln!(std::io::stdout(), "{} {}", self.image, saved.digest)?;
        Ok(name)
    }

    /// The checksums of all files, as `sha256sum -c` reads them.
    fn sums(&self, mut names: Vec<String>) -> Result<()> {
        names.sort();
        let lines = names.iter().map(|name| {
            let path = self.output.join(name);
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(format!("{}  {name}\n", digest_of(&bytes).trim_start_matches("sha256:")))
        });
        let text = lines.collect::<Result<String>>()?;
        write!(std::io::stdout(), "{text}")?;
        self.write(SUMS, text.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.output.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The programs for each architecture: the same names for all.
fn by_architecture(programs: &[PathBuf]) -> Result<BTreeMap<&'static str, Vec<PathBuf>>> {
    let mut groups: BTreeMap<_, Vec<PathBuf>> = BTreeMap::new();
    for path in programs {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(architecture) = architecture(&bytes) else {
            bail!("{} is no program for amd64 or arm64", path.display())
        };
        groups.entry(architecture).or_default().push(path.clone());
    }
    for group in groups.values_mut() {
        group.sort_by_key(|path| file_name(path));
    }
    let mut names = groups.values().map(|group| group.iter().map(|path| file_name(path)).collect::<Vec<_>>());
    if let Some(first) = names.next() {
        ensure!(
            names.all(|other| other == first),
            "the architectures do not have the same programs: {groups:?}"
        );
    }
    Ok(groups)
}

/// Fails if a program has code of a package that the bill does not have.
fn all_in_bill(programs: &[PathBuf], bill: &str) -> Result<()> {
    let bill: Value = serde_json::from_str(bill)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let components = bill["components"].as_array().into_iter().flatten();
    let known: BTreeSet<String> =
        components.map(|it| format!("{}-{}", text(&it["name"]), text(&it["version"]))).collect();
    for path in programs {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let missing: Vec<String> = packages_in(&bytes).difference(&known).cloned().collect();
        ensure!(
            missing.is_empty(),
            "{} has code of {}, and the bill of materials does not name it",
            path.display(),
            missing.join(", ")
        );
    }
    Ok(())
}

/// The packages, as `name-version`, of which a program has paths of sources: `/cargo/registry/src/REGISTRY/NAME-VERSION/…`.
fn packages_in(program: &[u8]) -> BTreeSet<String> {
    let starts = program.windows(REGISTRY.len()).enumerate().filter(|(_, window)| *window == REGISTRY);
    starts
        .filter_map(|(at, _)| {
            let mut parts = program[at + REGISTRY.len()..].splitn(3, |byte| *byte == b'/');
            String::from_utf8(parts.nth(1)?.to_vec()).ok()
        })
        .collect()
}

/// Adds a file, or everything below a directory in the order of names.
fn add(archive: &mut Archive, to: &str, path: &Path) -> Result<()> {
    let to = format!("{to}/{}", file_name(path));
    if !path.is_dir() {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(archive.file(&to, 0o644, &bytes)?);
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut entries = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| add(archive, &to, entry))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `2026-01-31T12:00:00Z`.
pub fn instant(seconds: u64) -> Result<String> {
    Ok(timestamp(seconds)?.to_string())
}

/// `2026-01-31`.
pub fn day(seconds: u64) -> Result<String> {
    Ok(timestamp(seconds)?.strftime("%Y-%m-%d").to_string())
}

fn timestamp(seconds: u64) -> Result<Timestamp> {
    let seconds = i64::try_from(seconds).context("a time that no calendar has")?;
    Timestamp::from_second(seconds).with_context(|| format!("{seconds} seconds since 1970 are no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_by_the_paths_in_a_program() {
        let program = b"..\0/cargo/registry/src/index-1f/serde_json-1.0.154/src/de.rs\0.../cargo/registry/src/index-1f/ring-0.17.14/x";
        let found: Vec<String> = packages_in(program).into_iter().collect();
        assert_eq!(found, ["ring-0.17.14", "serde_json-1.0.154"]);
        assert!(packages_in(b"/cargo/registry/src/").is_empty());
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(instant(1_700_000_000).unwrap(), "2023-11-14T22:13:20Z");
        assert_eq!(day(0).unwrap(), "1970-01-01");
        assert!(day(u64::MAX).is_err());
    }
}
