//! The table has the texts of the code, and the documentation has the table.

use std::path::Path;

use super::*;

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A source file with its literals in one piece, without its tests.
fn source(path: &str) -> String {
    let text = file(path);
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut joined = String::new();
    let mut parts = text.split("\\\n");
    joined += parts.next().unwrap_or_default();
    for part in parts {
        joined += part.trim_start();
    }
    joined
}

/// Texts for people in a source file: literals of several words.
fn literals(path: &str) -> Vec<String> {
    let text = source(path);
    let lines =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let starts = ["format!(\"", "later(\"", "NotAvailable, \"", "format!(\n"];
    let mut found = Vec::new();
    for start in starts {
        for (at, _) in lines.match_indices(start) {
            let rest = &lines[at + start.len()..];
            let rest = rest.trim_start().trim_start_matches('"');
            found.push(rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    found
}

#[test]
fn every_text_of_the_table_is_in_the_code() {
    for entry in TABLE {
        let source = source(entry.from);
        for part in entry.says {
            assert!(source.contains(part), "{} does not say {part:?}", entry.from);
        }
    }
}

#[test]
fn every_error_of_pools_and_calls_is_explained() {
    let mut seen = 0;
    for path in ["crates/agent/src/coil/refusal.rs", "crates/agent/src/serve/failure.rs"] {
        // Parts of other texts begin with punctuation.
        let texts =
            literals(path).into_iter().filter(|text| text.len() > 15 && !text.starts_with([',', ':', ';']));
        for text in texts {
            seen += 1;
            assert!(find(&text).is_some(), "{path} says {text:?}, which `tenure explain` does not know");
        }
    }
    assert!(seen > 15, "only {seen} texts were found");
}

#[test]
fn the_documentation_has_the_table() {
    let page = file("docs/errors.md");
    let rows: Vec<String> = TABLE
        .iter()
        .map(|entry| format!("| {} | {} | {} |", entry.says.join("…").trim(), entry.means, entry.remedy))
        .collect();
    for row in &rows {
        assert!(page.contains(row), "docs/errors.md lacks the row\n{row}");
    }
    let shown = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| text ")).count();
    assert_eq!(shown, rows.len(), "docs/errors.md has other rows");
}

#[test]
fn what_kubectl_shows_is_explained() {
    let line = "Failed to create pod sandbox: plugin type=\"coil\" failed (add): AddressPool \"default\" has no address left for this \
                node: pool \"default\" has no free block; append a subnet to spec.subnets";
    assert!(find(line).unwrap().means.starts_with("All addresses of the node's blocks are held"));
    let json = r#"{"msg": "there is no AddressPool \"blue\", which namespace \"shop\" uses"}"#;
    assert!(find(json).unwrap().means.starts_with("The pod's namespace names a pool"));
    assert!(find("disk quota exceeded").is_none());
    let options =
        ExplainOptions { text: vec!["tenured".into(), "is".into(), "ending".into()], output: Format::Table };
    let said = run(&options).unwrap();
    assert_eq!((said.code, said.text.lines().count()), (0, 2));
}

#[test]
fn every_text_of_the_page_about_symptoms_is_known() {
    let page = file("docs/troubleshooting.md");
    let table = page.split("| the message has | look at |").nth(1).unwrap().split("\n\n").next().unwrap();
    let texts: Vec<&str> =
        table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert!(texts.len() > 8, "{texts:?}");
    for text in texts {
        assert!(
            find(text).is_some(),
            "docs/troubleshooting.md has {text:?}, which `tenure explain` does not know"
        );
    }
}
