//! Manual pages and completions of every program, from the definitions of its flags, so that they cannot drift from them.

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

/// By what kubectl completes `kubectl tenure`: it looks for this name on the `PATH`.
const FOR_KUBECTL: &str = "#!/bin/sh\n# kubectl runs this to complete `kubectl tenure`.\nexec kubectl-tenure __complete -- \"$@\"\n";
const USER: &str = "1";
const ADMINISTRATION: &str = "8";

/// A file of the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where, below the root of the archive.
    pub path: String,
    /// Whether it is run.
    pub executable: bool,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The definition of each program with flags, and the section of its manual page.
fn programs() -> [(Command, &'static str); 4] {
    [
        (tenure::command(), USER),
        (tenured::Flags::command(), ADMINISTRATION),
        (tenure_controller::flags::Flags::command(), ADMINISTRATION),
        (tenure_egress::flags::Flags::command(), ADMINISTRATION),
    ]
}

/// All of them. The pages have this date, in the form `2026-01-31`.
pub fn files(date: &str) -> Result<Vec<File>> {
    let mut files = vec![File {
        path: "bin/kubectl_complete-tenure".to_owned(),
        executable: true,
        bytes: FOR_KUBECTL.as_bytes().to_vec(),
    }];
    for (command, section) in programs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            files.push(completion(command.clone(), shell));
        }
        let mut command = command.disable_help_subcommand(true);
        command.build();
        pages(&command, section, date, &mut files)?;
    }
    Ok(files)
}

fn completion(mut command: Command, shell: Shell) -> File {
    let name = command.get_name().to_owned();
    let path = match shell {
        Shell::Zsh => format!("share/zsh/site-functions/_{name}"),
        Shell::Fish => format!("share/fish/vendor_completions.d/{name}.fish"),
        _ => format!("share/bash-completion/completions/{name}"),
    };
    let mut bytes = Vec::new();
    generate(shell, &mut command, name, &mut bytes);
    File { path, executable: false, bytes }
}

/// The page of a command, and of each verb below it.
fn pages(command: &Command, section: &str, date: &str, files: &mut Vec<File>) -> Result<()> {
    let page = Man::new(command.clone()).section(section).date(date).manual("Tenure");
    let page = page.source(concat!("tenure ", env!("CARGO_PKG_VERSION")));
    let name = page.get_filename();
    let mut bytes = Vec::new();
    page.render(&mut bytes).with_context(|| format!("cannot write the page {name}"))?;
    // Around an empty line, line breaks are too many, and readers complain.
    let page = String::from_utf8(bytes).with_context(|| format!("the page {name} is no text"))?;
    let bytes = page.replace("\n.br\n\n.br\n", "\n.sp\n").into_bytes();
    files.push(File { path: format!("share/man/man{section}/{name}"), executable: false, bytes });
    for verb in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages(verb, section, date, files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_and_verb_has_a_page_and_every_program_completions() {
        let files = files("2026-01-31").unwrap();
        let text = |path: &str| {
            let found = files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}"));
            String::from_utf8(found.bytes.clone()).unwrap()
        };
        for (command, section) in programs() {
            let name = command.get_name();
            let page = text(&format!("share/man/man{section}/{name}.{section}"));
            assert!(page.contains("2026\\-01\\-31") || page.contains("2026-01-31"), "{page}");
            for flag in command.get_arguments().filter_map(|flag| flag.get_long()) {
                assert!(page.contains(&flag.replace('-', "\\-")), "{name}: no --{flag}");
            }
            for path in [
                format!("share/bash-completion/completions/{name}"),
                format!("share/zsh/site-functions/_{name}"),
                format!("share/fish/vendor_completions.d/{name}.fish"),
            ] {
                assert!(!text(&path).is_empty());
            }
        }
        for verb in tenure::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            text(&format!("share/man/man1/tenure-{}.1", verb.get_name()));
        }
        let pages = files.iter().filter(|file| file.path.starts_with("share/man"));
        let odd: Vec<_> =
            pages.filter(|file| ["help", "__"].iter().any(|it| file.path.contains(it))).collect();
        assert!(odd.is_empty(), "the verb help and hidden verbs have no pages: {odd:?}");
    }
}
