//! Frames: the messages on a guest's standard input and standard output.
//!
//! A guest is a WASI command. When it is run with `call`, it reads one [`CallFrame`] and writes lines of JSON: any
//! number of progress and update frames, then exactly one final frame.
//!
//! Two guests that are the two ends of a transfer also pass bytes, in chunks between these lines. Only the
//! host makes calls with a transfer; no caller can request one.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, value::RawValue};

use crate::{ToolError, ToolErrorKind, ToolOutput};

/// The version of the frames: 1.
pub const FRAME_VERSION: u32 = 1;

/// The maximum length of a progress or update frame in bytes: 1 MiB. A longer frame is a fault of the guest.
pub const MAX_STREAM_FRAME_BYTES: usize = 1 << 20;

/// The maximum length of a final frame in bytes: 8 MiB. A longer frame is a fault of the guest.
pub const MAX_FINAL_FRAME_BYTES: usize = 8 << 20;

/// The maximum length of a chunk in bytes: 512 KiB. A longer chunk is a fault of the guest.
pub const MAX_CHUNK_BYTES: usize = 512 << 10;

/// The maximum size of one transfer: 256 MiB. Both guests and the host enforce this limit.
pub const MAX_TRANSFER_BYTES: u64 = 256 << 20;

/// The first frame on a guest's standard input. Only the receiving end of a transfer gets further frames.
#[derive(Debug, Serialize, Deserialize)]
pub struct CallFrame {
    /// The version of the frames: [`FRAME_VERSION`].
    pub v: u32,
    /// The name of the module's tool to call.
    pub tool: String,
    /// The call's id.
    pub call_id: String,
    /// The original text of the arguments, so that no number loses precision.
    pub arguments: Box<RawValue>,
    /// The milliseconds left until the deadline.
    pub deadline_ms: u64,
}

/// One line of a guest's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestFrame {
    /// A short text for observers.
    Progress(String),
    /// A partial result for observers.
    Update(OutputFrame),
    /// The result. No line follows.
    Ok(OutputFrame),
    /// The failure. No line follows.
    Error(GuestError),
    /// This many raw bytes follow the line, and then the next line. Only the sending end of a
    /// transfer may send it.
    Chunk(usize),
}

/// A line of a guest's standard input after the call frame, if the tool is the receiving end of a transfer.
/// If the input ends without [`InputFrame::End`], the transfer was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputFrame {
    /// This many raw bytes follow the line, and then the next line.
    Chunk(usize),
    /// The end of the transfer, with the total number of bytes.
    End(u64),
}

/// The last frame of a guest.
#[derive(Debug, Clone, PartialEq)]
pub enum FinalFrame {
    /// The call succeeded, with this result.
    Ok(ToolOutput),
    /// The call failed.
    Error(GuestError),
}

/// A result on the wire: an object with `content`, or a plain string as shorthand for one text block.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputFrame(pub ToolOutput);

impl Serialize for OutputFrame {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            // Use the shorthand only if the output has no other content.
            ToolOutput { content, details: Value::Null, structured: None }
                if let [crate::Content::Text { text }] = content.as_slice() =>
            {
                serializer.serialize_str(text)
            }
            output => output.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OutputFrame {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = OutputFrame;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string, or an object with `content`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OutputFrame, E> {
                Ok(OutputFrame(ToolOutput::text(text)))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<OutputFrame, E> {
                Ok(OutputFrame(ToolOutput::text(text)))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<OutputFrame, A::Error> {
                let wire = Wire::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(OutputFrame(ToolOutput {
                    content: wire.content,
                    details: wire.details,
                    structured: wire.structured,
                }))
            }
        }

        /// The wire form requires `content` and refuses unknown keys, unlike [`ToolOutput`] in memory.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wire {
            content: Vec<crate::Content>,
            #[serde(default)]
            details: Value,
            #[serde(default)]
            structured: Option<Value>,
        }

        // Self-describing input is required, because the value can be a string or an object.
        deserializer.deserialize_any(Visitor)
    }
}

/// A failure on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestError {
    /// The kind that the guest claims.
    pub kind: GuestErrorKind,
    /// The message, which is passed to the model unchanged.
    pub message: String,
}

/// The kinds of failure that a guest may report. Only the host reports the other kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestErrorKind {
    /// The arguments do not fit the tool.
    InvalidArguments,
    /// The subject was not found.
    NotFound,
    /// The guest was denied access to something that it needs.
    Denied,
    /// Something that the tool needs is missing.
    Unavailable,
    /// Anything else.
    Failed,
}

impl From<GuestErrorKind> for ToolErrorKind {
    fn from(kind: GuestErrorKind) -> Self {
        match kind {
            GuestErrorKind::InvalidArguments => Self::InvalidArguments,
            GuestErrorKind::NotFound => Self::NotFound,
            GuestErrorKind::Denied => Self::Denied,
            GuestErrorKind::Unavailable => Self::Unavailable,
            GuestErrorKind::Failed => Self::Failed,
        }
    }
}

impl From<ToolErrorKind> for GuestErrorKind {
    /// Converts a kind. Kinds that only the host reports become `failed`.
    fn from(kind: ToolErrorKind) -> Self {
        match kind {
            ToolErrorKind::InvalidArguments => Self::InvalidArguments,
            ToolErrorKind::NotFound => Self::NotFound,
            ToolErrorKind::Denied => Self::Denied,
            ToolErrorKind::Unavailable => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

impl From<GuestError> for ToolError {
    fn from(error: GuestError) -> Self {
        Self::new(error.kind.into(), error.message)
    }
}

/// Converts a guest's own error. Kinds that a guest may not report become `failed`. The detail of an internal
/// error stays in the guest.
impl From<&ToolError> for GuestError {
    fn from(error: &ToolError) -> Self {
        Self { kind: error.kind().into(), message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(line: &str, frame: &GuestFrame) {
        assert_eq!(&serde_json::from_str::<GuestFrame>(line).expect("decodes"), frame);
    }

    #[test]
    fn frames_decode_from_what_any_language_would_write() {
        check(r#"{"progress":"half"}"#, &GuestFrame::Progress("half".into()));
        check(r#"{"ok":"done"}"#, &GuestFrame::Ok(OutputFrame(ToolOutput::text("done"))));
        check(
            r#"{"ok":{"content":[{"type":"text","text":"done"}],"structured":{"n":1}}}"#,
            &GuestFrame::Ok(OutputFrame(ToolOutput {
                content: vec![crate::Content::text("done")],
                details: Value::Null,
                structured: Some(json!({"n": 1})),
            })),
        );
        check(r#"{"chunk":3}"#, &GuestFrame::Chunk(3));
        check(
            r#"{"error":{"kind":"not_found","message":"no such file"}}"#,
            &GuestFrame::Error(GuestError { kind: GuestErrorKind::NotFound, message: "no such file".into() }),
        );
    }

    #[test]
    fn plain_text_goes_as_a_string_and_anything_more_as_an_object() {
        let text = ToolOutput::text("done");
        for (output, line) in [
            (text.clone(), r#"{"ok":"done"}"#),
            (
                text.with_details(json!(1)),
                r#"{"ok":{"content":[{"type":"text","text":"done"}],"details":1}}"#,
            ),
            (ToolOutput::default(), r#"{"ok":{"content":[]}}"#),
        ] {
            let frame = GuestFrame::Ok(OutputFrame(output));
            assert_eq!(serde_json::to_string(&frame).expect("encodes"), line);
            check(line, &frame);
        }
    }

    #[test]
    fn frames_that_claim_too_much_or_say_too_little_do_not_decode() {
        for line in [
            r#"{"error":{"kind":"timeout","message":"m"}}"#,
            r#"{"error":{"kind":"internal","message":"m"}}"#,
            r#"{"ok":{"content":[],"truncated":true}}"#,
            r#"{"ok":{}}"#,
            r#"{"ok":1}"#,
            r#"{"ok":"a","error":{"kind":"failed","message":"m"}}"#,
            r#"{"done":"a"}"#,
            r#"{"chunk":-1}"#,
            r#"{"chunk":"AAAA"}"#,
            r"[]",
        ] {
            assert!(serde_json::from_str::<GuestFrame>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_lines_of_an_input_are_its_chunks_and_its_end() {
        for (frame, line) in [(InputFrame::Chunk(5), r#"{"chunk":5}"#), (InputFrame::End(7), r#"{"end":7}"#)]
        {
            assert_eq!(serde_json::to_string(&frame).expect("encodes"), line);
            assert_eq!(serde_json::from_str::<InputFrame>(line).expect("decodes"), frame);
        }
    }

    #[test]
    fn an_error_passes_the_wire_word_for_word() {
        let error = ToolError::not_found("no file `/shared/ä`");
        let line = serde_json::to_string(&GuestFrame::Error((&error).into())).expect("encodes");
        let GuestFrame::Error(decoded) = serde_json::from_str(&line).expect("decodes") else {
            panic!("not an error frame: {line}");
        };
        assert_eq!(ToolError::from(decoded), error);
    }
}
