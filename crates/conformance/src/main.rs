//! Runs case files: inputs with the answers that peers give, compared with ours.
//!
//! `cargo xtask conformance FILE…` prints every case that disagrees (id, input, expected, got) and
//! closes with `N passed, N failed, N skipped`. A `contract` must agree with the peer. A `quirk` is a
//! defect of the peer: it is compared with our own decision, which [`decisions`] states as a rule.
//!
//! Called by the name of the plugin it is the plugin: some cases run it as a process.

mod answers;
mod case;
mod compare;
mod decisions;

use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use tenure_cni::plugin;

use crate::answers::Answer;
use crate::case::{Case, CaseFile, Class};

/// How many cases are answered at once.
const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    if plugin::own_name() == answers::PLUGIN_NAME {
        return plugin::main();
    }
    match run(std::env::args().skip(1), &mut std::io::stdout().lock()) {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// How many cases ended how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

fn run(files: impl Iterator<Item = String>, out: &mut impl Write) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut any = false;
    for path in files {
        any = true;
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read the case file {path}"))?;
        let file: CaseFile = serde_json::from_str(&text).with_context(|| {
            format!("{path} is no case file: expected {{\"cases\": [{{id, kind, class, input, expect}}]}}")
        })?;
        for (case, answer) in file.cases.iter().zip(answer_all(&file.cases)) {
            judge(case, answer, &mut tally, out)?;
        }
    }
    if !any {
        bail!("no case file given; usage: conformance FILE…");
    }
    writeln!(out, "{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped)?;
    Ok(tally)
}

/// Our answers to the cases, in their order. Several at once: those about the plugin's program spend their time waiting.
fn answer_all(cases: &[Case]) -> Vec<Option<Answer>> {
    let (next, answers) = (AtomicUsize::new(0), cases.iter().map(|_| OnceLock::new()).collect::<Vec<_>>());
    let work = || {
        while let Some((case, answer)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            cases.get(number).zip(answers.get(number))
        } {
            _ = answer.set(answers::answer(&case.kind, &case.input, &case.expect));
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    answers.into_iter().map(|answer| answer.into_inner().flatten()).collect()
}

/// Compares our answer with the one that is expected; says so when it disagrees.
fn judge(case: &Case, answer: Option<Answer>, tally: &mut Tally, out: &mut impl Write) -> Result<()> {
    let Some(answer) = answer else {
        tally.skipped += 1;
        return Ok(());
    };
    let got = answer.unwrap_or_else(|refusal| json!({ "error": refusal }));
    let decided = match case.class {
        Class::Quirk => decisions::decide(&case.kind, &case.input),
        Class::Contract | Class::ContractL2Only | Class::ForkExtension => None,
    };
    let expected: &Value = decided.as_ref().unwrap_or(&case.expect);
    if compare::agree(expected, &got) {
        tally.passed += 1;
    } else {
        tally.failed += 1;
        writeln!(out, "{} ({}, {:?}) disagrees", case.id, case.kind, case.class)?;
        writeln!(out, "  input:    {}", case.input)?;
        writeln!(out, "  expected: {expected}{}", if decided.is_some() { " (our decision)" } else { "" })?;
        writeln!(out, "  got:      {got}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_on(cases: &Value) -> (Tally, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), json!({ "cases": cases }).to_string()).unwrap();
        let mut out = Vec::new();
        let tally = run([file.path().display().to_string()].into_iter(), &mut out).unwrap();
        (tally, String::from_utf8(out).unwrap())
    }

    fn next_of_a_24(id: &str, expect: &Value) -> Value {
        let input = json!({"range": "10.0.0.0/24", "range_start": null, "range_end": null, "exclude": [], "reserved": []});
        json!({"id": id, "kind": "iterate", "class": "contract", "input": input, "expect": expect})
    }

    #[test]
    fn a_case_that_disagrees_is_printed_with_input_expected_and_got() {
        let wrong = next_of_a_24("wrong", &json!({"ip": "10.0.0.9"}));
        let (tally, text) = run_on(&json!([next_of_a_24("right", &json!({"ip": "10.0.0.1"})), wrong]));
        assert_eq!(tally, Tally { passed: 1, failed: 1, skipped: 0 });
        assert!(
            text.contains("wrong (iterate") && text.contains("10.0.0.9") && text.contains("10.0.0.1"),
            "{text}"
        );
        assert!(text.ends_with("1 passed, 1 failed, 0 skipped\n"), "{text}");
    }

    #[test]
    fn a_missing_refusal_is_a_disagreement() {
        let (tally, _) = run_on(&json!([next_of_a_24("refuse", &json!({"error": true}))]));
        assert_eq!(tally.failed, 1);
    }

    #[test]
    fn a_kind_that_is_not_known_yet_is_skipped_and_counted() {
        let unknown =
            json!({"id": "x", "kind": "from_the_future", "class": "contract", "input": {}, "expect": {}});
        assert_eq!(run_on(&json!([unknown])).0, Tally { passed: 0, failed: 0, skipped: 1 });
    }

    #[test]
    fn a_file_of_another_shape_is_refused_and_says_what_is_expected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[]").unwrap();
        let error = run([file.path().display().to_string()].into_iter(), &mut Vec::new()).unwrap_err();
        assert!(format!("{error:#}").contains("expected {\"cases\""), "{error:#}");
    }
}
