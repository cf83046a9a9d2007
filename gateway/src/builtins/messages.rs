//! The tools `send_message` and `read_messages`.

use portcullis_runs::now;
use portcullis_store::{
    Change, ChangeResult, Json, MessageKind, MessageStatus, MessageUpdate, NewInboxEntry, NewMessage,
    PageRequest, ParticipantKind, SpaceMessage, StoreError,
};
use portcullis_types::{ToolError, ToolErrorCode};
use serde_json::{Value, json};

use super::{
    arguments::{DEFAULT_MESSAGES, MAX_MESSAGES},
    spaces::ensure_member,
    store_error,
};
use crate::{
    cycle::{CycleSpace, message_event, message_id},
    prompt::{MESSAGE, MessageEntry},
    resource::format_timestamp,
    state::GatewayState,
};

/// The maximum number of messages that agents can send to each other before a person has to write: 20. Further messages
/// are posted but wake no agent, so that two agents cannot answer each other without end.
const MAX_AGENT_MESSAGES: u32 = 20;

/// The maximum number of pages of [`MAX_AGENT_MESSAGES`] that are searched for the last texts: 50. Without
/// calls between the texts, the first page is enough.
const MAX_SEARCHED_PAGES: u32 = 50;

/// The maximum number of bytes of text that one message adds to the inboxes of its space: 8 MiB. All entries
/// are written together, so in a space of many agents each inbox gets only the beginning of a longer text.
const MAX_DELIVERED_BYTES: usize = 8 << 20;

/// Marks the end of a text that an inbox has only in part.
const CUT: &str = "\n[the message is longer; read_messages has all of it]";

pub(super) async fn send(cycle: &CycleSpace, call: &str, args: &Value) -> Result<Value, ToolError> {
    let Some(space) = cycle.entered() else {
        let message = "you are not in a space; call enter_space first";
        return Err(ToolError::failed(message).with_code(ToolErrorCode::NotInASpace));
    };
    // The agent may have been removed from the space since it entered.
    ensure_member(cycle, &space).await?;
    let id = message_id(&cycle.agent.id, &cycle.run, call);
    let message = NewMessage {
        id: id.clone(),
        space: space.clone(),
        author: cycle.author(),
        kind: MessageKind::Text,
        text: args["text"].as_str().unwrap_or_default().to_owned(),
        reply_to: args["replyTo"].as_str().map(str::to_owned),
        status: MessageStatus::Complete,
        call: None,
        metadata: None,
        created: now(),
    };
    match post(&cycle.state, message).await {
        // The same call has already posted the message, before its process died.
        Ok(_) | Err(StoreError::AlreadyExists { .. }) => {
            cycle.state.hub.end_stream(&id);
            Ok(json!({ "messageId": id, "spaceId": space }))
        }
        Err(error) => Err(store_error(error)),
    }
}

/// Posts a text with its event, and adds it to the inboxes of the space's other agents. A text that readers
/// have seen only in part becomes complete.
///
/// # Errors
/// [`StoreError`]; [`StoreError::AlreadyExists`] if the message is already complete. Then nothing is changed.
pub(crate) async fn post(state: &GatewayState, message: NewMessage) -> Result<SpaceMessage, StoreError> {
    let (space, created) = (message.space.clone(), message.created);
    let wakes =
        message.author.kind == ParticipantKind::User || !are_last_texts_of_agents(state, &space).await?;
    let agents = if wakes { other_agents(state, &space, &message.author.id).await? } else { Vec::new() };
    let entries = inbox_entries(agents, &message)?;
    let (change, kind) = match state.store.space_message(&message.id).await {
        Ok(open_message) if open_message.status == MessageStatus::Streaming => {
            let update = MessageUpdate {
                id: message.id,
                expected: Some(MessageStatus::Streaming),
                text: Some(message.text),
                status: Some(MessageStatus::Complete),
                metadata: None,
                updated: created,
            };
            (Change::UpdateMessage(update), "message.updated")
        }
        Ok(_) | Err(StoreError::NotFound { .. }) => (Change::PostMessage(message), "message.created"),
        Err(error) => return Err(error),
    };
    let entries = Change::derived(move |applied| {
        // If two callers complete one message concurrently, only one of them adds it to the inboxes.
        let is_sent = !matches!(applied.first(), Some(ChangeResult::Updated { is_changed: false, .. }));
        Ok(if is_sent { entries.into_iter().map(Change::PushInbox).collect() } else { Vec::new() })
    });
    let applied = state.write(vec![change, message_event(kind, &space), entries]).await?;
    state.cycles.wake();
    let posted = applied.into_iter().find_map(|applied| match applied {
        ChangeResult::Posted(message) | ChangeResult::Updated { message, .. } => Some(*message),
        _ => None,
    });
    Ok(posted.expect("the first change posts or updates the message"))
}

/// Creates the inbox entries for a message to these agents.
fn inbox_entries(agents: Vec<String>, message: &NewMessage) -> Result<Vec<NewInboxEntry>, StoreError> {
    if agents.is_empty() {
        return Ok(Vec::new());
    }
    let body = Json::of(&MessageEntry {
        space_id: message.space.clone(),
        message_id: message.id.clone(),
        author_id: message.author.id.clone(),
        author_name: message.author.name.clone(),
        text: delivered_text(&message.text, agents.len()),
    })?;
    let created = message.created;
    let entry = |agent| NewInboxEntry { agent, kind: MESSAGE.to_owned(), body: body.clone(), created };
    Ok(agents.into_iter().map(entry).collect())
}

/// Returns the text as the inboxes of this many agents get it.
fn delivered_text(text: &str, agents: usize) -> String {
    let limit = MAX_DELIVERED_BYTES / agents.max(1);
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}{CUT}", &text[..text.floor_char_boundary(limit)])
}

/// Returns whether agents wrote all of the last texts. Calls of visible tools between the texts do not
/// count, so that agents with such tools do not wake each other endlessly.
async fn are_last_texts_of_agents(state: &GatewayState, space: &str) -> Result<bool, StoreError> {
    let (mut texts, mut request) = (0, PageRequest::first(MAX_AGENT_MESSAGES));
    for _page in 0..MAX_SEARCHED_PAGES {
        let page = state.store.space_messages(space, None, request).await?;
        for message in page.items.iter().filter(|message| message.kind == MessageKind::Text) {
            if message.author.kind != ParticipantKind::Agent {
                return Ok(false);
            }
            texts += 1;
            if texts == MAX_AGENT_MESSAGES {
                return Ok(true);
            }
        }
        let Some(next) = page.next else { return Ok(false) };
        request = PageRequest::after(next, MAX_AGENT_MESSAGES);
    }
    // No person has written on any of the searched pages.
    Ok(true)
}

/// Returns the other agents of a space.
async fn other_agents(state: &GatewayState, space: &str, author: &str) -> Result<Vec<String>, StoreError> {
    let members = portcullis_runs::all_rows(|page| state.store.members(space, page)).await?;
    let agents = members.into_iter().filter(|member| member.kind == ParticipantKind::Agent);
    Ok(agents.map(|member| member.id).filter(|id| id != author).collect())
}

pub(super) async fn read(cycle: &CycleSpace, args: &Value) -> Result<Value, ToolError> {
    let space = match args["spaceId"].as_str() {
        Some(space) => space.to_owned(),
        None => cycle.entered().ok_or_else(|| {
            ToolError::failed("you are not in a space; name one as `spaceId`")
                .with_code(ToolErrorCode::NotInASpace)
        })?,
    };
    ensure_member(cycle, &space).await?;
    let offset = u32::try_from(args["offset"].as_u64().unwrap_or_default()).unwrap_or(u32::MAX);
    Ok(json!({ "messages": page_of(cycle, &space, args, offset).await? }))
}

/// Returns a page of a space's messages, newest first, without the newest `offset`.
pub(super) async fn page_of(
    cycle: &CycleSpace,
    space: &str,
    args: &Value,
    offset: u32,
) -> Result<Vec<Value>, ToolError> {
    let limit = args["limit"].as_u64().and_then(|limit| u32::try_from(limit).ok());
    let limit = limit.unwrap_or(DEFAULT_MESSAGES).min(MAX_MESSAGES);
    let store = &cycle.state.store;
    let newest = store.space(space).await.map_err(store_error)?.messages;
    // Ordinals have no gaps, so an offset can be subtracted from the newest ordinal.
    let before = newest.saturating_sub(i64::from(offset)).saturating_add(1);
    let page = store.space_messages(space, None, PageRequest::after(before, limit)).await;
    Ok(page.map_err(store_error)?.items.iter().map(message_json).collect())
}

/// Converts a message to the form that an agent reads.
fn message_json(message: &SpaceMessage) -> Value {
    let mut value = json!({
        "messageId": message.id,
        "author": { "id": message.author.id, "kind": message.author.kind.as_str(), "name": message.author.name },
        "text": message.text,
        "createdAt": format_timestamp(message.created),
    });
    if let Some(reply_to) = &message.reply_to {
        value["replyTo"] = reply_to.as_str().into();
    }
    if let Some(tool) =
        message.metadata.as_ref().and_then(|tool| serde_json::from_str::<Value>(tool.as_str()).ok())
    {
        value["tool"] = json!({
            "name": tool["name"], "input": tool["input"], "output": tool["output"], "status": message.status.as_str(),
        });
    }
    value
}
