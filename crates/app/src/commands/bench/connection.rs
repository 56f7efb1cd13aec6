//! One keep-alive connection that asks one thing at a time.
//!
//! It is hyper without a pool: the request and the connection are driven by the one future that waits for the answer,
//! so a request costs no switch between tasks and the generator stays light beside what it measures.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::{failure::Failure, target::Target};

/// What any answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(15);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Arrivals of the largest run fit in.
const BODY_BYTES_MAX: usize = 32 << 20;

/// A connection that is opened when it is needed, and anew after a failure.
pub(super) struct Connection {
    target: Arc<Target>,
    open: Option<Open>,
}

struct Open {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>,
}

impl Connection {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self { target, open: None }
    }

    /// Asks, and returns the body of a 2xx answer. Everything else is a failure.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        match timeout(ANSWER_MAX, self.exchange(request)).await {
            Ok(Ok((status, body))) if status.is_success() => Ok(body),
            Ok(Ok((status, body))) => Err(Failure::status(status, &body)),
            Ok(Err(failure)) => {
                self.open = None;
                Err(failure)
            }
            Err(_) => {
                // Whatever still comes on this connection would be taken for the next answer.
                self.open = None;
                Err(Failure::TimedOut)
            }
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Failure> {
        // A connection that the server closed while it idled is no failure: nothing was sent on it yet.
        if let Some(open) = &mut self.open
            && open.ready().await.is_err()
        {
            self.open = None;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::connect(&self.target).await?),
        };
        let (answer, closed) = open.exchange(request).await;
        if closed {
            self.open = None;
        }
        answer
    }
}

impl Open {
    async fn connect(target: &Target) -> Result<Self, Failure> {
        let stream = timeout(CONNECT_MAX, TcpStream::connect(target.address)).await;
        let stream =
            stream.map_err(|_| Failure::TimedOut)?.map_err(|error| Failure::Connect(error.kind()))?;
        stream.set_nodelay(true).map_err(|error| Failure::Connect(error.kind()))?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| Failure::lost(&error))?;
        Ok(Self { sender, driver: Box::pin(driver) })
    }

    async fn ready(&mut self) -> Result<(), ()> {
        let Self { sender, driver } = self;
        tokio::select! {
            biased;
            ready = sender.ready() => ready.map_err(drop),
            _ = driver => Err(()),
        }
    }

    /// The answer, and whether the connection is over.
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> (Result<(StatusCode, Bytes), Failure>, bool) {
        let Self { sender, driver } = self;
        let answer =
            async { whole(sender.send_request(request).await.map_err(|error| Failure::lost(&error))?).await };
        tokio::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return (answer, false),
            _ = driver => {}
        }
        // A server may close right behind its answer, which is then already here.
        (answer.await, true)
    }
}

async fn whole(response: Response<hyper::body::Incoming>) -> Result<(StatusCode, Bytes), Failure> {
    let (head, body) = response.into_parts();
    let body =
        Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Failure::Lost("body".to_owned()))?;
    Ok((head.status, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A server that gives the scripted answers, one a request. `NEXT` waits for another connection and drops the
    /// first, `END` drops it and goes.
    async fn scripted(answers: &'static [&'static str]) -> Arc<Target> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in answers {
                match *answer {
                    "END" => return,
                    "NEXT" => {
                        stream = listener.accept().await.unwrap().0;
                        continue;
                    }
                    _ => {}
                }
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap() == 0 {
                        return;
                    }
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        Arc::new(Target::parse(&url, "k", false).await.unwrap())
    }

    #[tokio::test]
    async fn answers_come_in_turn_and_refusals_are_failures_with_their_reason() {
        const SCRIPT: &[&str] = &[
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none",
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 23\r\n\r\n{\"code\":\"rate_limited\"}",
            "HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n",
        ];
        let target = scripted(SCRIPT).await;
        let mut connection = Connection::new(Arc::clone(&target));
        let get = || target.get(&Uri::from_static("/"));
        assert_eq!(connection.ask(get()).await.unwrap(), "one");
        let refused = connection.ask(get()).await.unwrap_err().to_string();
        assert!(refused.contains("429") && refused.contains("rate_limited"), "{refused}");
        assert_eq!(connection.ask(get()).await.unwrap(), "two");
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_while_it_idled_is_opened_anew() {
        const SCRIPT: &[&str] = &[
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\none",
            "NEXT",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntwo",
        ];
        let target = scripted(SCRIPT).await;
        let mut connection = Connection::new(Arc::clone(&target));
        assert_eq!(connection.ask(target.get(&Uri::from_static("/"))).await.unwrap(), "one");
        assert_eq!(connection.ask(target.get(&Uri::from_static("/"))).await.unwrap(), "two");
    }

    #[tokio::test]
    async fn an_answer_cut_off_and_a_closed_port_are_failures() {
        const SCRIPT: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nhalf", "END"];
        let target = scripted(SCRIPT).await;
        let cut_off = Connection::new(Arc::clone(&target)).ask(target.get(&Uri::from_static("/"))).await;
        assert!(matches!(cut_off, Err(Failure::Lost(_))), "{cut_off:?}");

        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let target = Arc::new(Target::parse(&format!("http://{closed}"), "k", false).await.unwrap());
        let refused = Connection::new(Arc::clone(&target)).ask(target.get(&Uri::from_static("/"))).await;
        assert!(matches!(refused, Err(Failure::Connect(_))), "{refused:?}");
    }
}
