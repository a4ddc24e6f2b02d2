//! What pages say of command lines is what the programs take, and the generated pages are those of this code.

use clap::Command;
use clap::error::ErrorKind;
use tenure_tests::pages::{all, commands_in};
use tenure_tests::reference::{programs, stale};

/// Flags of others that pages mention alone, and of programs that are no part of the product.
const OF_OTHERS: [&str; 5] = ["backend", "cascade", "cleanup-config-on-exit", "force", "multus-conf-file"];
/// What a reader fills in, where a program reads more than a text.
const PLACEHOLDERS: [(&str, &str); 2] = [("ADDRESS", "192.0.2.1"), ("$(", "192.0.2.1")];
/// Words of a shell before a command.
const OF_SHELLS: [&str; 4] = ["do", "if", "sudo", "until"];
/// Pages about programs for measurements, which have flags of their own.
const OF_MEASUREMENTS: [&str; 5] =
    ["docs/benchmarks.md", "docs/scale.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md"];

#[test]
fn generated_pages_are_of_this_code() {
    assert!(stale().is_empty(), "stale: {:?}; `cargo xtask reference` writes them", stale());
}

/// The program of ours that a command runs, and its arguments.
fn ours<'p>(programs: &'p [Command], words: &[String]) -> Option<(&'p Command, Vec<String>)> {
    let is_setting = |word: &&String| word.contains('=') && !word.starts_with('-');
    let is_before = |word: &&String| is_setting(word) || OF_SHELLS.contains(&word.as_str());
    let mut words = words.iter().skip_while(is_before).cloned();
    let first = words.next()?;
    let mut rest: Vec<String> = words.collect();
    let mut name = first.rsplit('/').next()?.to_owned();
    if name == "kubectl" && rest.first().is_some_and(|verb| verb == "tenure") {
        name = rest.remove(0);
    }
    programs.iter().find(|program| program.get_name() == name).map(|program| (program, rest))
}

#[test]
fn every_command_line_is_one_that_the_program_takes() {
    let programs = programs();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in all() {
        for shown in page.blocks().iter().flat_map(tenure_tests::pages::Block::commands) {
            for words in commands_in(&shown.command) {
                let Some((program, arguments)) = ours(&programs, &words) else { continue };
                seen += 1;
                let filled = |word: String| {
                    let is_like = |name: &str| name == word || name == "$(" && word.starts_with(name);
                    let value = PLACEHOLDERS.iter().find(|(name, _)| is_like(name));
                    value.map_or(word.clone(), |(_, value)| (*value).to_owned())
                };
                let given = std::iter::once(program.get_name().to_owned()).chain(arguments).map(filled);
                let Err(error) = program.clone().try_get_matches_from(given) else { continue };
                if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                    wrong.push(format!("{}:{}: {words:?}: {error}", page.path.display(), shown.line));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 20, "only {seen} command lines were found");
}

/// What is wrong with a command line in prose, which may have placeholders and brackets.
fn problem(program: &Command, words: &[String]) -> Option<String> {
    let mut commands = vec![program];
    for word in words {
        let word = word.trim_matches(['[', ']', '…', ',']);
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or_default();
            let has = |it: &&Command| it.get_arguments().any(|known| known.get_long() == Some(flag));
            if !commands.iter().all(has) {
                return Some(format!("there is no --{flag}"));
            }
        } else if commands.iter().all(|it| it.has_subcommands()) && word.starts_with(char::is_lowercase) {
            let found: Option<Vec<&Command>> =
                word.split('|').map(|verb| commands.iter().find_map(|it| it.find_subcommand(verb))).collect();
            match found {
                Some(found) => commands = found,
                None => return Some(format!("there is no verb {word:?}")),
            }
        }
    }
    None
}

#[test]
fn verbs_and_flags_in_prose_exist() {
    let programs = programs();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in all() {
        for span in page.spans() {
            let words: Vec<String> = span.split_whitespace().map(str::to_owned).collect();
            let problem = match ours(&programs, &words) {
                Some((program, rest)) => problem(program, &rest),
                None if OF_MEASUREMENTS.iter().any(|it| page.path.ends_with(it)) => continue,
                None => words.first().and_then(|word| lone_flag(&programs, word)),
            };
            seen += 1;
            wrong.extend(problem.map(|problem| format!("{}: `{span}`: {problem}", page.path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} were found");
}

/// What is wrong with a flag that stands alone.
fn lone_flag(programs: &[Command], word: &str) -> Option<String> {
    let flag = word.strip_prefix("--")?.split('=').next()?;
    if !flag.starts_with(char::is_alphabetic) {
        return None;
    }
    let is_known = programs.iter().any(|program| has_flag(program, flag)) || OF_OTHERS.contains(&flag);
    (!is_known).then(|| format!("no program has --{flag}"))
}

fn has_flag(command: &Command, flag: &str) -> bool {
    command.get_arguments().any(|it| it.get_long() == Some(flag))
        || command.get_subcommands().any(|it| has_flag(it, flag))
}
