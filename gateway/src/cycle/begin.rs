//! Creates the run of a cycle from the entries of the agent's inbox.

use std::collections::BTreeMap;

use portcullis_runs::{InheritedContext, RunId, RunSubject, late_result_text, take_late_result};
use portcullis_store::{InboxSpan, PageRequest, Participant, RunFilter, TOOL_RESULT};
use portcullis_tools::{Caller, policy::FlowLabel};
use portcullis_types::{Message, MessageRole};

use crate::{
    agent_tool,
    error::ApiError,
    from_store, prompt,
    state::{GatewayState, event, run_topics},
};

/// The maximum number of inbox entries in one prompt.
const MAX_ENTRIES: u32 = 32;

/// The maximum number of messages of earlier cycles that the model reads: the last 200.
const MAX_HISTORY: i64 = 200;

/// The maximum size of earlier messages that the model reads: 256 KiB.
const MAX_HISTORY_BYTES: usize = 256 * 1024;

/// Creates a run from the entries in this agent's inbox, or returns `None` if there are none.
///
/// The run's first write consumes the entries. If the process dies before it, they stay for the next cycle.
///
/// # Errors
/// [`ApiError`] if the store fails, or if another process has taken the entries.
pub(crate) async fn begin(state: &GatewayState, agent: &Participant) -> Result<Option<RunId>, ApiError> {
    let page = state.store.inbox(&agent.id, PageRequest::first(MAX_ENTRIES)).await?;
    let (Some(first), Some(last)) = (page.items.first(), page.items.last()) else { return Ok(None) };
    let consumed = InboxSpan { agent: agent.id.clone(), first: first.ordinal, last: last.ordinal };
    let id = RunId::random()?;
    let (messages, mut labels) = history(state, &agent.id).await?;
    let caller = Caller::new(agent.id.clone(), id.to_string());
    // A result passes the policy of its tool, which may exist only for this agent.
    let registry = agent_tool::registry_of(state, &from_store::definition(agent)?.tools)?.0;
    registry.add_run_labels(&caller, labels.clone());
    let mut lines = Vec::new();
    for entry in &page.items {
        let line = if entry.kind == TOOL_RESULT {
            let taken = take_late_result(&*state.store, &registry, &caller, entry).await?;
            taken.map(|result| late_result_text(&result))
        } else {
            prompt::line(entry)
        };
        match line {
            Some(line) => lines.push(line),
            None => tracing::warn!(agent = agent.id, kind = entry.kind, "an entry of an inbox is unknown"),
        }
    }
    // The run has the labels of late results from its start.
    labels.extend(registry.run_labels(&caller));
    // `labels` has them. The registry's copy would only use memory.
    registry.end_run(&caller);
    let subject = RunSubject { id: id.clone(), agent: agent.id.clone(), workspace: state.workspace.clone() };
    let before = InheritedContext { messages, labels, consumed_inbox: Some(consumed) };
    state.runs.add_continuing(subject, Message::user(lines.join("\n")), before).await?;
    // Write the event after the run, so that no reader hears of a run that does not exist.
    let data = serde_json::json!({ "runId": id.as_str(), "agentId": agent.id });
    state.write(vec![event("run.started", run_topics(&agent.id, id.as_str(), None), &data)?]).await?;
    Ok(Some(id))
}

/// Returns the messages of the agent's last cycle, beginning with one from its inbox, and the labels of what
/// they have read.
async fn history(
    state: &GatewayState,
    agent: &str,
) -> Result<(Vec<Message>, BTreeMap<FlowLabel, String>), ApiError> {
    let filter = RunFilter { agent: Some(agent.to_owned()), ..RunFilter::default() };
    let Some(last) = state.store.runs(filter, PageRequest::first(1)).await?.items.into_iter().next() else {
        return Ok((Vec::new(), BTreeMap::new()));
    };
    let skipped = (last.messages - MAX_HISTORY).max(0);
    let mut messages = Vec::new();
    let mut after = skipped;
    loop {
        let page = state.store.messages(&last.id, PageRequest::after(after, 200)).await?;
        for message in page.items {
            let parsed = serde_json::from_str::<Message>(message.body.as_str());
            messages.push((message.body.as_str().len(), parsed.map_err(|error| ApiError::internal(&error))?));
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let mut bytes: usize = messages.iter().map(|(bytes, _)| bytes).sum();
    // Begin the history with a message of the inbox, so that it has no result without its call.
    let mut begin = 0;
    for (index, (size, message)) in messages.iter().enumerate() {
        if message.role == MessageRole::User && bytes <= MAX_HISTORY_BYTES {
            begin = index;
            break;
        }
        bytes -= size;
        begin = index + 1;
    }
    let messages = messages.split_off(begin.min(messages.len()));
    // An unknown label ends the cycle: without it, flow rules would miss what the agent has read.
    let labels = last.labels.iter().map(|label| match label.parse() {
        Ok(label) => Ok((label, last.id.clone())),
        Err(error) => Err(ApiError::internal(&error)),
    });
    let messages = messages.into_iter().map(|(_, message)| message).collect();
    Ok((messages, labels.collect::<Result<_, _>>()?))
}
