//! Passes the output of a command on as updates, while it arrives.

use portcullis_types::{ToolOutput, ToolUpdateFn};
use serde_json::json;

/// Passes output on as text while it arrives. An incomplete character waits for its remaining bytes.
pub(super) struct OutputForwarder {
    to: Option<ToolUpdateFn>,
    pending: Vec<u8>,
}

impl OutputForwarder {
    pub(super) fn to(to: Option<ToolUpdateFn>) -> Self {
        Self { to, pending: Vec::new() }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.to.is_none() {
            return;
        }
        self.pending.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(_) => self.pending.len(),
            // The last character may be incomplete: keep it back.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Invalid bytes: keep the last three, which may begin a character (four bytes cannot be
            // incomplete).
            Err(_) => self.pending.len().saturating_sub(3),
        };
        let rest = self.pending.split_off(whole);
        self.flush();
        self.pending = rest;
    }

    pub(super) fn end(&mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        if let Some(to) = &self.to
            && !self.pending.is_empty()
        {
            to(ToolOutput::text(String::from_utf8_lossy(&self.pending))
                .with_details(json!({ "stream": "output" })));
            self.pending.clear();
        }
    }
}
