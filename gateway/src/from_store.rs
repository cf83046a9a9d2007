//! Converts rows of the store into resources.

use portcullis_store::{self as store, Page, StoreError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    error::ApiError,
    resource::{
        Agent, AgentDefinition, AgentStatus, ApprovalJson, Author, Call, InboxItem, Listing, Member, Message,
        Note, Run, RunStep, Space, Token, User, format_timestamp,
    },
};

/// The execution type of a call that no space shows.
const EXTERNAL: &str = "external";

/// Converts a page of the store into a listing. `cursor` encodes the cursor.
pub(crate) fn listing<T, C, R>(
    page: Page<T, C>,
    item: impl FnMut(T) -> Result<R, ApiError>,
    cursor: impl FnOnce(C) -> String,
) -> Result<Listing<R>, ApiError> {
    Ok(Listing {
        items: page.items.into_iter().map(item).collect::<Result<_, _>>()?,
        next: page.next.map(cursor),
    })
}

/// Parses a payload of the store.
///
/// # Errors
/// [`StoreError::Json`] for a payload that another program has written.
pub(crate) fn parse<T: DeserializeOwned>(json: &store::Json) -> Result<T, StoreError> {
    serde_json::from_str(json.as_str()).map_err(|source| StoreError::Json { source })
}

/// Parses a payload of the store as a JSON value.
///
/// # Errors
/// Same as [`parse`].
pub(crate) fn value(json: &store::Json) -> Result<Value, StoreError> {
    parse(json)
}

pub(crate) fn user(user: store::Participant) -> User {
    User { id: user.id, kind: user.kind.into(), name: user.name, created_at: format_timestamp(user.created) }
}

/// # Errors
/// [`StoreError::Json`] if the stored definition cannot be parsed.
pub(crate) fn definition(agent: &store::Participant) -> Result<AgentDefinition, StoreError> {
    parse(&agent.definition)
}

pub(crate) fn agent(agent: store::Participant, status: AgentStatus) -> Result<Agent, ApiError> {
    let AgentDefinition { name, instructions, model, capabilities, tools, mcp } = definition(&agent)?;
    Ok(Agent {
        id: agent.id,
        kind: agent.kind.into(),
        name,
        instructions,
        model,
        capabilities,
        tools,
        mcp,
        status,
        created_at: format_timestamp(agent.created),
    })
}

pub(crate) fn space(space: store::Space) -> Space {
    Space {
        id: space.id,
        name: space.name,
        created_at: format_timestamp(space.created),
        member_count: space.members.unsigned_abs(),
    }
}

pub(crate) fn member(member: store::Member) -> Member {
    Member {
        id: member.id,
        kind: member.kind.into(),
        name: member.name,
        joined_at: format_timestamp(member.joined),
    }
}

/// # Errors
/// [`StoreError::Json`] for metadata that another program has written.
pub(crate) fn message(message: store::SpaceMessage) -> Result<Message, StoreError> {
    Ok(Message {
        id: message.id,
        ordinal: message.ordinal,
        space_id: message.space,
        author: Author { id: message.author.id, kind: message.author.kind.into(), name: message.author.name },
        kind: message.kind.into(),
        text: message.text,
        reply_to: message.reply_to,
        status: message.status.into(),
        tool: message.metadata.as_ref().map(parse).transpose()?,
        created_at: format_timestamp(message.created),
        updated_at: format_timestamp(message.updated),
    })
}

pub(crate) fn inbox_item(entry: store::InboxEntry) -> Result<InboxItem, ApiError> {
    let body = value(&entry.body)?;
    Ok(InboxItem {
        ordinal: entry.ordinal,
        kind: entry.kind,
        body,
        created_at: format_timestamp(entry.created),
    })
}

pub(crate) fn note(note: store::Note) -> Result<Note, ApiError> {
    let body = value(&note.body)?;
    Ok(Note {
        id: note.id,
        body,
        due_at: note.due.map(format_timestamp),
        updated_at: format_timestamp(note.updated),
    })
}

pub(crate) fn run(run: &store::RunSummary) -> Run {
    Run {
        id: run.id.clone(),
        agent_id: run.agent.clone(),
        status: run.status.as_str().to_owned(),
        started_at: format_timestamp(run.created),
        updated_at: format_timestamp(run.updated),
    }
}

pub(crate) fn run_step(step: store::Step) -> RunStep {
    let step = step.record;
    RunStep {
        kind: step.kind,
        summary: step.summary,
        started_at: format_timestamp(step.started_at),
        finished_at: format_timestamp(step.finished),
    }
}

/// The execution type of a tool, from a message's metadata. The field is that of
/// [`crate::resource::ShownCall`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownExecutionType {
    execution_type: String,
}

/// Converts a call as of this time: an open call past its deadline has expired, even before a sweep has
/// marked it.
pub(crate) fn call(shown: store::CallWithMessage, now: i64) -> Result<Call, ApiError> {
    let store::CallWithMessage { call, space, metadata } = shown;
    let status = call.status_at(now);
    let tool: Option<ShownExecutionType> = metadata.as_ref().map(parse).transpose()?;
    Ok(Call {
        args: parse(&call.arguments)?,
        result: call.result.as_ref().map(parse).transpose()?,
        call_id: call.id,
        agent_id: call.agent,
        run_id: call.run,
        tool_name: call.tool,
        status: status.as_str().to_owned(),
        created_at: format_timestamp(call.created),
        expires_at: call.expires.map(format_timestamp),
        // A call that no space shows is meant for a program.
        execution_type: tool.map_or_else(|| EXTERNAL.to_owned(), |tool| tool.execution_type),
        space_id: space,
    })
}

/// Converts an approval question as of this time.
pub(crate) fn approval(approval: store::StoredApproval, now: i64) -> ApprovalJson {
    let status = approval.status_at(now);
    ApprovalJson {
        id: approval.request.id,
        run_id: approval.run,
        agent_id: approval.agent,
        tool_name: approval.request.tool,
        question: approval.request.question,
        hash: approval.request.hash,
        status: status.as_str().to_owned(),
        created_at: format_timestamp(approval.created),
        expires_at: approval.request.expires.map(format_timestamp),
    }
}

pub(crate) fn token(token: store::Token) -> Token {
    Token {
        id: token.id,
        subject: token.subject_kind,
        subject_id: token.subject,
        created_at: format_timestamp(token.created),
    }
}
