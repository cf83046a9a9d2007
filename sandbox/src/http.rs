//! HTTP requests of guests: the functions that a guest imports, and the channel to the host that serves them.
//!
//! A guest's thread has no socket. It passes each request on, and blocks until it is answered, its deadline
//! expires, or the call is cancelled. The host's end of the channel judges the request and makes it. A
//! guest has one request in flight at a time, and can have several responses open.
//!
//! | function | does |
//! |---|---|
//! | `send(head, head_len, body, body_len)` | passes a request on (JSON, and bytes); returns the length of the answer |
//! | `answer(out, len)` | copies the last answer (JSON) |
//! | `read(body, out, len)` | waits for the next bytes of a response; returns their number, 0 at the end, or minus the length of a fault, which is then the last answer and closes the response |
//! | `close(body)` | drops a response |

use std::{
    fmt,
    sync::{Arc, mpsc as blocking},
};

use portcullis_policy::DenialCode;
use portcullis_types::{
    GuestErrorKind, HTTP_IMPORT, HttpFailure, HttpRequestHead, HttpResponseHead, HttpResult,
    MAX_HTTP_BODY_BYTES, MAX_HTTP_HEAD_BYTES, MAX_HTTP_READ_BYTES, ToolErrorCode,
};
use tokio::sync::mpsc;
use wasmtime::{Caller, Error, Linker, Result};

use super::{
    control::CallControl,
    fs_result::Errno,
    guest::GuestState,
    host_answer::await_answer,
    memory::{as_unsigned, slice, write_bytes},
    preview1::parts,
};

/// A request of a guest to the host's end of the channel.
#[derive(Debug)]
pub enum HttpOperation {
    /// Make a request.
    Send {
        /// The method, the URL and the headers.
        head: HttpRequestHead,
        /// The body. Empty means none.
        body: Vec<u8>,
        /// Receives the answer.
        reply: HttpReply<Result<HttpResponseHead, HttpFailure>>,
    },
    /// Return the next bytes of a response as soon as any arrive.
    Read {
        /// The response's number, as the guest gives it.
        body: u32,
        /// The maximum number of bytes to return, at least 1.
        max: usize,
        /// Receives the bytes. An empty answer means the end.
        reply: HttpReply<Result<Vec<u8>, HttpFailure>>,
    },
    /// Drop a response.
    Close {
        /// The response's number, as the guest gives it.
        body: u32,
        /// Receives the confirmation.
        reply: HttpReply<()>,
    },
}

/// Answers one request. Dropping it tells the guest that its requests are no longer served.
pub struct HttpReply<T>(blocking::SyncSender<T>);

impl<T> HttpReply<T> {
    /// Sends the answer. A guest that has ended in the meantime does not receive it.
    pub fn send(self, answer: T) {
        let _ignored = self.0.try_send(answer);
    }
}

impl<T> fmt::Debug for HttpReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpReply")
    }
}

/// The guest's end of the channel for requests.
#[derive(Debug, Clone)]
pub struct HttpOperationSender(mpsc::Sender<HttpOperation>);

impl HttpOperationSender {
    /// Creates a channel and returns both ends.
    #[must_use]
    pub fn open() -> (Self, mpsc::Receiver<HttpOperation>) {
        // A capacity of 1 is enough, because a guest makes one request at a time.
        let (sender, receiver) = mpsc::channel(1);
        (Self(sender), receiver)
    }
}

/// The state of a call's requests.
#[derive(Debug, Default)]
pub(super) struct GuestHttp {
    /// `None` if the tool may not make requests.
    operations: Option<HttpOperationSender>,
    /// The last answer, as JSON.
    last_answer: Vec<u8>,
}

impl GuestHttp {
    pub(super) fn new(operations: Option<HttpOperationSender>) -> Self {
        Self { operations, last_answer: Vec::new() }
    }

    /// Sends a request to the host's end, and waits for the answer.
    fn ask<T>(
        &self,
        control: &CallControl,
        ask: impl FnOnce(HttpReply<T>) -> HttpOperation,
    ) -> Result<Result<T, HttpFailure>> {
        let Some(HttpOperationSender(operations)) = &self.operations else {
            return Ok(Err(no_network_failure()));
        };
        let (sender, receiver) = blocking::sync_channel(1);
        if operations.try_send(ask(HttpReply(sender))).is_err() {
            return Ok(Err(stopped_failure()));
        }
        Ok(await_answer(&receiver, control)?.ok_or_else(stopped_failure))
    }

    fn send(&mut self, control: &CallControl, head: &[u8], body: &[u8]) -> Result<()> {
        let answer = match checked_head(head, body.len()) {
            Err(fault) => HttpResult::Error(fault),
            Ok(head) => {
                let body = body.to_vec();
                match self.ask(control, |reply| HttpOperation::Send { head, body, reply })?.flatten() {
                    Ok(head) => HttpResult::Ok(head),
                    Err(fault) => HttpResult::Error(fault),
                }
            }
        };
        self.remember(&answer)
    }

    fn remember(&mut self, answer: &HttpResult) -> Result<()> {
        self.last_answer = serde_json::to_vec(answer).map_err(Error::new)?;
        Ok(())
    }
}

fn checked_head(head: &[u8], body_bytes: usize) -> Result<HttpRequestHead, HttpFailure> {
    let too_large = |part: &str, limit: usize| HttpFailure {
        kind: GuestErrorKind::Failed,
        code: ToolErrorCode::RequestTooLarge.to_string(),
        message: format!("{part} of the request has more than {limit} bytes"),
    };
    if head.len() > MAX_HTTP_HEAD_BYTES {
        return Err(too_large("the head", MAX_HTTP_HEAD_BYTES));
    }
    if body_bytes > MAX_HTTP_BODY_BYTES {
        return Err(too_large("the body", MAX_HTTP_BODY_BYTES));
    }
    serde_json::from_slice(head).map_err(|error| HttpFailure {
        kind: GuestErrorKind::InvalidArguments,
        code: ToolErrorCode::RequestInvalid.to_string(),
        message: format!("the request cannot be read: {error}"),
    })
}

/// Returns the failure reported after the host's end was dropped.
fn stopped_failure() -> HttpFailure {
    HttpFailure {
        kind: GuestErrorKind::Unavailable,
        code: ToolErrorCode::Stopped.to_string(),
        message: "the host serves no more requests of this call".to_owned(),
    }
}

/// Returns the failure reported to a tool that may not make requests.
fn no_network_failure() -> HttpFailure {
    HttpFailure {
        kind: GuestErrorKind::Denied,
        code: DenialCode::EgressNotGranted.to_string(),
        message: "this tool has no network".to_owned(),
    }
}

/// Defines the HTTP functions. A guest that calls them without a grant gets a failure. A module that
/// imports them but declares no hosts is refused when it is loaded.
pub(super) fn add_to_linker(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        HTTP_IMPORT,
        "send",
        |mut caller: Caller<'_, GuestState>,
         head: i32,
         head_len: i32,
         body: i32,
         body_len: i32|
         -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            let control = Arc::clone(&state.control);
            let (head, body) = (bytes(memory, head, head_len)?, bytes(memory, body, body_len)?);
            state.http.send(&control, head, body)?;
            as_i32(state.http.last_answer.len())
        },
    )?;
    linker.func_wrap(
        HTTP_IMPORT,
        "answer",
        |mut caller: Caller<'_, GuestState>, out: i32, len: i32| -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            let last_answer = &state.http.last_answer;
            let copied_bytes = last_answer.len().min(usize::try_from(as_unsigned(len)).unwrap_or(usize::MAX));
            write_bytes(memory, as_unsigned(out), &last_answer[..copied_bytes])
                .map_err(out_of_bounds_error)?;
            as_i32(copied_bytes)
        },
    )?;
    linker.func_wrap(
        HTTP_IMPORT,
        "read",
        |mut caller: Caller<'_, GuestState>, body: i32, out: i32, len: i32| -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            let max = usize::try_from(as_unsigned(len)).unwrap_or(usize::MAX).min(MAX_HTTP_READ_BYTES);
            // Check the range before asking the host, because bytes that do not fit into the memory would
            // be lost.
            slice(memory, out, max).map_err(out_of_bounds_error)?;
            if max == 0 {
                return Ok(0);
            }
            let control = Arc::clone(&state.control);
            let body = as_unsigned(body);
            let answer = state.http.ask(&control, |reply| HttpOperation::Read { body, max, reply })?;
            match answer.flatten() {
                Ok(bytes) => {
                    // Never copy more than fits, even if the host's end returns more.
                    let read = bytes.get(..max).unwrap_or(&bytes);
                    write_bytes(memory, as_unsigned(out), read).map_err(out_of_bounds_error)?;
                    as_i32(read.len())
                }
                Err(fault) => {
                    state.http.remember(&HttpResult::Error(fault))?;
                    as_i32(state.http.last_answer.len()).map(|length| -length)
                }
            }
        },
    )?;
    linker.func_wrap(
        HTTP_IMPORT,
        "close",
        |mut caller: Caller<'_, GuestState>, body: i32| -> Result<()> {
            let (_, state, _) = parts(&mut caller)?;
            let control = Arc::clone(&state.control);
            let body = as_unsigned(body);
            state.http.ask(&control, |reply| HttpOperation::Close { body, reply }).map(drop)
        },
    )?;
    Ok(())
}

fn bytes(memory: &[u8], address: i32, len: i32) -> Result<&[u8]> {
    let len = usize::try_from(as_unsigned(len)).unwrap_or(usize::MAX);
    slice(memory, address, len).map_err(out_of_bounds_error)
}

fn out_of_bounds_error(_errno: Errno) -> Error {
    Error::msg("bytes out of the guest's memory")
}

fn as_i32(bytes: usize) -> Result<i32> {
    i32::try_from(bytes).map_err(Error::new)
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::control::CallStop;

    fn control(limit: Duration) -> CallControl {
        CallControl::new(Instant::now() + limit, None)
    }

    fn fault_of(http: &GuestHttp) -> String {
        match serde_json::from_slice(&http.last_answer).expect("an answer") {
            HttpResult::Error(fault) => fault.code,
            HttpResult::Ok(head) => panic!("{head:?}"),
        }
    }

    const HEAD: &[u8] = br#"{"method":"GET","url":"https://a.example/","headers":[]}"#;

    #[test]
    fn a_guest_without_a_host_gets_a_fault() {
        let control = control(Duration::from_secs(60));
        let mut http = GuestHttp::new(None);
        http.send(&control, HEAD, b"").expect("answered");
        assert_eq!(fault_of(&http), "egress_not_granted");
        let (operations, asks) = HttpOperationSender::open();
        drop(asks);
        let mut http = GuestHttp::new(Some(operations));
        http.send(&control, HEAD, b"").expect("answered");
        assert_eq!(fault_of(&http), "stopped");
    }

    #[test]
    fn a_request_beyond_the_limits_is_not_passed_on() {
        let control = control(Duration::from_secs(60));
        let (operations, mut asks) = HttpOperationSender::open();
        let mut http = GuestHttp::new(Some(operations));
        for (head, body, code) in [
            (vec![b' '; MAX_HTTP_HEAD_BYTES + 1], vec![], "request_too_large"),
            (HEAD.to_vec(), vec![0; MAX_HTTP_BODY_BYTES + 1], "request_too_large"),
            (b"GET /".to_vec(), vec![], "request_invalid"),
            (br#"{"method":"GET"}"#.to_vec(), vec![], "request_invalid"),
        ] {
            http.send(&control, &head, &body).expect("answered");
            assert_eq!(fault_of(&http), code);
        }
        asks.try_recv().expect_err("nothing was asked");
    }

    #[test]
    fn a_waiting_guest_ends_with_its_call() {
        let (operations, mut asks) = HttpOperationSender::open();
        let mut http = GuestHttp::new(Some(operations));
        let expired = control(Duration::ZERO);
        let error = http.send(&expired, HEAD, b"").expect_err("over");
        assert_eq!(error.downcast_ref::<CallStop>(), Some(&CallStop::Deadline));
        asks.try_recv().expect("was asked");

        let control = Arc::new(control(Duration::from_secs(600)));
        let canceller = Arc::clone(&control);
        let thread = thread::spawn(move || {
            // The thread keeps the reply and never answers, so only the cancellation ends the wait.
            let ask = asks.blocking_recv().expect("is asked");
            canceller.cancel();
            ask
        });
        let error = http.send(&control, HEAD, b"").expect_err("over");
        assert_eq!(error.downcast_ref::<CallStop>(), Some(&CallStop::Cancelled));
        thread.join().expect("ends");
    }
}
