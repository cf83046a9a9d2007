//! One request and its response over one connection, by HTTP/1.1.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::{
    ContentCoding, Credential, FetchError, Request, RequestLimits,
    connection::Connection,
    decode::Decoder,
    pool::{Pool, PoolKey},
    redirect,
    target::Target,
};

/// Where a connection goes after its answer: to its pool, or to its end.
pub(crate) type Kept<'p> = Option<(&'p Pool, PoolKey)>;

/// Whether the connection leads to the target itself, or to a proxy that is told the target with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The path alone (RFC 9112, section 3.2.1).
    Origin,
    /// The whole address (RFC 9112, section 3.2.2).
    Absolute,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) coding: ContentCoding,
}

/// Sends the request and reads the head of the response, within the limits.
///
/// # Cancellation
/// The connection must be dropped with the future.
pub(crate) async fn send(
    connection: &mut Connection,
    target: &Target,
    outgoing: http::Request<Full<Bytes>>,
    limits: &RequestLimits,
) -> Result<(Head, Incoming), FetchError> {
    let response = match timeout(limits.first_byte, connection.send(outgoing)).await {
        Ok(response) => response.map_err(|source| fault(&target.host, source))?,
        Err(_elapsed) => {
            return Err(FetchError::FirstByteTimeout { host: target.host.clone(), limit: limits.first_byte });
        }
    };
    let (parts, body) = response.into_parts();
    check_framing(target, parts.status, &parts.headers)?;
    Ok((Head { status: parts.status, headers: parts.headers, coding: ContentCoding::Identity }, body))
}

/// The request as it is sent. `keeps`: whether the server may keep the connection.
pub(crate) fn outgoing(
    target: &Target,
    request: &Request,
    attached: &[&Credential],
    form: Form,
    keeps: bool,
) -> http::Request<Full<Bytes>> {
    let mut outgoing = http::Request::new(Full::new(request.body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = match form {
        Form::Origin => target.path.clone(),
        Form::Absolute => target.whole.clone(),
    };
    let headers = outgoing.headers_mut();
    headers.insert(header::HOST, target.authority.clone());
    headers.extend(request.headers.clone());
    headers.insert(header::ACCEPT_ENCODING, ContentCoding::OFFERED);
    if !keeps {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for credential in attached {
        headers.insert(credential.header(), credential.value().clone());
    }
    outgoing
}

/// The body of a response, decoded piece by piece.
pub(crate) struct BodyReader<'p> {
    host: String,
    source: Option<Source<'p>>,
    decoder: Option<Decoder>,
    wire_limit: usize,
    pub(crate) wire_bytes: usize,
}

/// A connection with an unread body.
struct Source<'p> {
    connection: Connection,
    body: Incoming,
    kept: Kept<'p>,
}

impl Source<'_> {
    /// The body was read to its end.
    fn finish(self) {
        if let Some((pool, key)) = self.kept {
            pool.keep(key, self.connection);
        }
    }
}

impl<'p> BodyReader<'p> {
    /// The body that follows a head. The body of a redirect is not read; if there is one, its connection is closed.
    pub(crate) fn new(
        connection: Connection,
        (head, body): (&mut Head, Incoming),
        (target, request): (&Target, &Request),
        kept: Kept<'p>,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let host = target.host.clone();
        let source = Source { connection, body, kept };
        let has_body = request.method != Method::HEAD
            && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if !has_body || redirect::is_redirect(head.status, &head.headers) {
            if source.body.is_end_stream() {
                source.finish();
            }
            return Ok(Self { host, source: None, decoder: None, wire_limit: 0, wire_bytes: 0 });
        }
        head.coding = ContentCoding::of(&head.headers)?;
        check_length(&head.headers, limits)?;
        let decoder = Some(Decoder::new(head.coding, limits.response_bytes));
        Ok(Self { host, source: Some(source), decoder, wire_limit: limits.wire_bytes, wire_bytes: 0 })
    }

    /// The next piece after decompression, which may be empty; none at the end.
    ///
    /// # Cancellation
    /// A piece may be lost, so the reader must be dropped with the future.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, FetchError> {
        let (Some(source), Some(decoder)) = (&mut self.source, &mut self.decoder) else { return Ok(None) };
        let Source { connection, body, .. } = source;
        let frame = connection.drive(body.frame()).await;
        let Some(frame) = frame else { return self.finish().map(Some) };
        // Trailers are dropped.
        let Ok(piece) = frame.map_err(|source| fault(&self.host, source))?.into_data() else {
            return Ok(Some(Vec::new()));
        };
        self.wire_bytes = self.wire_bytes.saturating_add(piece.len());
        if self.wire_bytes > self.wire_limit {
            return Err(FetchError::ResponseTooLarge { limit: self.wire_limit });
        }
        decoder.write(&piece)?;
        Ok(Some(decoder.take()))
    }

    /// What the decoder still has. An empty body has no coding, whatever the header says.
    fn finish(&mut self) -> Result<Vec<u8>, FetchError> {
        let (source, decoder) = (self.source.take(), self.decoder.take());
        let last = match decoder.filter(|_| self.wire_bytes > 0) {
            Some(decoder) => decoder.finish()?,
            None => Vec::new(),
        };
        // Not before: a connection that has sent a damaged body serves no other request.
        source.into_iter().for_each(Source::finish);
        Ok(last)
    }
}

/// A length that is said twice could be read in two ways, by us and by a proxy between (RFC 9112, 6.3 and 11.2).
/// The HTTP library refuses lengths that differ; equal ones, also as a list in one header, and a length beside
/// chunks, it takes.
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

/// Refuses a body that is announced too large, before any of it is read.
fn check_length(headers: &HeaderMap, limits: &RequestLimits) -> Result<(), FetchError> {
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if usize::try_from(length).is_ok_and(|length| length <= limits.wire_bytes) => Ok(()),
        Some(_) => Err(FetchError::ResponseTooLarge { limit: limits.wire_bytes }),
        None => Ok(()),
    }
}

pub(crate) fn fault(host: &str, source: hyper::Error) -> FetchError {
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

/// Whether the connection ended below HTTP: reset, or TLS without its end mark.
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
