//! From the text of an expression to its words.

/// A word of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Names with dots between them.
    Path(Vec<String>),
    /// A name without dots.
    Word(String),
    /// What was in quotes.
    Text(String),
    /// `|`
    Pipe,
    /// `==`
    Equal,
    /// `:=`
    Replace,
}

/// The words of a text. A non-breaking space is a space: people paste expressions from pages that have them.
pub(super) fn lex(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '|' => (Token::Pipe, &rest[1..]),
            '=' | ':' | '!' => operator(rest)?,
            quote @ ('"' | '\'') => quoted(rest, quote)?,
            _ => word(rest)?,
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn operator(rest: &str) -> Result<(Token, &str), String> {
    if let Some(after) = rest.strip_prefix("==") {
        Ok((Token::Equal, after))
    } else if let Some(after) = rest.strip_prefix(":=") {
        Ok((Token::Replace, after))
    } else {
        let shown: String = rest.chars().take(2).collect();
        Err(format!("{shown:?} is no operator"))
    }
}

fn quoted(rest: &str, quote: char) -> Result<(Token, &str), String> {
    let inner = &rest[quote.len_utf8()..];
    match inner.split_once(quote) {
        Some(("", _)) => Err("there is nothing between the quotes".to_owned()),
        Some((text, after)) => Ok((Token::Text(text.to_owned()), after)),
        None => Err(format!("the quote {quote} has no end")),
    }
}

fn word(rest: &str) -> Result<(Token, &str), String> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '=' | '!' | '|' | '"' | '\'' | ':');
    let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
    let steps: Vec<String> = word.split('.').map(ToOwned::to_owned).collect();
    let is_step = |step: &String| {
        !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    if !steps.iter().all(is_step) {
        return Err(format!("{word:?} is no path and no word; a text with other characters needs quotes"));
    }
    let token = if steps.len() > 1 { Token::Path(steps) } else { Token::Word(word.to_owned()) };
    Ok((token, after))
}
