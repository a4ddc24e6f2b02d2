//! A reader who types what a page says: the commands in its blocks that are marked `run`, one after the other in one shell, and
//! a comparison of what they print with what the page shows. Promises: a command that fails ends the script, and what the page
//! shows without being printed is named.

use super::{Page, Shown, page};

/// The commands of a page.
#[derive(Clone, Debug)]
pub struct Script {
    page: Page,
    steps: Vec<Shown>,
}

/// What a script prints before the command of this number.
fn mark(number: usize) -> String {
    format!("@@ {number} @@")
}

impl Script {
    /// The script of the page at this path in the repository.
    pub fn of(path: &str) -> Self {
        let page = page(path);
        let blocks =
            page.blocks().into_iter().filter(|block| block.info.split(' ').any(|word| word == "run"));
        let steps: Vec<Shown> = blocks.flat_map(|block| block.commands()).collect();
        assert!(!steps.is_empty(), "{path} has no block that is marked `run`");
        Self { page, steps }
    }

    /// The same with another text in place of one that is only an example: an image that the test bed does not have.
    #[must_use]
    pub fn with(mut self, example: &str, given: &str) -> Self {
        assert!(
            self.steps.iter().any(|step| step.command.contains(example)),
            "{} has no {example}",
            self.page.path.display()
        );
        for step in &mut self.steps {
            step.command = step.command.replace(example, given);
        }
        self
    }

    /// The script, for bash.
    pub fn text(&self) -> String {
        let steps = self.steps.iter().enumerate();
        let steps = steps.map(|(number, step)| format!("echo; echo '{}'\n{}\n", mark(number), step.command));
        format!("set -eo pipefail\n{}echo; echo '{}'\n", steps.collect::<String>(), mark(self.steps.len()))
    }

    /// Compares what the script printed with what the page shows. `…` stands for anything, alone on a line for any lines; a
    /// command without output on the page may print anything.
    pub fn compare(&self, said: &str) -> Result<(), String> {
        let mut rest = said;
        for (number, step) in self.steps.iter().enumerate() {
            let place = format!("{}:{}: {}", self.page.path.display(), step.line, step.command);
            let Some((_, after)) = rest.split_once(&mark(number)) else {
                return Err(format!("{place}: was not reached; before it:\n{rest}"));
            };
            let Some((own, _)) = after.split_once(&mark(number + 1)) else {
                return Err(format!("{place}: failed, and said:\n{after}"));
            };
            let lines = |text: Vec<&str>| -> Vec<String> {
                let words =
                    text.into_iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
                words.filter(|line| !line.is_empty()).collect()
            };
            let shown = lines(step.output.iter().map(String::as_str).collect());
            let printed = lines(own.lines().collect());
            if !shown.is_empty() && !matches(&shown, &printed) {
                return Err(format!(
                    "{place}: the page shows\n{}\nand it said\n{}",
                    shown.join("\n"),
                    printed.join("\n")
                ));
            }
            rest = after;
        }
        Ok(())
    }
}

fn matches(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "…" => {
            (0..=printed.len()).any(|skip| matches(rest, &printed[skip..]))
        }
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(first, others)| is_like(line, first) && matches(rest, others))
        }
    }
}

/// Whether a line has the parts of a pattern in their order, the first at its start and the last at its end.
fn is_like(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        let page = Page { path: "page.md".into(), text: text.to_owned() };
        let steps = page.blocks().iter().flat_map(super::super::Block::commands).collect();
        Script { page, steps }
    }

    #[test]
    fn what_is_printed_is_compared_with_what_is_shown() {
        let page = script("```console run\n$ echo one \\\n  two\none two\n# ls\na…c\n…\nlast\n```\n");
        assert_eq!(page.steps[0].command, "echo one \\\n  two");
        let said = |ls: &str| format!("\n@@ 0 @@\none   two\n\n@@ 1 @@\n{ls}\n@@ 2 @@\n");
        page.compare(&said("abbc\nx\ny\nlast")).unwrap();
        page.compare(&said("ac\nlast")).unwrap();
        for wrong in ["abb\nlast", "abc\nx", "abc", ""] {
            page.compare(&said(wrong)).unwrap_err();
        }
        let failed = page.compare("\n@@ 0 @@\none two\n\n@@ 1 @@\nls: cannot\n").unwrap_err();
        assert!(failed.contains("page.md:5: ls: failed") && failed.contains("ls: cannot"), "{failed}");
    }
}
