//! Access tokens: from the metadata server or a file, refreshed in time, never shown.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::InvalidHeaderValue;
use serde::Deserialize;
use tenure_handles::{Clock, Timestamp};
use tokio::sync::Mutex;

use super::metadata::Metadata;
use crate::error::{CloudError, ErrorKind};

/// A token is replaced so long before it ends. The metadata server gives a new one five minutes before.
const BEFORE_END: Duration = Duration::from_mins(4);
/// A token from a file is read again after this time: whoever writes the file replaces it.
const FROM_FILE: Duration = Duration::from_mins(1);

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The header that carries it, marked so that nobody logs it.
    pub(super) fn bearer(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Where tokens come from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// The account of the machine or, with Workload Identity, of the pod.
    Metadata(Metadata),
    /// A file that somebody else keeps fresh: the token alone, or the JSON of the metadata server.
    File(PathBuf),
}

/// The token in use.
pub struct Tokens {
    source: TokenSource,
    clock: Arc<dyn Clock>,
    current: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    secret: Secret,
    fresh_until: Timestamp,
}

/// A token as the metadata server answers.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) access_token: Secret,
    #[serde(default)]
    pub(super) expires_in: u64,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Tokens of this source. Makes no call.
    pub fn new(source: TokenSource, clock: Arc<dyn Clock>) -> Self {
        Self { source, clock, current: Mutex::new(None) }
    }

    /// A token that is valid for some minutes. Those who ask at the same time share one request.
    pub(super) async fn get(&self) -> Result<Secret, CloudError> {
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|token| self.clock.now() < token.fresh_until) {
            return Ok(token.secret.clone());
        }
        let (granted, fresh_for) = match &self.source {
            TokenSource::Metadata(metadata) => {
                let granted = metadata.token().await?;
                // A short one is used for half of its time.
                let life = Duration::from_secs(granted.expires_in);
                (granted, life.saturating_sub(BEFORE_END).max(life / 2))
            }
            TokenSource::File(path) => (read_file(path).await?, FROM_FILE),
        };
        let token = Token { secret: granted.access_token, fresh_until: self.clock.now().plus(fresh_for) };
        *current = Some(token.clone());
        Ok(token.secret)
    }

    /// The token was refused.
    pub(super) async fn forget(&self) {
        *self.current.lock().await = None;
    }
}

async fn read_file(path: &PathBuf) -> Result<Granted, CloudError> {
    let fails = |problem: &dyn fmt::Display| {
        CloudError::new(ErrorKind::Denied, format!("reading a token from {}: {problem}", path.display()))
    };
    let text = tokio::fs::read_to_string(path).await.map_err(|error| fails(&error))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(fails(&"the file is empty"));
    }
    if text.starts_with('{') {
        // The parser's error would quote the file.
        return serde_json::from_str(text).map_err(|_| fails(&"the JSON has no access_token"));
    }
    Ok(Granted { access_token: Secret::new(text), expires_in: 0 })
}

#[cfg(test)]
mod tests {
    use tenure_handles::ManualClock;

    use super::*;

    #[tokio::test]
    async fn a_token_from_a_file_is_read_again_after_a_while_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "ya29.first\n").unwrap();
        let clock = Arc::new(ManualClock::default());
        let tokens = Tokens::new(TokenSource::File(path.clone()), clock.clone());
        assert_eq!(tokens.get().await.unwrap(), Secret::new("ya29.first"));
        std::fs::write(&path, "{\"access_token\": \"ya29.second\", \"expires_in\": 3599}").unwrap();
        assert_eq!(tokens.get().await.unwrap(), Secret::new("ya29.first"));
        clock.advance(FROM_FILE);
        let second = tokens.get().await.unwrap();
        assert_eq!(second, Secret::new("ya29.second"));
        let shown = format!("{second:?} {tokens:?} {:?}", second.bearer().unwrap());
        assert!(!shown.contains("ya29"), "{shown}");
    }

    #[tokio::test]
    async fn a_file_without_a_token_is_refused_by_its_path_and_not_quoted() {
        let directory = tempfile::tempdir().unwrap();
        for (content, said) in
            [("", "the file is empty"), ("{\"secret\": \"s3cr3t\"}", "the JSON has no access_token")]
        {
            let path = directory.path().join("token");
            std::fs::write(&path, content).unwrap();
            let tokens = Tokens::new(TokenSource::File(path.clone()), Arc::new(ManualClock::default()));
            let error = tokens.get().await.unwrap_err();
            assert_eq!(error.to_string(), format!("reading a token from {}: {said}", path.display()));
        }
    }
}
