//! Pages of the documentation as tests read them: code blocks, the command lines in them with what they print, and code in prose.
//! Promises nothing about prose itself.

mod script;

use std::path::{Path, PathBuf};

pub use script::Script;

use crate::reference::root;

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its path in the repository.
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block of a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// What follows the opening fence: the language, then words of our own.
    pub info: String,
    /// The number of its first line in the page.
    pub line: usize,
    /// Its lines, without the indentation of the fence.
    pub lines: Vec<String>,
}

/// A command line in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The number of its first line in the page.
    pub line: usize,
    /// The command as a shell takes it.
    pub command: String,
    /// The lines after it, up to the next command.
    pub output: Vec<String>,
}

/// All pages for users and contributors.
pub fn all() -> Vec<Page> {
    let mut pages = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(page).to_vec();
    below(Path::new("docs"), &mut pages);
    pages
}

/// One page, by its path in the repository.
pub fn page(path: impl AsRef<Path>) -> Page {
    let path = path.as_ref().to_owned();
    let text = std::fs::read_to_string(root().join(&path));
    Page { text: text.unwrap_or_else(|error| panic!("{}: {error}", path.display())), path }
}

fn below(directory: &Path, pages: &mut Vec<Page>) {
    for entry in std::fs::read_dir(root().join(directory)).expect("a directory of the repository") {
        let path = directory.join(entry.expect("an entry").file_name());
        if root().join(&path).is_dir() {
            below(&path, pages);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(page(path));
        }
    }
}

impl Page {
    /// The fenced blocks.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (index, line) in self.text.lines().enumerate() {
            let bare = line.trim_start();
            match &mut open {
                None if bare.starts_with("```") => {
                    let info = bare.trim_start_matches('`').to_owned();
                    open =
                        Some((line.len() - bare.len(), Block { info, line: index + 2, lines: Vec::new() }));
                }
                None => {}
                Some(_) if bare.starts_with("```") => blocks.extend(open.take().map(|(_, block)| block)),
                Some((indent, block)) => {
                    let cut = (*indent).min(line.len() - bare.len());
                    block.lines.push(line[cut..].to_owned());
                }
            }
        }
        assert!(open.is_none(), "{} has a block that does not end: {open:?}", self.path.display());
        blocks
    }

    /// Code in prose and tables: what stands between single backticks outside of blocks.
    pub fn spans(&self) -> Vec<String> {
        let mut spans = Vec::new();
        let mut prose = String::new();
        let mut fenced = false;
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                prose.push_str(line);
                // A span does not go beyond its paragraph.
                prose.push_str(if line.is_empty() { "\n" } else { " " });
            }
        }
        for paragraph in prose.lines() {
            spans.extend(paragraph.split('`').skip(1).step_by(2).map(|span| span.replace("\\|", "|")));
        }
        spans
    }
}

impl Block {
    /// The lines that begin with a prompt, with those that continue them, and what follows them.
    pub fn commands(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> = Vec::new();
        let mut goes_on = false;
        for (index, line) in self.lines.iter().enumerate() {
            let prompt = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
            match (goes_on, prompt, all.last_mut()) {
                (true, _, Some(last)) => {
                    last.command.push('\n');
                    last.command.push_str(line);
                }
                (_, Some(command), _) => {
                    let line = self.line + index;
                    all.push(Shown { line, command: command.to_owned(), output: Vec::new() });
                }
                (_, None, Some(last)) => last.output.push(line.clone()),
                (_, None, None) => {}
            }
            goes_on = all.last().is_some_and(|last| last.output.is_empty() && last.command.ends_with('\\'));
        }
        all
    }
}

/// The words of each command in a line of a shell, without what it redirects and without comments.
pub fn commands_in(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut skips = false;
    let mut end = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>, redirects: bool| {
        if let Some(word) = word.take()
            && !std::mem::replace(&mut skips, false)
        {
            commands.last_mut().expect("there is one").push(word);
        }
        skips |= redirects;
    };
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' | '"' => {
                let text = word.get_or_insert_default();
                text.extend(characters.by_ref().take_while(|it| *it != character));
            }
            // What another command prints is one word.
            '$' if characters.peek() == Some(&'(') => {
                let text = word.get_or_insert_default();
                text.push('$');
                text.extend(characters.by_ref().take_while(|it| *it != ')'));
            }
            '\\' => {
                if let Some(next) = characters.next().filter(|it| *it != '\n') {
                    word.get_or_insert_default().push(next);
                }
            }
            '#' if word.is_none() => drop(characters.by_ref().find(|it| *it == '\n')),
            '|' | ';' | '&' | '\n' => {
                end(&mut word, &mut commands, false);
                commands.push(Vec::new());
            }
            '>' | '<' => {
                // A number before it is a descriptor.
                word = word.filter(|it| it.parse::<u32>().is_err());
                end(&mut word, &mut commands, true);
            }
            _ if character.is_whitespace() => end(&mut word, &mut commands, false),
            _ => word.get_or_insert_default().push(character),
        }
    }
    end(&mut word, &mut commands, false);
    commands.retain(|command| !command.is_empty());
    commands
}
