//! Forwards the output of a command as updates while the command runs.

use portcullis_types::{ToolOutput, ToolUpdateFn};
use serde_json::json;

/// Forwards output as text while it arrives. An incomplete character is held back until its
/// remaining bytes arrive.
pub(super) struct OutputForwarder {
    listener: Option<ToolUpdateFn>,
    unsent_bytes: Vec<u8>,
}

impl OutputForwarder {
    pub(super) fn new(listener: Option<ToolUpdateFn>) -> Self {
        Self { listener, unsent_bytes: Vec::new() }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.listener.is_none() {
            return;
        }
        self.unsent_bytes.extend_from_slice(bytes);
        let complete_length = match std::str::from_utf8(&self.unsent_bytes) {
            Ok(_) => self.unsent_bytes.len(),
            // The last character may be incomplete, so hold it back.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Invalid bytes. Hold back the last three, because they may start a character; four bytes
            // are never incomplete.
            Err(_) => self.unsent_bytes.len().saturating_sub(3),
        };
        let rest = self.unsent_bytes.split_off(complete_length);
        self.flush();
        self.unsent_bytes = rest;
    }

    pub(super) fn end(&mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        if let Some(listener) = &self.listener
            && !self.unsent_bytes.is_empty()
        {
            listener(
                ToolOutput::text(String::from_utf8_lossy(&self.unsent_bytes))
                    .with_details(json!({ "stream": "output" })),
            );
            self.unsent_bytes.clear();
        }
    }
}
