//! Ending on signals.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled at the first SIGTERM or Ctrl-C. A second one ends the process at once, in case
/// something hangs.
pub fn stop_on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let signal = next(&mut terminate, &mut interrupt).await;
        tracing::info!(signal, "told to stop");
        stopping.cancel();
        let signal = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal, "told to stop again: ending at once");
        std::process::exit(1);
    });
    Ok(stop)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
