//! Converts a result of the pipeline into a result of the protocol. `details` are for people and are not
//! sent, except for the id that reads the rest of a truncated output.

use portcullis_tools::{RegisteredTool, ToolResult};
use portcullis_types::{Content, ToolOutcome, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, EmbeddedResource, Resource, ResourceContents};

/// Returns the result as the client gets it.
pub(super) fn call_result(result: &ToolResult, tool: Option<&RegisteredTool>) -> CallToolResult {
    match &result.outcome {
        ToolOutcome::Output(output) => {
            let promises_data = tool.is_some_and(|tool| tool.output_schema().is_some());
            let mut answer = success_result(output, result.truncated, promises_data);
            answer.content.extend(result.rest_hint().map(ContentBlock::text));
            answer
        }
        ToolOutcome::Error(error) => CallToolResult::error(vec![ContentBlock::text(error.for_model())]),
        // The promised data follow later, so the call is not an error.
        ToolOutcome::Pending { .. } => {
            let pending = result.outcome.clone().into_result();
            pending.map_or_else(
                |error| CallToolResult::error(vec![ContentBlock::text(error.for_model())]),
                |output| success_result(&output, false, false),
            )
        }
    }
}

/// Builds the answer of a successful call. The output limit also covers structured data, so they are omitted
/// if the text was truncated. The answer of a tool with an output schema then becomes an error, because a
/// client would refuse it without data.
fn success_result(output: &ToolOutput, truncated: bool, promises_data: bool) -> CallToolResult {
    let mut answer = CallToolResult::success(output.content.iter().map(content_block).collect());
    // In the supported revisions, structured data must be an object.
    answer.structured_content = output.structured.clone().filter(|data| data.is_object() && !truncated);
    if promises_data && answer.structured_content.is_none() {
        answer.is_error = Some(true);
    }
    answer
}

fn content_block(content: &Content) -> ContentBlock {
    match content {
        Content::Text { text } => ContentBlock::text(text.clone()),
        Content::Image { data, mime_type } => ContentBlock::image(data.clone(), mime_type.clone()),
        Content::Audio { data, mime_type } => ContentBlock::audio(data.clone(), mime_type.clone()),
        Content::Resource { uri, mime_type, text, blob } => {
            let (uri, mime_type) = (uri.clone(), mime_type.clone());
            let contents = match blob {
                Some(blob) if text.is_none() => {
                    ResourceContents::BlobResourceContents { uri, mime_type, blob: blob.clone(), meta: None }
                }
                _ => {
                    let text = text.clone().unwrap_or_default();
                    ResourceContents::TextResourceContents { uri, mime_type, text, meta: None }
                }
            };
            ContentBlock::Resource(EmbeddedResource::new(contents))
        }
        Content::ResourceLink { uri, name, description, mime_type } => {
            let mut link = Resource::new(uri.clone(), name.clone());
            link.description.clone_from(description);
            link.mime_type.clone_from(mime_type);
            ContentBlock::ResourceLink(link)
        }
        _ => ContentBlock::text("[content of a kind that the protocol does not have]"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portcullis_types::ToolError;
    use serde_json::json;

    use super::*;

    fn result(outcome: Result<ToolOutput, ToolError>) -> ToolResult {
        ToolResult {
            call_id: "call_1".into(),
            tool: "t".into(),
            outcome: outcome.into(),
            details: json!({"secret": "for people"}),
            truncated: false,
            original_bytes: 0,
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn every_content_kind_is_converted_and_details_are_dropped() {
        let content = vec![
            Content::text("t"),
            Content::Image { data: "AA==".into(), mime_type: "image/png".into() },
            Content::Audio { data: "AA==".into(), mime_type: "audio/wav".into() },
            Content::Resource {
                uri: "x:1".into(),
                mime_type: Some("text/plain".into()),
                text: Some("r".into()),
                blob: None,
            },
            Content::Resource { uri: "x:2".into(), mime_type: None, text: None, blob: Some("AA==".into()) },
            Content::ResourceLink { uri: "x:3".into(), name: "n".into(), description: None, mime_type: None },
        ];
        let output = ToolOutput { content, ..ToolOutput::default() };
        let mut answer = call_result(&result(Ok(output)), None);
        answer.result_type = None;
        assert_eq!(
            serde_json::to_value(answer).expect("encodes"),
            json!({"isError": false, "content": [
                {"type": "text", "text": "t"},
                {"type": "image", "data": "AA==", "mimeType": "image/png"},
                {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "x:1", "mimeType": "text/plain", "text": "r"}},
                {"type": "resource", "resource": {"uri": "x:2", "blob": "AA=="}},
                {"type": "resource_link", "uri": "x:3", "name": "n"},
            ]})
        );
    }

    #[test]
    fn a_failed_call_is_a_result_that_says_so() {
        let answer = call_result(&result(Err(ToolError::failed("broken"))), None);
        assert_eq!(answer.is_error, Some(true));
        assert_eq!(answer.content, [ContentBlock::text("Tool execution failed: broken")]);
        assert_eq!(answer.structured_content, None);
    }

    #[test]
    fn a_pending_call_is_a_result_with_the_id_of_its_later_result() {
        let mut pending = result(Ok(ToolOutput::default()));
        pending.outcome = ToolOutcome::Pending { id: "call_1".into(), expires: 7 };
        let answer = call_result(&pending, None);
        assert_eq!(answer.is_error, Some(false));
        let data = json!({"status": "pending", "pendingToolCallId": "call_1"});
        assert_eq!(answer.structured_content, Some(data));
    }

    #[test]
    fn a_cut_output_names_the_id_by_which_the_rest_can_be_read() {
        let mut cut = result(Ok(ToolOutput::text("beginning")));
        cut.details = json!({"output_id": "out_1", "repaired": ["x"]});
        assert_eq!(call_result(&cut, None).content, [ContentBlock::text("beginning")]);
        cut.truncated = true;
        let hint = "[the whole output: `output_read` with `call_id` \"out_1\"]";
        assert_eq!(
            call_result(&cut, None).content,
            [ContentBlock::text("beginning"), ContentBlock::text(hint)]
        );
    }

    #[test]
    fn data_is_handed_on_only_whole_and_only_as_an_object() {
        let output = ToolOutput::structured(json!({"n": 1}));
        assert_eq!(success_result(&output, false, true).structured_content, Some(json!({"n": 1})));
        let cut = success_result(&output, true, true);
        assert_eq!((cut.structured_content, cut.is_error), (None, Some(true)));
        let cut = success_result(&output, true, false);
        assert_eq!((cut.structured_content, cut.is_error), (None, Some(false)));
        let list = ToolOutput::structured(json!([1]));
        assert_eq!(success_result(&list, false, false).structured_content, None);
    }
}
