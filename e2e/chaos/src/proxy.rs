//! A wire that can be made longer: a TCP proxy before one server, which holds back what the server answers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep_until},
};

/// Pieces of one connection that may be held back at once; a sender of more has to wait, as on a real wire.
const HELD_MAX: usize = 1_024;
const PIECE_BYTES: usize = 16 << 10;

/// A listener that passes everything on to one server. Connections end with it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on this port; whoever connects is connected with `server`, without delay for now.
    pub(crate) async fn start(port: u16, server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let delay_ms = Arc::new(AtomicU64::new(0));
        let listening = tokio::spawn(listen(listener, server, Arc::clone(&delay_ms)));
        Ok(Self { address, delay_ms, listening })
    }

    /// From now on every answer comes so much later.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, server: SocketAddr, delay_ms: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // One that is gone already needs nobody.
                let Ok((client, _)) = accepted else { continue };
                let delay_ms = Arc::clone(&delay_ms);
                connections.spawn(async move {
                    // How a connection ends, both sides see for themselves.
                    let _ = carry(client, server, &delay_ms).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection to its end: requests at once, answers in order and late.
async fn carry(client: TcpStream, server: SocketAddr, delay_ms: &AtomicU64) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let (hold, mut held) = mpsc::channel::<(Instant, Vec<u8>)>(HELD_MAX);
    let requests = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let answers = async move {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let bytes = from_server.read(&mut piece).await?;
            piece.truncate(bytes);
            let due = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::Relaxed));
            if bytes == 0 || hold.send((due, piece)).await.is_err() {
                return Ok(());
            }
        }
    };
    let late = async {
        while let Some((due, piece)) = held.recv().await {
            sleep_until(due).await;
            to_client.write_all(&piece).await?;
        }
        to_client.shutdown().await
    };
    tokio::try_join!(requests, answers, late).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(120);

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream, text: &[u8]) -> (Vec<u8>, Duration) {
        let begun = Instant::now();
        stream.write_all(text).await.unwrap();
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await.unwrap();
        (answer, begun.elapsed())
    }

    #[tokio::test]
    async fn answers_come_late_while_it_is_told_to_hold_them_and_stay_in_order() {
        let proxy = Proxy::start(0, echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert_eq!(ask(&mut stream, b"before").await.0, b"before");
        proxy.delay(DELAY);
        let (answer, took) = ask(&mut stream, b"during").await;
        assert_eq!(answer, b"during");
        assert!(took >= DELAY, "{took:?}");

        // What is held when the delay ends is not overtaken.
        stream.write_all(b"first ").await.unwrap();
        tokio::time::sleep(DELAY / 4).await;
        proxy.delay(Duration::ZERO);
        stream.write_all(b"second").await.unwrap();
        let mut both = [0; 12];
        stream.read_exact(&mut both).await.unwrap();
        assert_eq!(&both, b"first second");
    }

    #[tokio::test]
    async fn both_sides_learn_of_an_end() {
        let proxy = Proxy::start(0, echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(b"last").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"last");

        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        ask(&mut stream, b"x").await;
        drop(proxy);
        assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    }
}
