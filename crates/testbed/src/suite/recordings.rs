//! The real server's transcripts, checked in: one JSON file per area, one line per part, so that a changed behaviour is a diff
//! of a few lines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::transcript::{Step, Transcript};
use super::{Scenario, SuiteError};

/// Set this variable (to anything) to write new recordings instead of comparing.
pub const RECORD: &str = "TENURE_RECORD";

/// The recorded transcripts of `scenarios`, in their order; `None` for one that was never recorded.
pub fn load(scenarios: &[Scenario]) -> Result<Vec<Option<Transcript>>, SuiteError> {
    let mut by_name = BTreeMap::new();
    for area in areas(scenarios) {
        let path = file(area);
        let fails = |source: Box<dyn std::error::Error + Send + Sync>| SuiteError::File {
            act: "reading the recording",
            path: path.clone(),
            source,
        };
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| fails(error.into()))?;
        let recorded: Vec<Transcript> = serde_json::from_str(&text).map_err(|error| fails(error.into()))?;
        by_name.extend(recorded.into_iter().map(|transcript| (transcript.scenario.clone(), transcript)));
    }
    Ok(scenarios.iter().map(|scenario| by_name.remove(scenario.name)).collect())
}

/// Writes `transcripts` as the recordings of their areas; drops other scenarios of those areas.
pub fn save(transcripts: &[Transcript]) -> Result<(), SuiteError> {
    let mut by_area: BTreeMap<&str, Vec<&Transcript>> = BTreeMap::new();
    for transcript in transcripts {
        by_area.entry(&transcript.area).or_default().push(transcript);
    }
    for (area, transcripts) in by_area {
        let path = file(area);
        std::fs::write(&path, text(&transcripts)).map_err(|error| SuiteError::File {
            act: "writing the recording",
            path: path.clone(),
            source: error.into(),
        })?;
    }
    Ok(())
}

fn areas(scenarios: &[Scenario]) -> Vec<&'static str> {
    let mut areas: Vec<_> = scenarios.iter().map(|scenario| scenario.area).collect();
    areas.sort_unstable();
    areas.dedup();
    areas
}

fn file(area: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recordings").join(format!("{area}.json"))
}

/// JSON with one line for each part of a step.
fn text(transcripts: &[&Transcript]) -> String {
    let scenarios: Vec<String> = transcripts
        .iter()
        .map(|transcript| {
            let steps: Vec<String> = transcript.steps.iter().map(step).collect();
            format!(
                "{{\"area\":{},\"scenario\":{},\"steps\":[\n{}\n]}}",
                quoted(&transcript.area),
                quoted(&transcript.scenario),
                steps.join(",\n")
            )
        })
        .collect();
    format!("[\n{}\n]\n", scenarios.join(",\n"))
}

fn step(step: &Step) -> String {
    let value = serde_json::to_value(step).unwrap_or_default();
    let parts: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!(" {}:{value}", quoted(key)))
        .collect();
    format!("{{\n{}\n}}", parts.join(",\n"))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::transcript::Note;
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back() {
        let note = Step::Note(Note { note: "a \"b\"".to_owned(), value: json!({"c": [1, null]}) });
        let transcript = Transcript {
            area: "a".to_owned(),
            scenario: "s".to_owned(),
            steps: vec![note.clone(), note],
            stopped: None,
        };
        let read: Vec<Transcript> = serde_json::from_str(&text(&[&transcript, &transcript])).unwrap();
        assert_eq!(read, vec![transcript.clone(), transcript]);
    }
}
