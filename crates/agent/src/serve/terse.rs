//! A connection that says as much as it can at once.
//!
//! HTTP/2 greets its caller, acknowledges the caller's own greeting, begins its answer and ends it: four writes, each of
//! which wakes up a program that waits for the last of them. Here the greeting waits for the answer, unless that takes its
//! time, and the beginning of an answer waits for its end, unless that takes more than a turn of those who are ready to run.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, UdsConnectInfo};

/// How long a greeting waits for an answer that it could travel with. Callers that wait for it before they ask wait as long.
const PATIENCE: Duration = Duration::from_millis(2);
/// What is longer goes out as it comes.
const MOST: usize = 16 << 10;
/// Length, kind, flags and stream of a frame.
const FRAME_HEAD: usize = 9;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

/// A connection of a caller.
#[derive(Debug)]
pub(super) struct Terse {
    stream: UnixStream,
    held: Vec<u8>,
    /// How much of it is written already.
    written: usize,
    /// Until when a greeting waits; nothing if none does.
    patience: Option<Pin<Box<Sleep>>>,
    /// Whether those who are ready to run had their turn.
    yielded: bool,
}

impl Terse {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, held: Vec::new(), written: 0, patience: None, yielded: false }
    }

    /// Whether all that is held is of the kinds that nobody waits for who has asked already.
    fn is_greeting(&self) -> bool {
        let mut rest = self.held.as_slice();
        while let [l0, l1, l2, kind, ..] = rest {
            if ![SETTINGS, WINDOW_UPDATE].contains(kind) {
                return false;
            }
            let length = u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
            let Some(next) = rest.get(FRAME_HEAD + length..) else { return false };
            rest = next;
        }
        self.written == 0 && rest.is_empty()
    }

    /// Writes all that is held.
    fn poll_say(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.held.get(self.written..).filter(|rest| !rest.is_empty()) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.held.clear();
        self.written = 0;
        self.patience = None;
        self.yielded = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Terse {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        // Only who has nothing to read waits, and may have waited long enough.
        if read.is_pending()
            && let Some(patience) = &mut self.patience
            && patience.as_mut().poll(context).is_ready()
            && let Poll::Ready(Err(error)) = self.poll_say(context)
        {
            return Poll::Ready(Err(error));
        }
        read
    }
}

impl AsyncWrite for Terse {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.held.len() + bytes.len() > MOST {
            ready!(self.poll_say(context))?;
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if self.is_greeting() {
            self.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
            return Poll::Ready(Ok(()));
        }
        if !std::mem::replace(&mut self.yielded, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_say(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_say(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Terse {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const GREETING: [u8; 9] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
    const HEAD: [u8; 10] = [0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
    const END: [u8; 10] = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];

    async fn read(stream: &mut UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let length = stream.read(&mut bytes).await.unwrap();
        bytes.truncate(length);
        bytes
    }

    #[tokio::test]
    async fn a_greeting_travels_with_the_answer_and_its_beginning_with_its_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut terse = Terse::new(ours);
        terse.write_all(&GREETING).await.unwrap();
        terse.flush().await.unwrap();
        assert_eq!(theirs.try_read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        terse.write_all(&HEAD).await.unwrap();
        let flushed =
            std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut terse).poll_flush(context).is_ready()));
        assert!(!flushed.await, "others have their turn first");
        terse.write_all(&END).await.unwrap();
        terse.flush().await.unwrap();
        assert_eq!(read(&mut theirs).await, [&GREETING[..], &HEAD, &END].concat());
    }

    #[tokio::test]
    async fn who_waits_for_the_greeting_gets_it_before_he_asks() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut terse = Terse::new(ours);
        terse.write_all(&GREETING).await.unwrap();
        terse.flush().await.unwrap();
        let listening = tokio::spawn(async move { terse.read(&mut [0; 16]).await });
        assert_eq!(read(&mut theirs).await, GREETING);
        theirs.write_all(b"ask").await.unwrap();
        assert_eq!(listening.await.unwrap().unwrap(), 3);
    }

    #[tokio::test]
    async fn nothing_is_held_back_from_who_goes_and_nothing_that_is_long() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut terse = Terse::new(ours);
        terse.write_all(&GREETING).await.unwrap();
        terse.write_all(&vec![7; MOST]).await.unwrap();
        let mut bytes = vec![0; GREETING.len() + MOST];
        theirs.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes[..GREETING.len()], GREETING);
        terse.write_all(&GREETING).await.unwrap();
        terse.shutdown().await.unwrap();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, GREETING);
    }
}
