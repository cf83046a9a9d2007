//! Google's Gemini API (ai.google.dev/api/generate-content), version `v1beta`.

use std::borrow::Cow;

use portcullis_types::{FunctionDecl, Message, MessageRole, SchemaDialect};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use url::Url;

use super::{
    ReadError, ResponseProgress, ResponseReader, WireRequest, append_segments,
    bounded_list::{BoundedList, MAX_CHOICES},
    event, has_no_path,
    history::{self, CallHistory, HistoryBlock},
    non_blank, push_text, stop_reason_with_calls, whole_call,
};
use crate::{Delta, ProviderError, ProviderErrorKind, StopReason, Usage};

/// Sent in place of a call's thought signature (ai.google.dev/gemini-api/docs/thought-signatures).
///
/// Models from the third generation on refuse a call in the history without the signature that they sent with
/// it. Conversations may come from any provider and keep no signatures; the API defines this value for them.
/// Names such as `gemini-flash-latest` do not show the generation, so only models that are known to be older
/// do without it.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn endpoint(base: &Url, model: &str) -> Url {
    let model = model.strip_prefix("models/").unwrap_or(model);
    let method = format!("{model}:streamGenerateContent");
    // Google's programs also accept an address without the version.
    let mut url = if has_no_path(base) {
        append_segments(base, &["v1beta", "models", &method])
    } else {
        append_segments(base, &["models", &method])
    };
    url.set_query(Some("alt=sse"));
    url
}

pub(super) fn body(request: WireRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    let mut config = json!({});
    if let Some(limit) = request.chat.max_tokens {
        config["maxOutputTokens"] = limit.into();
    }
    if let Some(temperature) = request.chat.temperature {
        config["temperature"] = temperature.into();
    }
    let tools: Vec<Value> = request.chat.tools.iter().map(declare_tool).collect();
    let body = GenerateContentRequest {
        system_instruction: history::instructions(&request.chat.messages)
            .map(|text| Content { role: None, parts: vec![Part::text(text.into())] }),
        contents: conversation(&request)?,
        tools: if tools.is_empty() { Vec::new() } else { vec![json!({"functionDeclarations": tools})] },
        generation_config: config,
    };
    serde_json::to_vec(&body).map_err(|error| {
        ProviderError::new(ProviderErrorKind::Rejected, "the request is not JSON").with_source(error)
    })
}

fn declare_tool(tool: &FunctionDecl) -> Value {
    let mut declared = json!({"name": tool.name, "description": tool.description.as_deref().unwrap_or("")});
    match history::schema(tool, Some(SchemaDialect::Gemini)) {
        Some(schema) => declared["parameters"] = schema.into_value(),
        None => declared["parametersJsonSchema"] = tool.parameters.as_value().clone(),
    }
    declared
}

fn conversation<'a>(request: &WireRequest<'a>) -> Result<Vec<Content<'a>>, ProviderError> {
    let signature = (!is_legacy_model(request.model)).then_some(NO_SIGNATURE);
    let mut calls = CallHistory::default();
    let mut turns: Vec<Content<'a>> = Vec::new();
    for message in &request.chat.messages {
        let (role, parts) = match message.role {
            MessageRole::System => continue,
            MessageRole::User => ("user", content_parts(message)),
            MessageRole::Assistant => {
                let mut parts = content_parts(message);
                parts.extend(message.tool_calls.iter().map(|call| Part {
                    function_call: Some(FunctionCall {
                        name: calls.assign_wire_id(call).name,
                        args: history::arguments(call),
                    }),
                    thought_signature: signature,
                    ..Part::default()
                }));
                ("model", parts)
            }
            MessageRole::Tool => ("user", result_parts(message, &mut calls)?),
        };
        match turns.last_mut() {
            Some(last) if last.role == Some(role) => last.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => turns.push(Content { role: Some(role), parts }),
        }
    }
    Ok(turns)
}

/// Returns whether the model's name says first or second generation.
fn is_legacy_model(model: &str) -> bool {
    model.split("gemini-").skip(1).any(|rest| {
        let generation = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        matches!(generation, "1" | "2")
    })
}

/// Converts the result of a call. Its images follow as separate parts.
fn result_parts<'a>(
    message: &'a Message,
    calls: &mut CallHistory<'a>,
) -> Result<Vec<Part<'a>>, ProviderError> {
    let name = calls.answered_call(message)?.name;
    let (images, texts): (Vec<Part<'_>>, Vec<Part<'_>>) =
        content_parts(message).into_iter().partition(|part| part.inline_data.is_some());
    let texts: Vec<&str> = texts.iter().filter_map(|part| part.text.as_deref()).collect();
    let word = if message.is_error { "error" } else { "output" };
    let response = json!({word: texts.join("\n")});
    let mut parts =
        vec![Part { function_response: Some(FunctionResponse { name, response }), ..Part::default() }];
    parts.extend(images);
    Ok(parts)
}

fn content_parts(message: &Message) -> Vec<Part<'_>> {
    history::blocks(&message.content, |mime_type| mime_type.starts_with("image/"))
        .into_iter()
        .map(|block| match block {
            HistoryBlock::Text(text) => Part::text(text),
            HistoryBlock::Image { data, mime_type } => {
                Part { inline_data: Some(InlineData { mime_type, data }), ..Part::default() }
            }
        })
        .collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerateContentRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    generation_config: Value,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<InlineData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'static str>,
}

impl<'a> Part<'a> {
    fn text(text: Cow<'a, str>) -> Self {
        Self { text: Some(text), ..Self::default() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct FunctionCall {
    name: String,
    args: Box<RawValue>,
}

#[derive(Serialize)]
struct FunctionResponse {
    name: String,
    response: Value,
}

/// Reader state of one response.
#[derive(Debug, Default)]
pub(super) struct GenerateContentReader {
    stop: Option<StopReason>,
    /// Number of calls so far. It serves as the index, because each call arrives whole and without an index.
    calls: u64,
}

impl ResponseReader for GenerateContentReader {
    fn read(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<ResponseProgress, ReadError> {
        let chunk: GenerateContentResponse = event(data)?;
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.stop = Some(StopReason::ContentFilter);
        }
        let candidates = chunk.candidates.items()?.into_iter();
        // Requests ask for one candidate. The text of further ones must not mix with it.
        for candidate in candidates.filter(|candidate| candidate.index.unwrap_or(0) == 0) {
            for part in candidate.content.unwrap_or_default().parts.items()? {
                let delta = if part.thought == Some(true) { Delta::Thinking } else { Delta::Text };
                push_text(out, delta, part.text);
                if let Some(call) = part.function_call {
                    out.push(whole_call(&mut self.calls, call.id, call.name, call.args.as_deref()));
                }
            }
            if let Some(reason) = non_blank(candidate.finish_reason) {
                self.stop = Some(stop(reason));
            }
        }
        if let Some(count) = chunk.usage_metadata {
            let output = [count.candidates_token_count, count.thoughts_token_count];
            out.push(Delta::Usage(Usage {
                input_tokens: count.prompt_token_count.unwrap_or(0),
                output_tokens: output.into_iter().flatten().fold(0, u64::saturating_add),
            }));
        }
        Ok(ResponseProgress::More)
    }

    fn stop(&self) -> Option<StopReason> {
        self.stop.clone().map(|stop| stop_reason_with_calls(stop, self.calls > 0))
    }
}

fn stop(reason: String) -> StopReason {
    match reason.as_str() {
        "STOP" => StopReason::Stop,
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => StopReason::ContentFilter,
        _ => StopReason::Other(reason),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerateContentResponse {
    #[serde(default)]
    candidates: BoundedList<Candidate, MAX_CHOICES>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<UsageMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    index: Option<u64>,
    content: Option<ResponseContent>,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct ResponseContent {
    #[serde(default)]
    parts: BoundedList<ResponsePart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponsePart {
    text: Option<String>,
    thought: Option<bool>,
    function_call: Option<ResponseFunctionCall>,
}

#[derive(Deserialize)]
struct ResponseFunctionCall {
    id: Option<String>,
    name: String,
    args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageMetadata {
    prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}
