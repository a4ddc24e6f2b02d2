//! The expressions of nmpolicy, as nmstate reads them.
//!
//! ```text
//!   interfaces                                            keep a part of the state
//!   interfaces.name == "eth1"                             keep the items that have a value
//!   routes.running.destination == capture.a.PATH          the same with a value of another capture
//!   capture.a | routes.running.next-hop-interface := "x"  replace a value in the items of another capture
//! ```
//!
//! One pipe and one operator. Texts are in quotes; a word without a dot needs none. What nmstate reads and gives no meaning
//! to (several words, a path that it does not know, `== null`) is refused here.

mod lex;
#[cfg(test)]
mod tests;

use crate::Refusal;
use lex::{Token, lex};

const ACCEPTED: &str = "is PATH, PATH == VALUE or PATH := VALUE, after an optional \"capture.NAME |\"; a PATH begins with \
                        interfaces or routes, a VALUE is \"TEXT\" or capture.NAME.PATH";

/// An expression that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The capture that it works on; the node's state if there is none.
    pub input: Option<String>,
    /// The part of it, or the property of each item. Empty for all of it.
    pub path: Vec<String>,
    /// What is done.
    pub action: Action,
}

/// What an expression does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keeps the part at the path.
    Keep,
    /// Keeps the items whose property is this.
    Equals(Operand),
    /// Gives the property of all items this value.
    Replace(Operand),
}

/// The right side of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A text.
    Text(String),
    /// Nothing.
    Null,
    /// What is at a path of a capture, or of the node's state.
    Path {
        /// The capture.
        capture: Option<String>,
        /// The path in it.
        path: Vec<String>,
    },
}

impl Expression {
    /// Reads an expression; `place` is where it stands, for a refusal.
    pub fn parse(place: &str, text: &str) -> Result<Self, Refusal> {
        let refuse = |problem: String| Refusal::new(place, format!("{text:?}: {problem}"), ACCEPTED);
        let tokens = lex(text).map_err(&refuse)?;
        Self::read(&tokens).map_err(refuse)
    }

    fn read(tokens: &[Token]) -> Result<Self, String> {
        let pipes: Vec<usize> = positions(tokens, |it| *it == Token::Pipe);
        let (input, rest) = match pipes.as_slice() {
            [] => (None, tokens),
            [at] => (Some(piped(&tokens[..*at])?), &tokens[at + 1..]),
            _ => return Err("it has more than one pipe".to_owned()),
        };
        let operators = positions(rest, |it| matches!(it, Token::Equal | Token::Replace));
        let (left, operator, right) = match operators.as_slice() {
            [] => (rest, None, &[][..]),
            [at] => (&rest[..*at], Some(&rest[*at]), &rest[at + 1..]),
            _ => return Err("it has more than one operator".to_owned()),
        };
        let path = match left {
            [Token::Path(path)] => path.as_slice(),
            // One word is a path of one step.
            [Token::Word(word)] => std::slice::from_ref(word),
            [] => return Err("a path is missing".to_owned()),
            _ => return Err("there is more than one path before the operator".to_owned()),
        };
        let (of_path, path) = split_capture(path)?;
        let input = match (input, of_path) {
            (Some(_), Some(again)) => {
                return Err(format!("it works on two captures: the one before the pipe, and {again:?}"));
            }
            (input, of_path) => input.or(of_path),
        };
        let action = match operator {
            None => Action::Keep,
            Some(Token::Equal) => match operand(right)? {
                Operand::Null => return Err("nothing is equal to null".to_owned()),
                operand => Action::Equals(operand),
            },
            Some(_) => Action::Replace(operand(right)?),
        };
        check_path(&path, &action, input.is_some())?;
        Ok(Self { input, path, action })
    }

    /// The captures that it refers to.
    pub fn references(&self) -> impl Iterator<Item = &str> {
        let of_value = match &self.action {
            Action::Equals(Operand::Path { capture, .. })
            | Action::Replace(Operand::Path { capture, .. }) => capture.as_deref(),
            _ => None,
        };
        self.input.as_deref().into_iter().chain(of_value)
    }
}

fn positions(tokens: &[Token], is: impl Fn(&Token) -> bool) -> Vec<usize> {
    tokens.iter().enumerate().filter(|(_, token)| is(token)).map(|(at, _)| at).collect()
}

/// The capture before a pipe.
fn piped(tokens: &[Token]) -> Result<String, String> {
    match tokens {
        [Token::Path(path)] if path.len() == 2 && path[0] == "capture" => Ok(path[1].clone()),
        _ => Err("before the pipe there is no capture.NAME".to_owned()),
    }
}

/// Takes the capture off a path.
fn split_capture(path: &[String]) -> Result<(Option<String>, Vec<String>), String> {
    match path {
        [first] if first == "capture" => Err("\"capture\" is followed by no name".to_owned()),
        [first, name, rest @ ..] if first == "capture" => Ok((Some(name.clone()), rest.to_vec())),
        path => Ok((None, path.to_vec())),
    }
}

fn operand(tokens: &[Token]) -> Result<Operand, String> {
    match tokens {
        [Token::Text(text)] => Ok(Operand::Text(text.clone())),
        [Token::Word(word)] if word.eq_ignore_ascii_case("null") => Ok(Operand::Null),
        [Token::Word(word)] => Ok(Operand::Text(word.clone())),
        [Token::Path(path)] => match split_capture(path)? {
            (Some(name), path) if path.is_empty() => {
                Err(format!("capture.{name} is not one value: a path in it is missing"))
            }
            (capture, path) => {
                if capture.is_none() {
                    check_first(&path)?;
                }
                Ok(Operand::Path { capture, path })
            }
        },
        [] => Err("a value is missing after the operator".to_owned()),
        _ => Err("there is more than one value after the operator".to_owned()),
    }
}

/// Whether nmstate finds something at the path.
fn check_path(path: &[String], action: &Action, of_capture: bool) -> Result<(), String> {
    if *action == Action::Keep {
        // All of a capture.
        if path.is_empty() && of_capture {
            return Ok(());
        }
        // A path of a capture may lead to anything that it holds, as an address's ip.
        return if of_capture { Ok(()) } else { check_first(path) };
    }
    check_first(path)?;
    match path {
        [first] => Err(format!("{first:?} is followed by no property to compare or replace")),
        [first, list, _] if first == "routes" && matches!(list.as_str(), "running" | "config") => Ok(()),
        [first, ..] if first == "routes" => {
            Err("a route's property is routes.running.PROPERTY or routes.config.PROPERTY".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_first(path: &[String]) -> Result<(), String> {
    match path.first().map(String::as_str) {
        Some("interfaces" | "routes") => Ok(()),
        Some(other) => Err(format!("{other:?} is no part of a node's state that is read here")),
        None => Err("a path is missing".to_owned()),
    }
}
