//! A streamed response, whose body is passed on as it arrives.
//!
//! The thread reads, decodes and redacts one piece at a time, and the caller takes them from a short queue.
//! Backpressure: while the queue is full, the thread reads nothing from this connection, so the kernel's
//! buffers fill up and the server must wait.

use std::{fmt, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use crate::{
    ContentCoding, FetchError, Judge, Request,
    decode::MAX_PIECE_BYTES,
    exchange::BodyReader,
    fetch::{FetchClient, OpenResponse},
    redact::Redactor,
};

/// The head of a response, and the pieces of its body. Dropping it before the body has ended closes the connection.
pub struct StreamedResponse {
    /// The URL that answered, after all redirects, without a fragment.
    pub url: Url,
    /// The number of redirects that were followed.
    pub redirects: u32,
    /// The address that was dialled: the host's, or the proxy's.
    pub address: SocketAddr,
    /// The HTTP status of the last response.
    pub status: StatusCode,
    /// The headers, with secrets redacted. `Content-Encoding` and `Content-Length` describe the transfer, not the
    /// decoded pieces.
    pub headers: HeaderMap,
    /// The compression that is removed.
    pub coding: ContentCoding,
    pieces: mpsc::Receiver<Bytes>,
    end: BodyEnd,
    cancel: CancellationToken,
    _cancel_on_drop: DropGuard,
}

/// The end of a body. It has a separate channel, so that a thread that stops early is not mistaken for the
/// end.
enum BodyEnd {
    Awaited(oneshot::Receiver<Result<(), FetchError>>),
    Complete,
    Failed,
}

impl StreamedResponse {
    /// Returns whether the body is known to have no further piece: it was empty from the start, or
    /// [`Self::next`] has returned `None`.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.end, BodyEnd::Complete)
    }

    /// Returns the next decompressed and redacted piece, of 1 byte to 64 KiB, or `None` at the end.
    ///
    /// A secret that becomes known in the middle of a body ([`Judge::known_secrets`]) is redacted only in
    /// later pieces.
    ///
    /// # Cancellation
    /// Cancel-safe: no piece is lost.
    ///
    /// # Errors
    /// The reason why there are no further pieces: a limit, a timeout, a fault of the server, or
    /// [`FetchError::Cancelled`]. After an error, each further call fails.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        if let Some(piece) = self.pieces.recv().await {
            return Ok(Some(piece));
        }
        let end = match &mut self.end {
            BodyEnd::Awaited(end) => end.await.unwrap_or(Err(FetchError::Stopped)),
            BodyEnd::Complete => Ok(()),
            BodyEnd::Failed => Err(FetchError::Stopped),
        };
        self.end = if end.is_ok() { BodyEnd::Complete } else { BodyEnd::Failed };
        match end {
            Ok(()) => Ok(None),
            Err(FetchError::Stopped) if self.cancel.is_cancelled() => Err(FetchError::Cancelled),
            Err(error) => Err(error),
        }
    }
}

/// Omits the path, the query, header values and the body.
impl fmt::Debug for StreamedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedResponse")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("redirects", &self.redirects)
            .field("address", &self.address)
            .field("status", &self.status)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("coding", &self.coding)
            .finish_non_exhaustive()
    }
}

/// Makes a request, sends the head of the response to the caller, and then passes on the body.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(crate) async fn serve(
    client: &FetchClient,
    judge: &dyn Judge,
    request: Request,
    cancel: CancellationToken,
    response_sender: oneshot::Sender<Result<StreamedResponse, FetchError>>,
) {
    let limits = judge.limits();
    let deadline = Instant::now() + limits.total_timeout;
    let timeout_error = || FetchError::TotalTimeout { limit: limits.total_timeout };
    let open_result = timeout_at(deadline, client.open(judge, &limits, request)).await;
    let open_response = match open_result.unwrap_or_else(|_elapsed| Err(timeout_error())) {
        Ok(open_response) => open_response,
        Err(error) => {
            // A failed send means that the caller is gone, so it is ignored.
            let _ignored = response_sender.send(Err(error));
            return;
        }
    };
    let OpenResponse { url, redirects, address, status, headers, coding, body, .. } = open_response;
    let (pieces, queue) = mpsc::channel(MAX_QUEUED_PIECES);
    let (end_sender, end_receiver) = oneshot::channel();
    let response = StreamedResponse {
        url,
        redirects,
        address,
        status,
        headers,
        coding,
        pieces: queue,
        end: if body.has_ended() { BodyEnd::Complete } else { BodyEnd::Awaited(end_receiver) },
        cancel: cancel.clone(),
        _cancel_on_drop: cancel.drop_guard(),
    };
    // If the caller is gone, the failed send drops the response, which cancels the request.
    let _ignored = response_sender.send(Ok(response));
    let pass_result = timeout_at(deadline, stream_body(body, judge, &pieces)).await;
    // The caller may have dropped the response, so a failed send is ignored.
    let _ignored = end_sender.send(pass_result.unwrap_or_else(|_elapsed| Err(timeout_error())));
}

/// Passes on a body until its end.
async fn stream_body(
    mut body: BodyReader<'_>,
    judge: &dyn Judge,
    pieces: &mpsc::Sender<Bytes>,
) -> Result<(), FetchError> {
    let mut redactor = Redactor::new();
    while let Some(piece) = body.next().await? {
        // Ask for the secrets again, because a secret may have become known since the last piece.
        send(pieces, redactor.push(&piece, &judge.known_secrets())).await;
    }
    send(pieces, redactor.finish(&judge.known_secrets())).await;
    Ok(())
}

/// Sends a text in pieces, as the caller takes them.
async fn send(pieces: &mpsc::Sender<Bytes>, text: Vec<u8>) {
    let mut text = Bytes::from(text);
    while !text.is_empty() {
        // An error means that the caller is gone, which cancels the request, so it is ignored.
        let _ignored = pieces.send(text.split_to(text.len().min(MAX_PIECE_BYTES))).await;
    }
}

/// The maximum number of pieces that are queued for the caller.
const MAX_QUEUED_PIECES: usize = 2;
