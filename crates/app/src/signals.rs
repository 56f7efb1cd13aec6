//! The signals that end a process in good order.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the token at the first Ctrl-C, SIGTERM or hang-up of the terminal. Listens from this call on, so that a
/// signal during the start is not lost. A second Ctrl-C changes nothing: the limits of the shutdown are short.
///
/// # Errors
/// When the kernel refuses the handlers.
pub(crate) fn cancelled_by_signals() -> std::io::Result<CancellationToken> {
    let (mut interrupt, mut terminate, mut hang_up) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            () = heard(&mut interrupt) => "SIGINT",
            () = heard(&mut terminate) => "SIGTERM",
            () = heard(&mut hang_up) => "SIGHUP",
        };
        tracing::info!(signal = name, "stopping");
        cancelled.cancel();
        // The handlers stay installed: dropping them would not bring back the default of dying at once.
    });
    Ok(token)
}

async fn heard(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}
