//! The part of the reference that is written by a program: flags from the definitions of the programs' command lines, kinds
//! from their definitions in `deploy/crds`. Promises: what is written is a function of these alone, so a stale page is found
//! by writing it again.

mod flags;
mod kinds;
pub mod metrics;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the repository's root")
}

/// The definitions of the command lines of the programs that people run.
pub fn programs() -> Vec<clap::Command> {
    let mut programs = vec![
        tenure::command(),
        tenured::Flags::command(),
        tenure_controller::flags::Flags::command(),
        tenure_egress::flags::Flags::command().name("tenure-egress"),
    ];
    programs.iter_mut().for_each(clap::Command::build);
    programs
}

/// The pages that are generated, by their paths in the repository.
pub fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = kinds::pages(&root().join("deploy/crds"));
    pages.insert("flags.md".to_owned(), flags::page(&programs()));
    pages.into_iter().map(|(name, text)| (Path::new("docs/reference").join(name), text)).collect()
}

/// Writes the pages.
pub fn write() -> io::Result<()> {
    pages().into_iter().try_for_each(|(path, text)| std::fs::write(root().join(path), text))
}

/// The pages that are not in the repository as they should be.
pub fn stale() -> Vec<PathBuf> {
    let differs = |path: &PathBuf, text: &String| {
        std::fs::read_to_string(root().join(path)).ok().as_ref() != Some(text)
    };
    pages().into_iter().filter(|(path, text)| differs(path, text)).map(|(path, _)| path).collect()
}

/// A text in a cell of a table: one line, in which nothing ends the cell or is markup of a page.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace('|', "\\|");
    let parts = line.split('`').enumerate();
    let escaped =
        parts.map(|(index, part)| if index % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() });
    escaped.collect::<Vec<_>>().join("`")
}
