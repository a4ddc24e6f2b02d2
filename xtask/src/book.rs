//! `cargo xtask book`: the documentation as HTML. mdBook is built once, in the version below, and kept under `target`. Pages are
//! copied together with what they link to, so that every link of the repository is one of the book, too.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::step::{cargo, root, target_directory, timed};

/// The version of mdBook.
const MDBOOK: &str = "0.5.4";
/// Pages outside of `docs/` that are part of the book.
const AT_ROOT: [&str; 3] = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
/// The table of contents, which is no page.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Directories that pages link to.
const LINKED: [&str; 1] = ["deploy"];

/// Builds the book, and says where it is.
pub(crate) fn book() -> Result<()> {
    let program = mdbook()?;
    let book = target_directory().join("book");
    let pages = book.join("pages");
    timed("copy the pages", || {
        if pages.exists() {
            fs::remove_dir_all(&pages).with_context(|| format!("cannot remove {}", pages.display()))?;
        }
        copy(Path::new("docs"), &pages)?;
        AT_ROOT.iter().try_for_each(|page| copy(Path::new(page), &pages))?;
        LINKED.iter().try_for_each(|directory| copy(Path::new(directory), &pages))
    })?;
    let settings = fs::read_to_string(root().join("book.toml")).context("cannot read book.toml")?;
    fs::write(book.join("book.toml"), settings.replace("\"docs", "\"pages"))?;
    timed("write the book", || {
        let written = std::process::Command::new(&program).arg("build").arg(&book).status();
        let written = written.with_context(|| format!("cannot start {}", program.display()))?;
        anyhow::ensure!(written.success(), "mdbook ended with {written}");
        Ok(())
    })?;
    crate::step::say(&format!("{}", book.join("book/index.html").display()));
    Ok(())
}

/// The program, built if it is not there.
fn mdbook() -> Result<PathBuf> {
    let place = target_directory().join(format!("mdbook-{MDBOOK}"));
    let program = place.join("bin/mdbook");
    if !program.is_file() {
        let place = place.display().to_string();
        let arguments = ["install", "mdbook", "--version", MDBOOK, "--locked", "--root", &place];
        let search_alone = ["--no-default-features", "--features", "search"];
        cargo("build mdbook, once", &[&arguments[..], &search_alone].concat(), &[])?;
    }
    Ok(program)
}

/// Copies a file or directory of the repository to where the book has it. Links of pages are changed accordingly.
fn copy(path: &Path, pages: &Path) -> Result<()> {
    let from = root().join(path);
    let to = pages.join(place(path));
    let failed = || format!("cannot copy {}", path.display());
    if from.is_dir() {
        fs::create_dir_all(&to).with_context(failed)?;
        for entry in fs::read_dir(&from).with_context(failed)? {
            copy(&path.join(entry.with_context(failed)?.file_name()), pages)?;
        }
        return Ok(());
    }
    if path.extension().is_some_and(|ending| ending == "md") {
        let text = fs::read_to_string(&from).with_context(failed)?;
        return fs::write(&to, linked(&text, path)).with_context(failed);
    }
    fs::copy(&from, &to).map(drop).with_context(failed)
}

/// Where a path of the repository is in the book: what is below `docs` is at its root, and its front page is the book's.
fn place(path: &Path) -> &Path {
    if path == Path::new("docs/README.md") {
        Path::new("index.md")
    } else {
        path.strip_prefix("docs").unwrap_or(path)
    }
}

/// A page with its links as the book needs them. A page that is only named, such as `docs/cli.md` in code marks, becomes a link.
fn linked(text: &str, page: &Path) -> String {
    let mut fenced = false;
    let lines = text.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence { line.to_owned() } else { of_line(line, page) }
    });
    lines.map(|line| line + "\n").collect()
}

fn of_line(line: &str, page: &Path) -> String {
    let mut parts = line.split("](");
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        let (path, anchor) =
            link.split_once('#').map_or((link, String::new()), |(path, it)| (path, format!("#{it}")));
        let stays = path.is_empty() || link.contains("://");
        let path = if stays { path.to_owned() } else { between(page, &normal(&directory(page).join(path))) };
        changed.extend(["](", &path, &anchor, ")", rest]);
    }
    // A span of code that goes on in the next line.
    if changed.matches('`').count() % 2 == 1 {
        return changed;
    }
    let named = changed.split('`').enumerate().map(|(number, span)| {
        let named = Path::new(span);
        let is_page = number % 2 == 1 && span.starts_with("docs/") && root().join(named).is_file();
        let is_page = is_page && named.extension().is_some_and(|it| it == "md") && span != SUMMARY;
        match (number % 2, is_page) {
            (0, _) => span.to_owned(),
            (_, true) => format!("[{}]({})", title(named), between(page, named)),
            (_, false) => format!("`{span}`"),
        }
    });
    named.collect()
}

fn directory(page: &Path) -> &Path {
    page.parent().unwrap_or(Path::new(""))
}

/// The first heading of a page.
fn title(page: &Path) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap_or_default();
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    heading.map_or_else(|| page.display().to_string(), str::to_owned)
}

/// The way from one page to another file, both by their paths in the repository, within the book.
fn between(page: &Path, target: &Path) -> String {
    let ups = directory(place(page)).components().map(|_| "../");
    format!("{}{}", ups.collect::<String>(), place(target).display())
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => drop(done.pop()),
            Component::CurDir => {}
            other => done.push(other),
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::linked;

    #[test]
    fn links_are_those_of_the_book() {
        let page = Path::new("docs/reference/events.md");
        let text = "See [errors](../errors.md), [words](../../ARCHITECTURE.md#words) and [here](#below).\n```\n[x](../y.md)\n```\n";
        let changed = linked(text, page);
        assert_eq!(
            changed,
            "See [errors](../errors.md), [words](../ARCHITECTURE.md#words) and [here](#below).\n```\n[x](../y.md)\n```\n"
        );
        let root = linked("[a](docs/errors.md) `docs/errors.md` `x`\n", Path::new("CHANGELOG.md"));
        assert_eq!(root, "[a](errors.md) [Errors](errors.md) `x`\n");
        let summary = linked("- [A](../ARCHITECTURE.md)\n- [B](errors.md)\n", Path::new("docs/SUMMARY.md"));
        assert_eq!(summary, "- [A](ARCHITECTURE.md)\n- [B](errors.md)\n");
    }
}
