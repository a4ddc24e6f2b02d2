//! `cargo xtask dist`: the files of a release, and whether two builds make the same ones.
//!
//! The programs are built here. `tenure-release` (`crates/release`) makes everything else of them: archives, the image, manual pages,
//! completions, the bill of materials and the checksums.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::architecture::Architecture;
use crate::image::{Build, NAME};
use crate::step::{root, say, target_directory, timed};
use crate::verbs::tool;

/// What to build.
#[derive(Args)]
pub(crate) struct DistOptions {
    /// What to build for, repeatable; everything if not given
    #[arg(long, value_enum, value_name = "ARCHITECTURE")]
    arch: Vec<Architecture>,
    /// The profile that the daemons are built with: `quick` is built in a fraction of the time, and slower to run
    #[arg(long, default_value = "daemons")]
    profile: String,
    /// Where the files go; target/dist if not given
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Build twice, from copies of the sources in two directories, and compare; nothing is kept
    #[arg(long, conflicts_with = "output")]
    check_reproducible: bool,
}

/// When and of which commit: part of the files, and the same for whoever builds them again.
struct Origin {
    seconds: String,
    revision: String,
}

/// Makes the files, or checks that two builds make the same.
pub(crate) fn dist(options: &DistOptions) -> Result<()> {
    let architectures = if options.arch.is_empty() { &Architecture::ALL[..] } else { &options.arch };
    let origin = origin()?;
    if options.check_reproducible {
        return timed("build twice and compare", || reproduce(architectures, &options.profile, &origin));
    }
    let output = options.output.clone().unwrap_or_else(|| target_directory().join("dist"));
    timed("make a release", || {
        let here = |architecture| Build::these(&options.profile, architecture);
        pack(architectures.iter().copied().map(here), &output, &origin)
    })?;
    say(&format!("the release is in {}", output.display()));
    Ok(())
}

/// Builds the programs and everything made of them.
fn pack(builds: impl Iterator<Item = Build>, output: &Path, origin: &Origin) -> Result<()> {
    let mut programs = Vec::new();
    for build in builds {
        programs.extend(build.all()?);
    }
    let text = |path: &Path| path.display().to_string();
    let mut arguments: Vec<String> =
        ["pack", "--image", NAME, "--seconds", &origin.seconds].map(str::to_owned).into();
    arguments.extend(["--revision".to_owned(), origin.revision.clone(), "--output".to_owned(), text(output)]);
    arguments.extend(programs.iter().map(|path| text(path)));
    tool("make archives, image, bill of materials and checksums", "tenure-release", &arguments, &[])
}

/// The time and the commit: `SOURCE_DATE_EPOCH`, or git's.
fn origin() -> Result<Origin> {
    let git = |arguments: &[&str]| -> Option<String> {
        let said = Command::new("git").args(arguments).current_dir(root()).output().ok()?;
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    };
    let seconds = std::env::var("SOURCE_DATE_EPOCH").ok().or_else(|| git(&["log", "-1", "--format=%ct"]));
    let seconds = seconds.context(
        "no time for the files of the release: these sources are in no git repository; set SOURCE_DATE_EPOCH to the seconds since \
         1970 of the release",
    )?;
    let changed = git(&["status", "--porcelain"]).is_some_and(|files| !files.is_empty());
    let revision = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    Ok(Origin { seconds, revision: if changed { format!("{revision}-changed") } else { revision } })
}

/// Builds the sources in two directories, whose paths have different lengths.
fn reproduce(architectures: &[Architecture], profile: &str, origin: &Origin) -> Result<()> {
    let scratch = target_directory().join("reproduce");
    let mut sums = Vec::new();
    for name in ["one", "another/directory"] {
        let sources = scratch.join(name);
        timed(&format!("copy the sources to {}", sources.display()), || copy(&sources))?;
        let build = |architecture| Build {
            root: sources.clone(),
            target: sources.join("target"),
            profile: profile.to_owned(),
            architecture,
        };
        let output = scratch.join("files").join(name);
        pack(architectures.iter().copied().map(build), &output, origin)?;
        sums.push(read_sums(&output.join("SHA256SUMS"))?);
    }
    let different: Vec<&str> = sums[0]
        .iter()
        .filter(|(name, sum)| sums[1].get(*name) != Some(sum))
        .map(|(name, _)| name.as_str())
        .collect();
    ensure!(
        different.is_empty() && sums[0].len() == sums[1].len(),
        "two builds differ in {}; compare the files below {}",
        different.join(", "),
        scratch.display()
    );
    for (name, sum) in &sums[0] {
        say(&format!("{sum}  {name}"));
    }
    say(&format!("both builds made the same {} files", sums[0].len()));
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// Copies the files that git knows of, changes included, into a new directory.
fn copy(to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = listed.context("cannot start git to list the sources")?;
    ensure!(listed.status.success(), "git does not list the sources: the comparison needs a git repository");
    let files = String::from_utf8(listed.stdout).context("git lists a file whose name is no text")?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root().join(file), to.join(file));
        // One that was removed and not committed.
        if !from.exists() {
            continue;
        }
        let directory = to.parent().unwrap_or(&to);
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {file} to {}", to.display()))?;
    }
    Ok(())
}

/// The checksum of each file.
fn read_sums(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let pairs = text.lines().filter_map(|line| line.split_once("  "));
    Ok(pairs.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect())
}
