//! Sends one request over an HTTP/1.1 connection and reads its response.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::{
    ContentCoding, Credential, FetchError, Request, RequestLimits,
    connection::Connection,
    decode::BodyDecoder,
    pool::{ConnectionPool, PoolKey},
    redirect,
    target::Target,
};

/// The pool and key under which a connection is kept after its response. `None` closes the connection.
pub(crate) type ReturnToPool<'p> = Option<(&'p ConnectionPool, PoolKey)>;

/// The form of the request target: absolute form for a plain `http` request to a proxy, otherwise origin
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTargetForm {
    /// The path and query (RFC 9112, section 3.2.1).
    Origin,
    /// The whole URL without fragment (RFC 9112, section 3.2.2).
    Absolute,
}

/// The head of a response. [`BodyReader::new`] sets `coding`.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) coding: ContentCoding,
}

/// Sends the request and reads the head of the response, within the timeout `first_byte`.
///
/// # Cancellation
/// The caller must drop the connection with the future.
pub(crate) async fn send(
    connection: &mut Connection,
    target: &Target,
    outgoing: http::Request<Full<Bytes>>,
    limits: &RequestLimits,
) -> Result<(ResponseHead, Incoming), FetchError> {
    let response = match timeout(limits.first_byte_timeout, connection.send(outgoing)).await {
        Ok(response) => response.map_err(|source| classify_error(&target.host, source))?,
        Err(_elapsed) => {
            return Err(FetchError::FirstByteTimeout {
                host: target.host.clone(),
                limit: limits.first_byte_timeout,
            });
        }
    };
    let (parts, body) = response.into_parts();
    check_framing(target, parts.status, &parts.headers)?;
    Ok((ResponseHead { status: parts.status, headers: parts.headers, coding: ContentCoding::Identity }, body))
}

/// Builds the HTTP request with the attached credentials. Without `keep_alive`, it carries `Connection: close`.
pub(crate) fn build_request(
    target: &Target,
    request: &Request,
    attached: &[&Credential],
    form: RequestTargetForm,
    keep_alive: bool,
    limits: &RequestLimits,
) -> http::Request<Full<Bytes>> {
    let mut outgoing = http::Request::new(Full::new(request.body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = match form {
        RequestTargetForm::Origin => target.path.clone(),
        RequestTargetForm::Absolute => target.whole_url.clone(),
    };
    let headers = outgoing.headers_mut();
    headers.insert(header::HOST, target.authority.clone());
    headers.extend(request.headers.clone());
    headers.insert(header::ACCEPT_ENCODING, ContentCoding::accept_encoding(limits));
    if !keep_alive {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for credential in attached {
        headers.insert(credential.header(), credential.value().clone());
    }
    outgoing
}

/// A reader that decodes a response's body piece by piece.
pub(crate) struct BodyReader<'p> {
    host: String,
    source: Option<Source<'p>>,
    decoder: Option<BodyDecoder>,
    wire_limit: usize,
    pub(crate) wire_bytes: usize,
}

/// A connection with an unread body.
struct Source<'p> {
    connection: Connection,
    body: Incoming,
    return_to_pool: ReturnToPool<'p>,
}

impl Source<'_> {
    /// Returns the connection to the pool, once the body was read to its end.
    fn finish(self) {
        if let Some((pool, key)) = self.return_to_pool {
            pool.add(key, self.connection);
        }
    }
}

impl<'p> BodyReader<'p> {
    /// Creates the reader of a response's body. The body of a redirect is not read: the connection is closed
    /// unless the body is empty.
    pub(crate) fn new(
        connection: Connection,
        head: &mut ResponseHead,
        body: Incoming,
        target: &Target,
        request: &Request,
        return_to_pool: ReturnToPool<'p>,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let host = target.host.clone();
        let source = Source { connection, body, return_to_pool };
        let has_body = request.method != Method::HEAD
            && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_over = source.body.is_end_stream();
        if !has_body || is_over || redirect::is_redirect(head.status, &head.headers) {
            if is_over {
                source.finish();
            }
            return Ok(Self { host, source: None, decoder: None, wire_limit: 0, wire_bytes: 0 });
        }
        head.coding = ContentCoding::from_headers(&head.headers, limits)?;
        check_length(&head.headers, limits)?;
        let decoder = Some(BodyDecoder::new(head.coding, limits.response_bytes));
        Ok(Self { host, source: Some(source), decoder, wire_limit: limits.wire_bytes, wire_bytes: 0 })
    }

    /// Returns whether the body has no further piece.
    pub(crate) fn has_ended(&self) -> bool {
        self.source.is_none()
    }

    /// Returns the next piece after decompression, of 1 to [`MAX_PIECE_BYTES`](crate::decode::MAX_PIECE_BYTES) bytes,
    /// or `None` at the end.
    ///
    /// # Cancellation
    /// A piece may be lost, so the reader must be dropped with the future.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let (Some(source), Some(decoder)) = (&mut self.source, &mut self.decoder) else {
                return Ok(None);
            };
            if let Some(piece) = decoder.next_piece()? {
                return Ok(Some(piece));
            }
            let Source { connection, body, .. } = source;
            let Some(frame) = connection.drive(body.frame()).await else { return self.finish() };
            // Drop trailers, which have no data.
            let Ok(piece) = frame.map_err(|source| classify_error(&self.host, source))?.into_data() else {
                continue;
            };
            self.wire_bytes = self.wire_bytes.saturating_add(piece.len());
            if self.wire_bytes > self.wire_limit {
                return Err(FetchError::ResponseTooLarge { limit: self.wire_limit });
            }
            decoder.push(piece);
        }
    }

    /// Returns the rest of the decoder's output. An empty body has no coding, even if a header names one.
    fn finish(&mut self) -> Result<Option<Bytes>, FetchError> {
        let (source, decoder) = (self.source.take(), self.decoder.take());
        let last_piece = match decoder.filter(|_| self.wire_bytes > 0) {
            Some(decoder) => decoder.finish()?,
            None => None,
        };
        // Keep the connection only at this point: a connection that has sent a damaged body must not serve
        // another request.
        source.into_iter().for_each(Source::finish);
        Ok(last_piece)
    }
}

/// Refuses a response whose length a proxy in front of this client could read differently (RFC 9112, sections
/// 6.3 and 11.2), and a 1xx status. The HTTP library refuses conflicting lengths, but accepts repeated equal
/// ones, even as a list in one header, and a length beside `chunked`.
fn check_framing(target: &Target, status: StatusCode, headers: &HeaderMap) -> Result<(), FetchError> {
    let fault = |fault| Err(FetchError::Framing { host: target.host.clone(), fault });
    if status.is_informational() {
        return fault("a status that ends no request");
    }
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let lengths = lengths.map(|value| value.as_bytes().split(|byte| *byte == b',').count()).sum::<usize>();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let (coding, another) = (codings.next(), codings.next());
    if lengths > 1 {
        return fault("two lengths");
    }
    if lengths == 1 && coding.is_some() {
        return fault("a length and a transfer coding");
    }
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if another.is_some() || coding.is_some_and(|value| !is_chunked(value)) {
        return fault("a transfer coding other than chunked");
    }
    Ok(())
}

/// Refuses a body whose announced length is above the limit, before any of it is read.
fn check_length(headers: &HeaderMap, limits: &RequestLimits) -> Result<(), FetchError> {
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if usize::try_from(length).is_ok_and(|length| length <= limits.wire_bytes) => Ok(()),
        Some(_) => Err(FetchError::ResponseTooLarge { limit: limits.wire_bytes }),
        None => Ok(()),
    }
}

/// Maps an error of the HTTP library to the error that tells the caller what is wrong with a response.
pub(crate) fn classify_error(host: &str, source: hyper::Error) -> FetchError {
    let host = host.to_owned();
    if source.is_parse_too_large() {
        FetchError::HeadersTooLarge { host, source }
    } else if source.is_parse() || source.is_user() {
        FetchError::ResponseInvalid { host, source }
    } else if source.is_incomplete_message()
        || source.is_closed()
        || source.is_canceled()
        || is_cut_off(&source)
    {
        FetchError::ResponseTruncated { host, source }
    } else {
        FetchError::ResponseInvalid { host, source }
    }
}

/// Returns whether the connection was cut off below HTTP: reset, or TLS without `close_notify`.
fn is_cut_off(error: &hyper::Error) -> bool {
    use std::{error::Error, io::ErrorKind};
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| {
        matches!(
            io.kind(),
            ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::ConnectionAborted
        )
    })
}
