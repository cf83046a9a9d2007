//! `TurnResults`: stores results of refused or unfinished calls until their turn's step is committed.
//!
//! A refused call leaves no started call in the store, but the step needs its result, and another process may
//! commit the step. The results are entries of the inbox `<run> calls`. Late results have a different inbox,
//! `<run>`.

use std::collections::HashMap;

use portcullis_store::{Json, NewInboxEntry, RunStore, StoreError};
use portcullis_types::ToolResult;

use crate::{RunError, RunId, clock::now, pages::all_rows};

/// The kind of the entries.
const KIND: &str = "call_result";

/// Returns the name of the inbox. No agent and no run has this name.
fn inbox(id: &RunId) -> String {
    format!("{id} calls")
}

/// The results of a turn's calls, and the ordinal of the last entry.
#[derive(Debug, Default)]
pub(crate) struct TurnResults {
    pub(crate) results: HashMap<String, ToolResult>,
    last: Option<i64>,
}

impl TurnResults {
    /// Reads the stored results. If a call has two results, the first counts.
    pub(crate) async fn read(store: &dyn RunStore, id: &RunId) -> Result<Self, RunError> {
        let mut turn_results = Self::default();
        let inbox = inbox(id);
        for entry in all_rows(|request| store.inbox(&inbox, request)).await? {
            turn_results.last = Some(entry.ordinal);
            if entry.kind != KIND {
                continue;
            }
            let result: ToolResult = serde_json::from_str(entry.body.as_str())
                .map_err(|source| RunError::Malformed { id: id.clone(), kind: "result", source })?;
            turn_results.results.entry(result.call_id.clone()).or_insert(result);
        }
        Ok(turn_results)
    }

    /// Stores a result.
    pub(crate) async fn save(
        store: &dyn RunStore,
        id: &RunId,
        result: &ToolResult,
    ) -> Result<(), StoreError> {
        let (agent, kind) = (inbox(id), KIND.to_owned());
        store.push_inbox(NewInboxEntry { agent, kind, body: Json::of(result)?, created: now() }).await?;
        Ok(())
    }

    /// Removes the results that were read, after the step that used them.
    pub(crate) async fn forget(self, store: &dyn RunStore, id: &RunId) -> Result<(), StoreError> {
        if let Some(last) = self.last {
            store.consume_inbox(&inbox(id), last, now()).await?;
        }
        Ok(())
    }
}
