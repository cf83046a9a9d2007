//! What a call gives back: content for the model, details for people, structure for programs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a call.
///
/// `content` is what a model reads. `details` never reaches a model: it is for logs and user
/// interfaces. `structured` is the same result as data, for callers that can use it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The blocks a model reads, in order.
    #[serde(default)]
    pub content: Vec<Content>,
    /// For people and logs alone; `null` where there is nothing to say.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// The result as data, where the tool has it as data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// One text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// Data: kept as `structured`, and as its JSON text for the model.
    #[must_use]
    pub fn structured(value: Value) -> Self {
        Self {
            content: vec![Content::text(value.to_string())],
            details: Value::Null,
            structured: Some(value),
        }
    }

    /// The same output with details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// All text blocks, joined by newlines: what a front end without other content kinds shows.
    #[must_use]
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
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
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes, base64.
        data: String,
        /// Its media type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// Its bytes, base64.
        data: String,
        /// Its media type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A resource with its contents.
    Resource {
        /// Its address.
        uri: String,
        /// Its media type, where known.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// Its contents, if text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Its contents, if binary, base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
    },
    /// A reference to a resource.
    ResourceLink {
        /// Its address.
        uri: String,
        /// Its name.
        name: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Its media type, where known.
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
    fn structured_output_carries_its_json_text_too() {
        let output = ToolOutput::structured(json!({"n": 1}));
        assert_eq!(output.joined_text(), r#"{"n":1}"#);
        assert_eq!(output.structured, Some(json!({"n": 1})));
    }
}
