//! Compares two transcripts of one scenario, and shows which request was answered differently and how.

use std::fmt;

use super::differences;
use super::transcript::{Step, Transcript};

/// Lines shown around a difference.
const AROUND: usize = 3;

/// A scenario that the two servers answered differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Area and name of the scenario.
    pub scenario: String,
    /// Each step that differs.
    pub steps: Vec<StepMismatch>,
}

/// One step that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMismatch {
    /// Its number, from 1.
    pub number: usize,
    /// Its request.
    pub title: String,
    /// `-` expected, `+` got.
    pub diff: String,
}

/// Compares `got` with `expected`, after removing intended differences; `None` if they agree.
pub fn compare(expected: &Transcript, got: &Transcript) -> Option<Mismatch> {
    let mut steps = Vec::new();
    for index in 0..expected.steps.len().max(got.steps.len()) {
        let one = lines(expected.steps.get(index));
        let other = lines(got.steps.get(index));
        if one != other {
            let title =
                got.steps.get(index).or(expected.steps.get(index)).map_or_else(String::new, Step::title);
            steps.push(StepMismatch { number: index + 1, title, diff: diff(&one, &other) });
        }
    }
    if expected.stopped != got.stopped {
        let text =
            |stopped: &Option<String>| vec![stopped.clone().unwrap_or_else(|| "went to its end".to_owned())];
        let diff = diff(&text(&expected.stopped), &text(&got.stopped));
        steps.push(StepMismatch { number: got.steps.len() + 1, title: "the scenario".to_owned(), diff });
    }
    (!steps.is_empty()).then(|| Mismatch { scenario: format!("{}/{}", got.area, got.scenario), steps })
}

/// A report of every scenario of `got` that differs from its counterpart; empty if all agree.
pub fn report(expected: &[Option<Transcript>], got: &[Transcript]) -> String {
    let mut texts = Vec::new();
    for (index, got) in got.iter().enumerate() {
        match expected.get(index).and_then(Option::as_ref) {
            Some(expected) => texts.extend(compare(expected, got).map(|mismatch| mismatch.to_string())),
            None => texts.push(format!("{}/{} was never recorded\n", got.area, got.scenario)),
        }
    }
    if texts.is_empty() {
        return String::new();
    }
    format!("{}{} of {} scenarios differ\n", texts.concat(), texts.len(), got.len())
}

fn lines(step: Option<&Step>) -> Vec<String> {
    let Some(step) = step else { return vec!["(no such step)".to_owned()] };
    let step = differences::without(step.clone());
    let text = serde_json::to_string_pretty(&step).unwrap_or_else(|error| error.to_string());
    text.lines().map(str::to_owned).collect()
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(out, "{}, step {}: {}", self.scenario, step.number, step.title)?;
            writeln!(out, "  (- expected, + got)")?;
            for line in step.diff.lines() {
                writeln!(out, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// The lines of both, in order: `-` only in `one`, `+` only in `other`, with a few around each.
fn diff(one: &[String], other: &[String]) -> String {
    let merged = merge(one, other);
    let near = |index: usize| {
        let from = index.saturating_sub(AROUND);
        merged[from..(index + AROUND + 1).min(merged.len())].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut text = String::new();
    let mut skipping = false;
    for (index, (mark, line)) in merged.iter().enumerate() {
        if near(index) {
            text.extend([mark.to_string().as_str(), " ", line, "\n"]);
            skipping = false;
        } else if !skipping {
            text.push_str("  …\n");
            skipping = true;
        }
    }
    text
}

/// Both sequences merged along their longest common subsequence.
fn merge<'a>(one: &'a [String], other: &'a [String]) -> Vec<(char, &'a str)> {
    let mut longest = vec![vec![0_usize; other.len() + 1]; one.len() + 1];
    for i in (0..one.len()).rev() {
        for j in (0..other.len()).rev() {
            longest[i][j] = if one[i] == other[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut merged) = (0, 0, Vec::new());
    while i < one.len() || j < other.len() {
        if i < one.len() && j < other.len() && one[i] == other[j] {
            merged.push((' ', one[i].as_str()));
            (i, j) = (i + 1, j + 1);
        } else if j == other.len() || (i < one.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            merged.push(('-', one[i].as_str()));
            i += 1;
        } else {
            merged.push(('+', other[j].as_str()));
            j += 1;
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::super::transcript::Note;
    use super::*;
    use serde_json::{Value, json};

    fn transcript(values: &[Value]) -> Transcript {
        let step = |value: &Value| Step::Note(Note { note: "n".to_owned(), value: value.clone() });
        let steps = values.iter().map(step).collect();
        Transcript { area: "area".to_owned(), scenario: "scenario".to_owned(), steps, stopped: None }
    }

    #[test]
    fn equal_transcripts_have_no_mismatch() {
        assert_eq!(compare(&transcript(&[json!(1)]), &transcript(&[json!(1)])), None);
    }

    #[test]
    fn a_mismatch_names_scenario_step_and_both_values() {
        let expected = transcript(&[json!(1), json!({"code": 409})]);
        let got = transcript(&[json!(1), json!({"code": 500})]);
        let text = compare(&expected, &got).unwrap().to_string();
        assert!(text.contains("area/scenario, step 2: n"), "{text}");
        assert!(text.contains("-     \"code\": 409"), "{text}");
        assert!(text.contains("+     \"code\": 500"), "{text}");
    }

    #[test]
    fn a_report_counts_what_differs_and_names_what_was_never_recorded() {
        let good = transcript(&[json!(1)]);
        assert_eq!(report(&[Some(good.clone())], std::slice::from_ref(&good)), "");
        let text = report(&[Some(good.clone()), None], &[transcript(&[json!(2)]), good]);
        assert!(text.contains("area/scenario was never recorded"), "{text}");
        assert!(text.ends_with("2 of 2 scenarios differ\n"), "{text}");
    }

    #[test]
    fn a_scenario_that_stopped_early_differs_from_one_that_did_not() {
        let mut got = transcript(&[json!(1)]);
        got.stopped = Some("no uid".to_owned());
        let text = compare(&transcript(&[json!(1), json!(2)]), &got).unwrap().to_string();
        assert!(text.contains("(no such step)") && text.contains("+ no uid"), "{text}");
    }
}
