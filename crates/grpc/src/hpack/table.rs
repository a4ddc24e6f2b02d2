//! The tables of header fields: the static one (RFC 7541, appendix A), and the dynamic one that grows with a
//! peer's blocks.

use std::collections::VecDeque;

use super::TABLE;

/// The number of static entries.
pub(super) const STATIC: usize = 61;

/// The static table, one entry per line, a name and its value. It is one text, because a loader must relocate
/// a table of texts, and the plugin is loaded for every call.
const TEXT: &str = "\
    :authority\n\
    :method GET\n\
    :method POST\n\
    :path /\n\
    :path /index.html\n\
    :scheme http\n\
    :scheme https\n\
    :status 200\n\
    :status 204\n\
    :status 206\n\
    :status 304\n\
    :status 400\n\
    :status 404\n\
    :status 500\n\
    accept-charset\n\
    accept-encoding gzip, deflate\n\
    accept-language\n\
    accept-ranges\n\
    accept\n\
    access-control-allow-origin\n\
    age\n\
    allow\n\
    authorization\n\
    cache-control\n\
    content-disposition\n\
    content-encoding\n\
    content-language\n\
    content-length\n\
    content-location\n\
    content-range\n\
    content-type\n\
    cookie\n\
    date\n\
    etag\n\
    expect\n\
    expires\n\
    from\n\
    host\n\
    if-match\n\
    if-modified-since\n\
    if-none-match\n\
    if-range\n\
    if-unmodified-since\n\
    last-modified\n\
    link\n\
    location\n\
    max-forwards\n\
    proxy-authenticate\n\
    proxy-authorization\n\
    range\n\
    referer\n\
    refresh\n\
    retry-after\n\
    server\n\
    set-cookie\n\
    strict-transport-security\n\
    transfer-encoding\n\
    user-agent\n\
    vary\n\
    via\n\
    www-authenticate";

/// The static entry at an index from 0.
pub(super) fn of_all(place: usize) -> Option<(&'static [u8], &'static [u8])> {
    let line = TEXT.split('\n').nth(place)?;
    let (name, value) = line.split_once(' ').unwrap_or((line, ""));
    Some((name.as_bytes(), value.as_bytes()))
}

/// The size of an entry beyond its text (section 4.1).
const OVERHEAD: usize = 32;

/// An entry of the dynamic table.
#[derive(Debug)]
pub(super) struct Entry {
    /// The name, followed by the value.
    text: Box<[u8]>,
    name: usize,
}

impl Entry {
    pub(super) fn new(name: &[u8], value: &[u8]) -> Self {
        Self { text: [name, value].concat().into(), name: name.len() }
    }

    fn size(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

/// The dynamic table, newest first. Never larger than allowed.
#[derive(Debug)]
pub(super) struct Dynamic {
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

impl Default for Dynamic {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, most: TABLE }
    }
}

impl Dynamic {
    /// The entry at this distance from the newest.
    pub(super) fn get(&self, place: usize) -> Option<(&[u8], &[u8])> {
        self.entries.get(place).map(|entry| entry.text.split_at(entry.name))
    }

    /// Adds an entry. One that is larger than the table empties it and is not added (section 4.4).
    pub(super) fn insert(&mut self, entry: Entry) {
        let room = self.most.checked_sub(entry.size());
        self.shrink(room.unwrap_or(0));
        if room.is_some() {
            self.size += entry.size();
            self.entries.push_front(entry);
        }
    }

    /// Changes the size limit.
    pub(super) fn resize(&mut self, most: usize) {
        self.most = most;
        self.shrink(most);
    }

    /// Removes the oldest entries.
    fn shrink(&mut self, to: usize) {
        while self.size > to
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }
}
