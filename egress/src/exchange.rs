//! One request and its response over one connection, by HTTP/1.1.

use std::pin::pin;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::{
    ContentCoding, Credential, FetchError, Request, RequestLimits, connection::Connection, decode::Decoder,
    redirect, target::Target,
};

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Empty for a redirect, whose body is not read.
    pub(crate) body: Vec<u8>,
    pub(crate) wire_bytes: usize,
    pub(crate) coding: ContentCoding,
}

/// Sends the request and reads the response, within the limits.
///
/// # Cancellation
/// Dropping the future closes the connection: the future drives the connection, and no task of its own does.
pub(crate) async fn exchange(
    connection: Connection,
    target: &Target,
    request: &Request,
    attached: &[&Credential],
    limits: &RequestLimits,
) -> Result<Answer, FetchError> {
    let header_bytes = limits.header_bytes.max(LEAST_HEADER_BYTES);
    let (sender, driver) = Builder::new()
        .max_headers(limits.header_count)
        .max_header_size(header_bytes)
        .max_buf_size(header_bytes)
        .handshake(TokioIo::new(connection.stream))
        .await
        .map_err(|source| fault(target, source))?;
    let mut driver = pin!(driver);
    let outgoing = outgoing(target, request, attached);
    let mut answer = pin!(answer(sender, target, request, outgoing, limits));
    let mut is_driven = true;
    loop {
        tokio::select! {
            answer = &mut answer => return answer,
            // The connection's end: the answer has the parts that came before it, or its own error.
            _ended = &mut driver, if is_driven => is_driven = false,
        }
    }
}

async fn answer(
    mut sender: SendRequest<Full<bytes::Bytes>>,
    target: &Target,
    request: &Request,
    outgoing: http::Request<Full<bytes::Bytes>>,
    limits: &RequestLimits,
) -> Result<Answer, FetchError> {
    let response = match timeout(limits.first_byte, sender.send_request(outgoing)).await {
        Ok(response) => response.map_err(|source| fault(target, source))?,
        Err(_elapsed) => {
            return Err(FetchError::FirstByteTimeout { host: target.host.clone(), limit: limits.first_byte });
        }
    };
    let (head, body) = response.into_parts();
    let answer = |body, wire_bytes, coding| Answer {
        status: head.status,
        headers: head.headers.clone(),
        body,
        wire_bytes,
        coding,
    };
    check_framing(target, head.status, &head.headers)?;
    if redirect::is_redirect(head.status, &head.headers) {
        return Ok(answer(Vec::new(), 0, ContentCoding::Identity));
    }
    let has_body = request.method != Method::HEAD
        && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !has_body {
        return Ok(answer(Vec::new(), 0, ContentCoding::Identity));
    }
    let coding = ContentCoding::of(&head.headers)?;
    check_length(&head.headers, limits)?;
    let (body, wire_bytes) = read(body, target, coding, limits).await?;
    Ok(answer(body, wire_bytes, coding))
}

fn outgoing(
    target: &Target,
    request: &Request,
    attached: &[&Credential],
) -> http::Request<Full<bytes::Bytes>> {
    let mut outgoing = http::Request::new(Full::new(request.body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = target.path.clone();
    let headers = outgoing.headers_mut();
    headers.insert(header::HOST, target.authority.clone());
    headers.extend(request.headers.clone());
    headers.insert(header::ACCEPT_ENCODING, ContentCoding::OFFERED);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    for credential in attached {
        headers.insert(credential.header(), credential.value().clone());
    }
    outgoing
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

async fn read(
    mut body: Incoming,
    target: &Target,
    coding: ContentCoding,
    limits: &RequestLimits,
) -> Result<(Vec<u8>, usize), FetchError> {
    let mut decoder = Decoder::new(coding, limits.response_bytes);
    let mut wire_bytes = 0_usize;
    while let Some(frame) = body.frame().await {
        // Trailers are dropped.
        let Ok(piece) = frame.map_err(|source| fault(target, source))?.into_data() else {
            continue;
        };
        wire_bytes = wire_bytes.saturating_add(piece.len());
        if wire_bytes > limits.wire_bytes {
            return Err(FetchError::ResponseTooLarge { limit: limits.wire_bytes });
        }
        decoder.write(&piece)?;
    }
    // An empty body has no coding, whatever the header says.
    let decoded = if wire_bytes == 0 { Vec::new() } else { decoder.finish()? };
    Ok((decoded, wire_bytes))
}

fn fault(target: &Target, source: hyper::Error) -> FetchError {
    let host = target.host.clone();
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

/// The HTTP library takes no smaller buffer.
const LEAST_HEADER_BYTES: usize = 8 << 10;
