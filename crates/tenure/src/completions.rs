//! `tenure completions SHELL`: the script by which a shell completes command lines. And the hidden verb by which kubectl completes those of
//! `kubectl tenure`: it runs `kubectl_complete-tenure`, which a release has beside the program, and reads the answer.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use clap::Args;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::{Shell, generate};

use crate::table::Output;

/// What kubectl is told after the candidates: to add none of its own, such as files.
const NO_FILES: &str = ":4";

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// The shell; load the script as docs/cli.md says
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// The options of the hidden verb.
#[derive(Args, Debug)]
pub(crate) struct CompleteOptions {
    /// The words after `kubectl tenure`; the last is completed, and may be empty
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Writes the script.
pub(crate) fn run(options: &CompletionsOptions) -> Output {
    let mut script = Vec::new();
    generate(options.shell, &mut crate::command(), "tenure", &mut script);
    Output::text(String::from_utf8_lossy(&script).into_owned())
}

/// Completes the last word, in kubectl's format: a candidate a line, with a tab before its description, and a directive at the end.
pub(crate) fn words(options: CompleteOptions) -> Result<Output> {
    let mut words: Vec<OsString> = std::iter::once("tenure".into()).chain(options.words).collect();
    if words.len() == 1 {
        words.push(OsString::new());
    }
    let (last, directory) = (words.len() - 1, std::env::current_dir().ok());
    let found = complete(&mut crate::command(), words, last, directory.as_deref());
    let found = found.context("cannot complete the last word")?;
    let lines = found.iter().filter(|it| !it.is_hide_set()).map(line);
    Ok(Output::text(lines.chain([format!("{NO_FILES}\n")]).collect()))
}

fn line(candidate: &CompletionCandidate) -> String {
    let value = candidate.get_value().to_string_lossy();
    match candidate.get_help().map(ToString::to_string) {
        Some(help) => format!("{value}\t{}\n", help.lines().next().unwrap_or_default()),
        None => format!("{value}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> Vec<String> {
        let words = words.iter().map(OsString::from).collect();
        super::words(CompleteOptions { words }).unwrap().text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn verbs_flags_and_values_are_completed_for_kubectl() {
        assert_eq!(completed(&["poo"]), ["pools\tList pools: size, use, blocks and conditions", NO_FILES]);
        let all = completed(&[""]);
        assert!(all.iter().any(|it| it.starts_with("who\t")) && all.last().unwrap() == NO_FILES, "{all:?}");
        assert!(!all.iter().any(|it| it.starts_with("__")), "what is hidden stays so: {all:?}");
        assert!(completed(&["pools", "--out"])[0].starts_with("--output"));
        assert_eq!(completed(&["pools", "--output", "js"])[0].split('\t').next(), Some("json"));
        assert_eq!(completed(&["no-verb", "x"]), [NO_FILES]);
        assert_eq!(completed(&[]), all, "no word is an empty one");
    }

    #[test]
    fn every_shell_gets_a_script_with_every_verb() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = run(&CompletionsOptions { shell }).text;
            for verb in crate::command().get_subcommands().filter(|it| !it.is_hide_set()) {
                assert!(script.contains(verb.get_name()), "{shell}: no {}", verb.get_name());
            }
        }
    }
}
