//! Downloads: answers too large for memory, handed on as a stream that keeps the limits.

use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http::{HeaderMap, Method, header};
use tokio::time::Instant;
use url::Url;

use crate::{
    body::SendGuard,
    client::{Fetch, Limits, Request, next_chunk},
    error::{Blocked, FetchError},
    guard::{Destination, authority},
};

/// A successful answer under way.
pub struct Download {
    /// The `Content-Type`, as it stands there.
    pub content_type: Option<String>,
    /// The announced length in bytes. A stream that ends earlier ends with an error.
    pub length: Option<u64>,
    /// The bytes. After an error nothing more comes.
    pub stream: BoxStream<'static, Result<Bytes, FetchError>>,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { content_type, length, .. } = self;
        f.debug_struct("Download")
            .field("content_type", content_type)
            .field("length", length)
            .finish_non_exhaustive()
    }
}

impl Fetch {
    /// Opens a download. Redirects are followed as far as the limits say: each hop is checked like the first, may
    /// not lead from outside to a private host nor from https to http, and the caller's headers (credentials among
    /// them) are dropped at the first hop to another origin.
    ///
    /// # Errors
    /// Also for every status but 200, so that an error page is never taken for the file.
    pub async fn get_stream(
        &self,
        url: &str,
        limits: Limits,
        headers: HeaderMap,
    ) -> Result<Download, FetchError> {
        let deadline = Instant::now() + limits.total;
        let mut url = Url::parse(url).map_err(|_| FetchError::Blocked(Blocked::Malformed))?;
        let mut headers = headers;
        for _ in 0..=limits.redirects_max {
            let request = Request {
                method: Method::GET,
                url: url.as_str(),
                headers: headers.clone(),
                body: Bytes::new(),
                guard: SendGuard::open(),
            };
            let answer = self.send(url.clone(), request, deadline, limits).await?;
            let status = answer.status();
            if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                let next = self.hop(&url, &answer)?;
                headers = carried(headers, &url, &next);
                url = next;
            } else if status == http::StatusCode::OK {
                return Ok(download(answer, deadline, limits));
            } else {
                let retry_after = text(answer.headers(), &header::RETRY_AFTER);
                return Err(FetchError::Status { status, retry_after });
            }
        }
        Err(FetchError::Redirected)
    }

    fn hop(&self, from: &Url, answer: &reqwest::Response) -> Result<Url, FetchError> {
        let location = text(answer.headers(), &header::LOCATION).ok_or(FetchError::Redirected)?;
        let next = from.join(&location).map_err(|_| FetchError::Blocked(Blocked::Malformed))?;
        let private = self.destination(&next)? == Destination::Private;
        let leaves_tls = from.scheme() == "https" && next.scheme() == "http";
        if leaves_tls || (private && authority(from) != authority(&next)) {
            return Err(FetchError::Blocked(Blocked::Redirect));
        }
        Ok(next)
    }
}

/// What of the caller's headers goes along to the next hop.
fn carried(headers: HeaderMap, from: &Url, to: &Url) -> HeaderMap {
    if from.origin() == to.origin() { headers } else { HeaderMap::new() }
}

fn text(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn download(answer: reqwest::Response, deadline: Instant, limits: Limits) -> Download {
    let content_type = text(answer.headers(), &header::CONTENT_TYPE);
    let length = answer.content_length();
    let chunks = stream::try_unfold((answer, 0_u64), move |(mut answer, read)| async move {
        let Some(chunk) = next_chunk(&mut answer, deadline, limits.idle).await? else { return Ok(None) };
        let read = read + chunk.len() as u64;
        if read > limits.bytes_max {
            return Err(FetchError::TooLarge(limits.bytes_max));
        }
        Ok(Some((chunk, (answer, read))))
    });
    Download { content_type, length, stream: chunks.boxed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_with_their_origin() {
        let url = |text: &str| Url::parse(text).expect("url");
        let from = url("https://api.example/v1");
        let left = |to: &str| {
            let credentials = [(header::AUTHORIZATION, "Bearer k".parse().expect("value"))];
            carried(credentials.into_iter().collect(), &from, &url(to)).len()
        };
        assert_eq!(left("https://api.example:443/v2"), 1);
        for other in [
            "https://example/v1",
            "https://api.example:8443/",
            "https://cdn.api.example/",
            "http://api.example/",
        ] {
            assert_eq!(left(other), 0, "{other}");
        }
    }
}
