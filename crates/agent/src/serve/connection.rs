//! One caller's connection: reads requests, has them answered, writes the answers.
//!
//! Most connections come from plugins: a single call that is complete when the connection is accepted, and an
//! answer within a millisecond. Such a connection costs an accept, a read, a write and a close: it is
//! registered with the kernel's poller only when there is something to wait for, and greeting and answer are
//! written together. Buffers are reused from earlier connections.

use std::io::{self, Read as _, Write as _};
use std::mem;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt as _;
use tenure_grpc::server::{Call, Connection, Event};
use tenure_grpc::{Code, Status};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, ReusableBoxFuture};

/// How long a greeting waits for an answer to be written with, and how long the connection waits for a caller
/// that will not send more.
const PATIENCE: Duration = Duration::from_millis(2);
/// The size of a read. A usual call is a tenth of it.
const READ: usize = 8 << 10;
/// After this many rounds other tasks get their turn.
const MOST_TURNS: usize = 16;
/// How many connections' buffers are kept, and the memory of how many calls.
const MOST_KEPT: usize = 16;

/// The result of a call: the answer's message, or why there is none.
pub(super) type Outcome = Result<Vec<u8>, Status>;

/// Answers calls.
pub(super) trait Answer: Send + 'static {
    /// The paths of all methods.
    const METHODS: &'static [&'static str];

    /// Answers a call.
    fn outcome(&self, call: Call) -> impl Future<Output = Outcome> + Send + 'static;
}

/// A call in progress, in memory reused from earlier calls.
type Answering = ReusableBoxFuture<'static, Outcome>;

/// Memory of earlier connections, for reuse. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct BufferPool(Arc<Mutex<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    connections: Vec<Connection>,
    answered: Vec<Answering>,
}

impl BufferPool {
    fn connection(&self, methods: &'static [&'static str]) -> Connection {
        self.buffers().connections.pop().unwrap_or_else(|| Connection::new(methods))
    }

    fn answering(&self, outcome: impl Future<Output = Outcome> + Send + 'static) -> Answering {
        let Some(mut answering) = self.buffers().answered.pop() else { return Answering::new(outcome) };
        answering.set(outcome);
        answering
    }

    fn keep_connection(&self, connection: Connection) {
        let left = &mut self.buffers().connections;
        if left.len() < MOST_KEPT {
            left.push(connection.renewed());
        }
    }

    /// Keeps the memory of a finished call. An unfinished one would keep more than its memory.
    fn keep_answered(&self, answered: Answering) {
        let left = &mut self.buffers().answered;
        if left.len() < MOST_KEPT {
            left.push(answered);
        }
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a caller until either side closes, or until `ending` and all its calls are answered.
pub(super) async fn serve_connection<A: Answer>(
    stream: StdUnixStream,
    answer: A,
    buffers: BufferPool,
    ending: CancellationToken,
) {
    let mut session = Session {
        socket: Socket::Fresh { stream, drained: false },
        connection: buffers.connection(A::METHODS),
        buffers,
        answer,
        under_way: Vec::new(),
        patient: true,
        ending: false,
    };
    let (mut patience, mut ended) = (pin!(sleep(PATIENCE)), pin!(ending.cancelled()));
    // Nobody needs to know why a connection broke: the caller knows, or is gone.
    let _: io::Result<()> =
        std::future::poll_fn(|context| session.poll(context, patience.as_mut(), ended.as_mut())).await;
    session.buffers.keep_connection(session.connection);
}

struct Session<A> {
    socket: Socket,
    connection: Connection,
    buffers: BufferPool,
    answer: A,
    /// Calls in progress, by their streams.
    under_way: Vec<(u32, Answering)>,
    /// Whether the greeting may still wait.
    patient: bool,
    ending: bool,
}

impl<A: Answer> Session<A> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut patience: Pin<&mut impl Future<Output = ()>>,
        mut ended: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<io::Result<()>> {
        for _ in 0..MOST_TURNS {
            let mut moved = self.poll_read(context)?;
            while let Some(event) = self.connection.event() {
                self.hear(event);
            }
            moved |= self.poll_answers(context);
            moved |= self.poll_write(context)?;
            if self.connection.is_over() {
                return Poll::Ready(Ok(()));
            }
            if moved {
                continue;
            }
            if self.is_answered_soon() {
                if patience.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.patient = false;
            } else if self.ending || ended.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            } else {
                self.ending = true;
                self.connection.shut_down();
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the only thing to do is to wait a short time for answers.
    fn is_answered_soon(&self) -> bool {
        self.patient && !self.under_way.is_empty() && self.connection.may_wait()
    }

    /// Reads what is available; true if it was anything.
    fn poll_read(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let needless = self.is_answered_soon() && self.socket.is_drained() && self.connection.is_all_asked();
        if needless || !self.connection.wants_input() {
            return Ok(false);
        }
        match self.socket.poll_read(context, &mut self.connection) {
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(_)) => Ok(true),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(false),
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Call(call) => {
                let (stream, patience) = (call.stream, call.timeout);
                let outcome = self.answer.outcome(call);
                let answering = match patience {
                    None => self.buffers.answering(outcome),
                    Some(patience) => self.buffers.answering(
                        timeout(patience, outcome)
                            .map(move |outcome| outcome.unwrap_or_else(|_| Err(too_late(patience)))),
                    ),
                };
                self.under_way.push((stream, answering));
            }
            Event::Cancelled(stream) => self.under_way.retain(|(of, _)| *of != stream),
        }
    }

    /// Takes finished answers; true if there were any.
    fn poll_answers(&mut self, context: &mut Context<'_>) -> bool {
        let (before, mut index) = (self.under_way.len(), 0);
        while let Some((stream, answering)) = self.under_way.get_mut(index) {
            let Poll::Ready(outcome) = answering.poll(context) else {
                index += 1;
                continue;
            };
            self.connection.answer(*stream, outcome);
            let (_, answered) = self.under_way.swap_remove(index);
            self.buffers.keep_answered(answered);
        }
        self.under_way.len() < before
    }

    /// Writes what should not wait; true if it was anything.
    fn poll_write(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if self.connection.outgoing().is_empty() || self.is_answered_soon() {
            return Ok(false);
        }
        match self.socket.poll_write(context, self.connection.outgoing()) {
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(count)) => {
                self.connection.wrote(count);
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(false),
        }
    }
}

fn too_late(patience: Duration) -> Status {
    let message = format!("not answered within {patience:?}, which is how long the caller waits");
    Status::new(Code::DeadlineExceeded, message)
}

/// A caller's socket. It is registered with the poller only when there is something to wait for.
enum Socket {
    /// Not registered.
    Fresh {
        stream: StdUnixStream,
        /// Whether everything available was read.
        drained: bool,
    },
    /// Registered.
    Watched(UnixStream),
    /// In between, or gone after an error.
    Lost,
}

impl Socket {
    fn is_drained(&self) -> bool {
        matches!(self, Self::Fresh { drained: true, .. })
    }

    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut Connection) -> Poll<io::Result<usize>> {
        let mut buffer = [0; READ];
        if let Self::Fresh { stream, drained } = self
            && !*drained
        {
            match stream.read(&mut buffer) {
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    *drained = count < READ;
                    into.receive(&buffer[..count]);
                    return Poll::Ready(Ok(count));
                }
            }
        }
        let mut buffer = ReadBuf::new(&mut buffer);
        ready!(Pin::new(self.watched()?).poll_read(context, &mut buffer))?;
        into.receive(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Self::Fresh { stream, .. } = self {
            match stream.write(bytes) {
                Err(error) if is_for_later(&error) => {}
                written => return Poll::Ready(written),
            }
        }
        Pin::new(self.watched()?).poll_write(context, bytes)
    }

    /// The socket, registered from now on.
    fn watched(&mut self) -> io::Result<&mut UnixStream> {
        if let Self::Fresh { .. } = self
            && let Self::Fresh { stream, .. } = mem::replace(self, Self::Lost)
        {
            *self = Self::Watched(UnixStream::from_std(stream)?);
        }
        match self {
            Self::Watched(stream) => Ok(stream),
            Self::Fresh { .. } | Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
