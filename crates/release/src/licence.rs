//! Licence expressions of SPDX, as crates have them: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`, and the older
//! `MIT/Apache-2.0`.

use anyhow::{Result, bail, ensure};

/// An expression in the form of today: a slash is an `OR`.
pub fn modern(expression: &str) -> String {
    expression.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// Whether these licences are enough to use what has this expression.
pub fn allows(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = modern(expression).replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    let outcome = reader.any()?;
    ensure!(
        reader.words.is_empty(),
        "the licence {expression:?} goes on after its end with {:?}",
        reader.words[0]
    );
    Ok(outcome)
}

/// Reads an expression word by word: `OR` binds less than `AND`.
struct Reader<'e> {
    words: &'e [&'e str],
    allowed: &'e [String],
}

impl Reader<'_> {
    fn any(&mut self) -> Result<bool> {
        let mut outcome = self.all()?;
        while self.take("OR") {
            outcome |= self.all()?;
        }
        Ok(outcome)
    }

    fn all(&mut self) -> Result<bool> {
        let mut outcome = self.one()?;
        while self.take("AND") {
            outcome &= self.one()?;
        }
        Ok(outcome)
    }

    fn one(&mut self) -> Result<bool> {
        if self.take("(") {
            let outcome = self.any()?;
            ensure!(self.take(")"), "a licence expression has a bracket that does not close");
            return Ok(outcome);
        }
        let mut name = self.name()?.to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.name()?);
        }
        Ok(self.allowed.contains(&name))
    }

    fn name(&mut self) -> Result<&str> {
        match self.words.split_first() {
            Some((name, rest)) if !["AND", "OR", "WITH", "(", ")"].contains(name) => {
                self.words = rest;
                Ok(name)
            }
            found => bail!(
                "a licence expression needs a name and has {:?}",
                found.map_or(&"its end", |(it, _)| it)
            ),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged_as_spdx_says() {
        let allowed = ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, outcome) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("MIT OR GPL-3.0 AND GPL-2.0", true),
            ("(MIT OR GPL-3.0) AND GPL-2.0", false),
            ("Apache-2.0 AND (ISC OR GPL-3.0)", true),
            ("MIT/GPL-3.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(allows(expression, &allowed).unwrap(), outcome, "{expression}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT MIT", "MIT WITH"] {
            assert!(allows(broken, &allowed).is_err(), "{broken}");
        }
        assert_eq!(modern("MIT/Apache-2.0"), "MIT OR Apache-2.0");
    }
}
