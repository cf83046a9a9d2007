//! The functions that a module imports from its host. `sandbox/src/http.rs` defines them.
#![expect(unsafe_code, reason = "functions of the host are declared in an `unsafe extern` block")]

use portcullis_types::{GuestErrorKind, HttpFailure, HttpResult, ToolErrorCode};

#[link(wasm_import_module = "portcullis_http")]
unsafe extern "C" {
    /// Passes a request to the host. Returns the length of the answer.
    #[link_name = "send"]
    safe fn host_send(head: *const u8, head_len: usize, body: *const u8, body_len: usize) -> i32;
    /// Copies the last answer to `out`. Returns the number of bytes.
    #[link_name = "answer"]
    safe fn host_answer(out: *mut u8, len: usize) -> i32;
    /// Reads a part of a body. Returns the number of bytes, or minus the length of a fault.
    #[link_name = "read"]
    safe fn host_read(body: u32, out: *mut u8, len: usize) -> i32;
    /// Drops a body with its unread rest.
    #[link_name = "close"]
    safe fn host_close(body: u32);
}

pub(super) fn send(head: &[u8], body: &[u8]) -> HttpResult {
    last_answer(host_send(head.as_ptr(), head.len(), body.as_ptr(), body.len()))
}

pub(super) fn read(body: u32, out: &mut [u8]) -> Result<usize, HttpResult> {
    let read = host_read(body, out.as_mut_ptr(), out.len());
    // A negative number is minus the length of a fault; `saturating_neg` avoids an overflow for `i32::MIN`.
    usize::try_from(read).map_err(|_negative| last_answer(read.saturating_neg()))
}

pub(super) fn close(body: u32) {
    host_close(body);
}

/// Returns the last answer, which has this length.
fn last_answer(length: i32) -> HttpResult {
    let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
    let copied = usize::try_from(host_answer(text.as_mut_ptr(), text.len())).unwrap_or_default();
    text.truncate(copied);
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        HttpResult::Error(HttpFailure {
            kind: GuestErrorKind::Failed,
            code: ToolErrorCode::AnswerInvalid.to_string(),
            message: format!("the host's answer cannot be read: {error}"),
        })
    })
}
