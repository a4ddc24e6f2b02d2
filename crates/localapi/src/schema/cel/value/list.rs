//! Lists: of the resource, or made by an expression.

use std::rc::Rc;

use serde_json::Value;

use super::super::super::correlate::composite_key;
use super::super::super::node::{ListType, Node};
use super::super::EvalError;
use super::super::escape::escape;
use super::Val;

/// A list: of the resource, or made by an expression.
#[derive(Clone, Debug)]
pub(in crate::schema) struct List<'a> {
    items: Items<'a>,
    /// The schema of the list, if it came from the resource.
    node: Option<&'a Node>,
}

#[derive(Clone, Debug)]
enum Items<'a> {
    Json(&'a [Value]),
    Owned(Rc<Vec<Val<'a>>>),
}

impl<'a> List<'a> {
    /// One of the resource, through its schema.
    pub(super) fn of(items: &'a [Value], node: &'a Node) -> Self {
        Self { items: Items::Json(items), node: Some(node) }
    }

    /// One that an expression made.
    pub(super) fn made(items: Vec<Val<'a>>) -> Self {
        Self { items: Items::Owned(Rc::new(items)), node: None }
    }

    pub(in crate::schema::cel) fn len(&self) -> usize {
        match &self.items {
            Items::Json(items) => items.len(),
            Items::Owned(items) => items.len(),
        }
    }

    pub(in crate::schema::cel) fn get(&self, index: usize) -> Result<Option<Val<'a>>, EvalError> {
        match &self.items {
            Items::Json(items) => match items.get(index) {
                Some(item) => self.convert(item).map(Some),
                None => Ok(None),
            },
            Items::Owned(items) => Ok(items.get(index).cloned()),
        }
    }

    fn convert(&self, item: &'a Value) -> Result<Val<'a>, EvalError> {
        match self.node.and_then(|n| n.items.as_deref()) {
            Some(node) => Val::of(item, node, false),
            None => Err(EvalError::new("invalid array type, expected Items with a non-empty Schema")),
        }
    }

    pub(in crate::schema::cel) fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, EvalError>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index).transpose())
    }

    pub(in crate::schema::cel) fn to_vec(&self) -> Result<Vec<Val<'a>>, EvalError> {
        self.iter().collect()
    }

    pub(in crate::schema::cel) fn contains(&self, value: &Val<'a>) -> Result<bool, EvalError> {
        let mut failure = None;
        for item in self.iter() {
            match item.and_then(|item| item.equals(value)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    fn list_type(&self) -> ListType {
        self.node.map_or(ListType::Atomic, |n| n.list_type)
    }

    /// Sets and keyed lists are equal in any order.
    pub(super) fn equals(&self, other: &List<'a>) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if self.list_type() == ListType::Atomic {
            for index in 0..self.len() {
                match (self.get(index)?, other.get(index)?) {
                    (Some(a), Some(b)) if a.equals(&b)? => {}
                    _ => return Ok(false),
                }
            }
            return Ok(true);
        }
        if let (Items::Json(a), Items::Json(b), Some(node), ListType::Map) =
            (&self.items, &other.items, self.node, self.list_type())
        {
            return self.equal_by_key(a, b, node);
        }
        for item in self.iter() {
            if !other.contains(&item?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equal_by_key(&self, a: &'a [Value], b: &'a [Value], node: &Node) -> Result<bool, EvalError> {
        let key =
            |item: &Value| item.as_object().and_then(|fields| composite_key(fields, &node.list_map_keys));
        let known: std::collections::HashMap<_, _> =
            a.iter().filter_map(|item| Some((key(item)?, item))).collect();
        for item in b {
            let Some(same) = key(item).and_then(|k| known.get(&k).copied()) else { return Ok(false) };
            if !self.convert(same)?.equals(&self.convert(item)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Concatenation; a set takes only what it has not, a keyed list replaces what it has.
    pub(in crate::schema::cel) fn add(&self, other: &List<'a>) -> Result<List<'a>, EvalError> {
        let mut items = self.to_vec()?;
        for item in other.iter() {
            let item = item?;
            match self.list_type() {
                ListType::Atomic => items.push(item),
                ListType::Set => {
                    let mut known = false;
                    for other in &items {
                        known = known || other.equals(&item)?;
                    }
                    if !known {
                        items.push(item);
                    }
                }
                ListType::Map => {
                    let keys = self.node.map(|n| n.list_map_keys.as_slice()).unwrap_or_default();
                    let mut place = None;
                    for (index, known) in items.iter().enumerate() {
                        if same_keys(known, &item, keys)? {
                            place = Some(index);
                        }
                    }
                    match place {
                        Some(index) => items[index] = item,
                        None => items.push(item),
                    }
                }
            }
        }
        Ok(List { items: Items::Owned(Rc::new(items)), node: self.node })
    }
}

fn same_keys<'a>(a: &Val<'a>, b: &Val<'a>, keys: &[String]) -> Result<bool, EvalError> {
    for key in keys {
        let key = Val::text(escape(key).unwrap_or_else(|| key.clone()));
        match (a.get(&key)?, b.get(&key)?) {
            (Some(a), Some(b)) if a.equals(&b)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}
