//! One client's connection, held by hyper, which reads and writes it, and by us, who limit it.
//!
//! A client that vanishes without a word (a phone in a tunnel, a laptop that was closed) acknowledges nothing any more,
//! and a client that never reads leaves no room to send to. The kernel waits a quarter of an hour for the one and for
//! ever for the other, unless it is told for how long.

use std::{
    io,
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A connection. Cheap to clone; it closes with the last clone.
#[derive(Debug, Clone)]
pub(super) struct Client(Arc<TcpStream>);

impl Client {
    pub(super) fn new(stream: TcpStream) -> Self {
        // Small answers must not wait for the peer's acknowledgement; failing to ask does no harm.
        let _ = stream.set_nodelay(true);
        Self(Arc::new(stream))
    }

    /// Ends the connection when something sent has waited for longer than this to be acknowledged, or to find room.
    pub(super) fn end_when_stuck_for(&self, limit: Duration) {
        if let Err(error) = SockRef::from(&*self.0).set_tcp_user_timeout(Some(limit)) {
            // It may have ended in this moment.
            tracing::debug!(%error, "a connection has no limit for being stuck");
        }
    }
}

impl AsyncRead for Client {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl AsyncWrite for Client {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        write(&self.0, cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        write(&self.0, cx, |stream| stream.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(&*self.0).shutdown(Shutdown::Write) {
            // The client was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        })
    }
}

fn write(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    attempt: impl Fn(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match attempt(stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}
