//! Turns an HTTP response into the pieces of the model's response, as they arrive.

use std::{collections::VecDeque, time::Duration};

use futures_util::stream;
use portcullis_types::CancellationToken;

use super::{
    connection::{self, Response},
    decoder::ResponseDecoder,
    failure::FailureContext,
    retry::FailedRequest,
};
use crate::{Delta, DeltaStream};

/// A response that has begun.
#[derive(Debug)]
pub(super) struct ResponseStream {
    response: Response,
    decoder: ResponseDecoder,
    /// Decoded pieces that are not yet taken: at most those of one chunk of the response.
    ready_deltas: VecDeque<Delta>,
    /// The failure that ends the response. The stream returns it after all pieces that precede it.
    failure: Option<FailedRequest>,
    identity: FailureContext,
    idle: Duration,
    cancel: CancellationToken,
}

impl ResponseStream {
    pub(super) fn new(
        response: Response,
        decoder: ResponseDecoder,
        identity: FailureContext,
        idle: Duration,
        cancel: CancellationToken,
    ) -> Self {
        Self { response, decoder, ready_deltas: VecDeque::new(), failure: None, identity, idle, cancel }
    }

    /// Waits for the first piece with content, or for the end. Until then the request may be retried.
    pub(super) async fn begin(&mut self) -> Result<(), FailedRequest> {
        while self.ready_deltas.iter().all(is_count) {
            // Keep only the last token count, so that a response of only token counts does not fill the queue.
            self.ready_deltas.drain(..self.ready_deltas.len().saturating_sub(1));
            self.read().await;
            // A failure after the first content is kept, and the stream returns it after that content.
            if let Some(failed) = self.failure.take_if(|_| self.ready_deltas.iter().all(is_count)) {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Turns the response into a stream of pieces. Dropping the stream closes the connection.
    pub(super) fn into_stream(self) -> DeltaStream {
        Box::pin(stream::unfold(Some(self), |stream| async move {
            let mut stream = stream?;
            loop {
                if stream.cancel.is_cancelled() {
                    return Some((Err(stream.identity.cancelled_failure().error), None));
                }
                if let Some(delta) = stream.ready_deltas.pop_front() {
                    let is_end = matches!(delta, Delta::End(_));
                    return Some((Ok(delta), (!is_end).then_some(stream)));
                }
                if let Some(failed) = stream.failure.take() {
                    return Some((Err(failed.error), None));
                }
                stream.read().await;
            }
        }))
    }

    /// Reads one chunk of the response. Then a piece is ready, or the response has failed, or the chunk
    /// completed no event.
    async fn read(&mut self) {
        let read = async {
            tokio::select! {
                // `biased`: read nothing after a cancellation.
                biased;
                () = self.cancel.cancelled() => Err(self.identity.cancelled_failure()),
                read = tokio::time::timeout(self.idle, connection::next_chunk(&mut self.response)) => match read {
                    Ok(Ok(chunk)) => Ok(chunk),
                    Ok(Err(error)) => Err(self.identity.connection_failure("broke the connection within its response", error)),
                    Err(_) => Err(self.identity.idle_timeout_failure(self.idle)),
                },
            }
        };
        let decoded = match read.await {
            Ok(Some(chunk)) => self.decoder.push(&chunk, &mut self.ready_deltas),
            Ok(None) => match self.decoder.finish(&mut self.ready_deltas) {
                Ok(true) => Ok(()),
                Ok(false) => return self.failure = Some(self.identity.cut_off_failure()),
                Err(fault) => Err(fault),
            },
            Err(failure) if self.cancel.is_cancelled() => return self.failure = Some(failure),
            // After a stop reason the response is complete, even if the connection broke before the last bytes.
            Err(failure) => match self.decoder.end(&mut self.ready_deltas) {
                Ok(true) => Ok(()),
                Ok(false) => return self.failure = Some(failure),
                Err(fault) => Err(fault),
            },
        };
        // Ignore a fault after the end of the response: the response is complete.
        if let Err(fault) = decoded
            && !self.decoder.ended()
        {
            self.failure = Some(self.identity.decode_failure(fault));
        }
    }
}

fn is_count(delta: &Delta) -> bool {
    matches!(delta, Delta::Usage(_))
}
