//! The body of an answer: the server's, delayed or broken off for a watch, or one made here.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tower::BoxError;

use super::layer::Lost;
use super::watches::{End, Gate, OpenWatch};

/// The last event of a watch whose version the server has forgotten.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}
"#;

/// The body of an answer that came through a [`super::FaultLayer`].
#[derive(Debug)]
pub struct FaultBody<B>(Kind<B>);

#[derive(Debug)]
enum Kind<B> {
    Passed(Pin<Box<B>>),
    Watched(Pin<Box<B>>, Option<OpenWatch>),
    Made(Option<Bytes>),
}

impl<B> FaultBody<B> {
    pub(super) fn passed(body: B) -> Self {
        Self(Kind::Passed(Box::pin(body)))
    }

    pub(super) fn watched(body: B, watch: OpenWatch) -> Self {
        Self(Kind::Watched(Box::pin(body), Some(watch)))
    }

    pub(super) fn made(text: impl Into<Bytes>) -> Self {
        Self(Kind::Made(Some(text.into())))
    }
}

impl<B> Body for FaultBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Made(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Passed(body) => body.as_mut().poll_frame(context).map_err(Into::into),
            Kind::Watched(body, watch) => {
                let Some(open) = watch else { return Poll::Ready(None) };
                match open.gate(context) {
                    Gate::Open => body.as_mut().poll_frame(context).map_err(Into::into),
                    Gate::Held => Poll::Pending,
                    Gate::Ends(end) => {
                        *watch = None;
                        Poll::Ready(Some(match end {
                            End::Cut => Err(Lost::Watch.into()),
                            End::Expired => Ok(Frame::data(Bytes::from_static(EXPIRED))),
                        }))
                    }
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Made(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Passed(body) | Kind::Watched(body, _) => body.size_hint(),
        }
    }
}
