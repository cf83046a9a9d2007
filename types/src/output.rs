//! The result of a call: content for the model, details for people, data for programs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a call.
///
/// `content` is for the model. `details` never reaches a model; it is for logs and user interfaces.
/// `structured` is the result as data, for callers that can use data.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The blocks for a model, in order.
    #[serde(default)]
    pub content: Vec<Content>,
    /// Details for people and logs only; `null` if there are none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// The result as data, if the tool provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// One text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// Returns data as a result: `structured` is the value, and the content for the model is its JSON text.
    #[must_use]
    pub fn structured(value: Value) -> Self {
        Self {
            content: vec![Content::text(value.to_string())],
            details: Value::Null,
            structured: Some(value),
        }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// All text blocks, joined by newlines, for a front end that shows only text.
    #[must_use]
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }

    /// The length of the content in bytes: the sum of [`Content::bytes`].
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.content.iter().map(Content::bytes).sum()
    }

    /// The length of [`ToolOutput::structured`] as JSON without spaces, in bytes; 0 if there is none.
    #[must_use]
    pub fn structured_bytes(&self) -> usize {
        self.structured.as_ref().map_or(0, json_bytes)
    }
}

/// Returns the length of a value as JSON without spaces, in bytes. Counts the text without building it.
#[must_use]
pub fn json_bytes(value: &Value) -> usize {
    let mut count = Count(0);
    // Neither writing to the counter nor serializing a `Value` can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// A writer that counts bytes.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One block of a result. The kinds and field names are those of the Model Context Protocol, revision
/// 2025-06-18, section "Tool Result"; binary data is base64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text, without further encoding.
        text: String,
    },
    /// An image, with its media type.
    Image {
        /// The image's bytes as base64.
        data: String,
        /// The image's media type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A sound, with its media type.
    Audio {
        /// The sound's bytes as base64.
        data: String,
        /// The sound's media type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A resource with its contents.
    Resource {
        /// The resource's URI.
        uri: String,
        /// The resource's media type, if known.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The resource's contents, if they are text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The resource's contents as base64, if they are binary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
    },
    /// A reference to a resource.
    ResourceLink {
        /// The resource's URI.
        uri: String,
        /// The resource's name.
        name: String,
        /// The resource's description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The resource's media type, if known.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

impl Content {
    /// A text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text of a text block.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }

    /// The length of the block in bytes: the sum of all fields, with binary data as base64.
    ///
    /// Every field counts, because a tool may put any amount of text into each of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let length_of = |field: &Option<String>| field.as_deref().map_or(0, str::len);
        match self {
            Self::Text { text } => text.len(),
            Self::Image { data, mime_type } | Self::Audio { data, mime_type } => data.len() + mime_type.len(),
            Self::Resource { uri, mime_type, text, blob } => {
                uri.len() + length_of(mime_type) + length_of(text) + length_of(blob)
            }
            Self::ResourceLink { uri, name, description, mime_type } => {
                uri.len() + name.len() + length_of(description) + length_of(mime_type)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_content_kind_has_its_wire_form() {
        let blocks = json!([
            {"type": "text", "text": "t"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
            {"type": "resource", "uri": "file:///x", "mimeType": "text/plain", "text": "t"},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
        ]);
        let decoded: Vec<Content> = serde_json::from_value(blocks.clone()).expect("decodes");
        assert_eq!(decoded.len(), 5);
        assert_eq!(serde_json::to_value(decoded).expect("encodes"), blocks);
    }

    #[test]
    fn every_field_of_every_kind_counts() {
        let blocks = json!([
            {"type": "text", "text": "1"},
            {"type": "image", "data": "22", "mimeType": "333"},
            {"type": "audio", "data": "22", "mimeType": "333"},
            {"type": "resource", "uri": "1", "mimeType": "22", "text": "333", "blob": "4444"},
            {"type": "resource_link", "uri": "1", "name": "22", "description": "333", "mimeType": "4444"},
        ]);
        let content: Vec<Content> = serde_json::from_value(blocks).expect("decodes");
        assert_eq!(content.iter().map(Content::bytes).collect::<Vec<_>>(), [1, 5, 5, 10, 10]);
        let output = ToolOutput { content, ..ToolOutput::default() };
        assert_eq!((output.content_bytes(), output.structured_bytes()), (31, 0));
        let data = json!({"a": [1, "é\n"]});
        assert_eq!(ToolOutput::structured(data.clone()).structured_bytes(), data.to_string().len());
    }

    #[test]
    fn structured_output_carries_its_json_text_too() {
        let output = ToolOutput::structured(json!({"n": 1}));
        assert_eq!(output.joined_text(), r#"{"n":1}"#);
        assert_eq!(output.structured, Some(json!({"n": 1})));
    }
}
