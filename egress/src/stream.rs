//! A response whose body is read while it comes.
//!
//! The thread reads, decodes and redacts; the caller pulls the pieces from a short queue. A caller that does not pull
//! stops the thread's reading, and so the server's sending.

use std::{fmt, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    ContentCoding, FetchError, Judge, Request,
    fetch::{Client, Opened},
    redact::Redactor,
};

/// The head of a response, and its body. Dropping it closes the connection of a body that was not read to its end.
pub struct StreamedResponse {
    /// The address that answered, after all redirects, without a fragment.
    pub url: Url,
    /// The number of redirects that were followed.
    pub redirects: u32,
    /// The address that was dialled: of the host, or of the proxy.
    pub address: SocketAddr,
    /// The status.
    pub status: StatusCode,
    /// The headers as they came, without secrets.
    pub headers: HeaderMap,
    /// The compression that is undone.
    pub coding: ContentCoding,
    pieces: mpsc::Receiver<Part>,
    has_ended: bool,
    /// Ends the request on its thread.
    cancel: CancellationToken,
}

impl Drop for StreamedResponse {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A part of a body on its way to the caller. The end is one of its own, so that a thread that stops is not taken for it.
enum Part {
    Piece(Bytes),
    End,
    Fault(FetchError),
}

/// Where the head goes: to the caller, with the pieces behind it.
pub(crate) type HeadSlot = Option<oneshot::Sender<Result<StreamedResponse, FetchError>>>;

impl StreamedResponse {
    /// The next piece of the body, after decompression and without secrets; none at its end. A piece is never empty and
    /// has at most 64 KiB.
    ///
    /// # Cancellation
    /// No piece is lost.
    ///
    /// # Errors
    /// The reason why the body has no further pieces: a limit, the deadline, a fault of the server, the cancellation.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        if self.has_ended {
            return Ok(None);
        }
        match self.pieces.recv().await {
            Some(Part::Piece(piece)) => Ok(Some(piece)),
            Some(Part::End) => {
                self.has_ended = true;
                Ok(None)
            }
            Some(Part::Fault(error)) => Err(error),
            None if self.cancel.is_cancelled() => Err(FetchError::Cancelled),
            None => Err(FetchError::Stopped),
        }
    }
}

/// Without the query, values of headers and the body.
impl fmt::Debug for StreamedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedResponse")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("status", &self.status)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Makes a request, gives its head to the caller, and then the pieces of its body.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(crate) async fn pipe(
    client: &Client,
    judge: &dyn Judge,
    request: Request,
    cancel: &CancellationToken,
    head: &mut HeadSlot,
) {
    let limits = judge.limits();
    let deadline = Instant::now() + limits.total;
    let too_late = || FetchError::TotalTimeout { limit: limits.total };
    let opened = timeout_at(deadline, client.open(judge, &limits, request)).await;
    let opened = match opened.unwrap_or_else(|_elapsed| Err(too_late())) {
        Ok(opened) => opened,
        Err(error) => return give(head, Err(error)),
    };
    let Opened { url, redirects, address, status, headers, coding, mut body, .. } = opened;
    let (parts, pieces) = mpsc::channel(QUEUED_PIECES);
    let response = StreamedResponse {
        url,
        redirects,
        address,
        status,
        headers,
        coding,
        pieces,
        has_ended: false,
        cancel: cancel.clone(),
    };
    give(head, Ok(response));
    let piping = async {
        let mut redactor = Redactor::new(judge.credentials());
        while let Some(piece) = body.next().await? {
            if !send(&parts, redactor.push(piece)).await {
                return Ok(());
            }
        }
        if send(&parts, redactor.finish()).await {
            let _gone = parts.send(Part::End).await;
        }
        Ok(())
    };
    let piped: Result<Result<(), FetchError>, _> = timeout_at(deadline, piping).await;
    if let Err(error) = piped.unwrap_or_else(|_elapsed| Err(too_late())) {
        // Before the caller is told, who may wait long until it reads on.
        drop(body);
        let _gone = parts.send(Part::Fault(error)).await;
    }
}

/// Gives the caller the head, or the reason why there is none. A caller that is gone closes the queue.
pub(crate) fn give(head: &mut HeadSlot, result: Result<StreamedResponse, FetchError>) {
    if let Some(head) = head.take() {
        let _gone = head.send(result);
    }
}

/// Returns whether the caller still takes pieces.
async fn send(parts: &mpsc::Sender<Part>, bytes: Vec<u8>) -> bool {
    let mut bytes = Bytes::from(bytes);
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(MAX_PIECE_BYTES));
        if parts.send(Part::Piece(piece)).await.is_err() {
            return false;
        }
    }
    !parts.is_closed()
}

/// Pieces that wait for the caller.
pub(crate) const QUEUED_PIECES: usize = 2;

/// A piece as the caller gets it.
pub(crate) const MAX_PIECE_BYTES: usize = 64 << 10;
