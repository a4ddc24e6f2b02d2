//! `tenure explain 'ERROR TEXT'`: what an error of agent, plugin or controller means, and what to do about it.

mod table;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::table::{Format, Output};
use table::{Entry, TABLE};

/// The exit code if the text is not known.
const UNKNOWN: u8 = 1;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct ExplainOptions {
    /// The text, or a line with it: of an event, of `kubectl describe pod`, of a log
    #[arg(value_name = "ERROR TEXT", required = true)]
    text: Vec<String>,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// The output of `tenure explain -o json`.
#[derive(Debug, Serialize)]
struct Answer {
    /// The parts of the text by which it was found; empty if it was not.
    found: &'static [&'static str],
    /// The source file that says it.
    from: &'static str,
    means: &'static str,
    remedy: &'static str,
}

/// Runs the verb.
pub(crate) fn run(options: &ExplainOptions) -> Result<Output> {
    let found = find(&options.text.join(" "));
    let answer = match found {
        Some(it) => Answer { found: it.says, from: it.from, means: it.means, remedy: it.remedy },
        None => Answer {
            found: &[],
            from: "",
            means: "No text that Tenure is known to say is in it.",
            remedy: "Pass the whole message. docs/errors.md lists all; `tenure check` compares the whole system.",
        },
    };
    let said = Output::either(options.output, &answer, || format!("{}\n{}\n", answer.means, answer.remedy))?;
    Ok(Output { code: if found.is_some() { 0 } else { UNKNOWN }, ..said })
}

/// The first entry whose parts follow each other in the text. Of a text in JSON, quotes may be escaped.
fn find(text: &str) -> Option<&'static Entry> {
    let plain = text.replace("\\\"", "\"");
    TABLE.iter().find(|entry| {
        let rest = entry.says.iter().try_fold(plain.as_str(), |rest, part| Some(rest.split_once(part)?.1));
        rest.is_some()
    })
}

#[cfg(test)]
mod tests;
