//! An open watch: splits the response body into events as they arrive.

use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::SuiteError;
use super::document::parse;
use super::recorder::PATIENCE;

/// An open watch. Dropping it ends it.
pub struct Watch {
    title: String,
    body: Body,
    buffer: Vec<u8>,
    refused: Option<u16>,
    over: bool,
}

impl Watch {
    pub(super) fn new(title: String, response: http::Response<Body>) -> Self {
        let status = response.status().as_u16();
        let refused = (status != 200).then_some(status);
        Self { title, body: response.into_body(), buffer: Vec::new(), refused, over: false }
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// The next event; `None` when the server ended the watch. A refused watch has one event, of type `REFUSED`, with the HTTP
    /// status and the answer.
    pub async fn next(&mut self) -> Result<Option<Value>, SuiteError> {
        if let Some(status) = self.refused.take() {
            while self.fill().await? {}
            let answer = parse(&std::mem::take(&mut self.buffer));
            return Ok(Some(json!({"type": "REFUSED", "status": status, "object": answer})));
        }
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event = parse(line.trim_ascii());
                if !event.is_null() {
                    return Ok(Some(event));
                }
            } else if !self.fill().await? {
                let rest = parse(std::mem::take(&mut self.buffer).trim_ascii());
                return Ok((!rest.is_null()).then_some(rest));
            }
        }
    }

    async fn fill(&mut self) -> Result<bool, SuiteError> {
        if self.over {
            return Ok(false);
        }
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.map_err(|_| {
            let what = format!("the next event of {}", self.title);
            SuiteError::Patience { what, waited: PATIENCE, last: "nothing".to_owned() }
        })?;
        match frame {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.buffer.extend_from_slice(&data);
                }
                Ok(true)
            }
            Some(Err(source)) => {
                self.over = true;
                Err(SuiteError::Send { request: self.title.clone(), source: source.into() })
            }
            None => {
                self.over = true;
                Ok(false)
            }
        }
    }
}
