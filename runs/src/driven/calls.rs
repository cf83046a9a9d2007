//! The calls of a driven run: which have begun, in this process or earlier, and how their ends are written.

use std::{
    collections::{HashMap, HashSet},
    sync::{MutexGuard, PoisonError},
};

use async_trait::async_trait;
use portcullis_agent::{RunState, interrupted_error};
use portcullis_store::{
    CallFinish, CallStart, FinishedCall, Json, NewStartedCall, RunStore, StartedCall, StoreError,
};
use portcullis_tools::{CallStartListener, StartingCall, policy::FlowLabel};
use portcullis_types::{ToolError, ToolResult};

use super::{DrivenRun, InterruptedCall, label_texts};
use crate::{RunError, RunId, clock::now, pages::all_rows, state::parse_label};

impl DrivenRun {
    /// Writes the result of a call that has begun in this process.
    pub(crate) async fn finish(&self, result: &ToolResult) {
        if let Some(started) = self.repeatable().and_then(|mut calls| calls.remove(&result.call_id)) {
            match self.finished_call(started, result) {
                Ok(started) => self.progress.lock().await.finished_calls.push(started),
                Err(error) => warn_of_unwritten_end(&result.call_id, &error),
            }
            return;
        }
        if self.is_written(&result.call_id) != Some(false) {
            return;
        }
        let finished = async {
            let (call, result) = (result.call_id.clone(), Json::of(result)?);
            let labels = label_texts(self.registry.run_labels(&self.caller).keys());
            self.store.finish_call(self.guard(), CallFinish { call, result, labels }).await
        };
        match finished.await {
            Ok(()) => {
                self.started_calls().insert(result.call_id.clone(), true);
            }
            Err(error) => warn_of_unwritten_end(&result.call_id, &error),
        }
    }

    fn finished_call(
        &self,
        (started, started_at): (NewStartedCall, i64),
        result: &ToolResult,
    ) -> Result<FinishedCall, StoreError> {
        let labels = label_texts(self.registry.run_labels(&self.caller).keys());
        let started = NewStartedCall { labels, ..started };
        Ok(FinishedCall { started, started_at, finished: now(), result: Json::of(result)? })
    }

    fn repeatable(&self) -> Option<MutexGuard<'_, HashMap<String, (NewStartedCall, i64)>>> {
        Some(self.repeatable.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether the end of a call is written, or `None` if the call has not begun in this process.
    pub(crate) fn is_written(&self, call: &str) -> Option<bool> {
        self.started_calls().get(call).copied()
    }

    fn started_calls(&self) -> MutexGuard<'_, HashMap<String, bool>> {
        self.started_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CallStartListener for DrivenRun {
    async fn on_start(&self, call: &StartingCall) -> Result<(), ToolError> {
        let start = async {
            let started = NewStartedCall {
                call: call.call_id.clone(),
                tool: call.tool.clone(),
                arguments: Json::from_text(call.arguments.as_str())?,
                may_repeat: call.may_repeat,
                labels: label_texts(call.labels.iter()),
            };
            if let Some(mut calls) = self.repeatable().filter(|_| call.may_repeat) {
                calls.insert(started.call.clone(), (started, now()));
                return Ok(None);
            }
            self.store.start_call(self.guard(), started).await.map(Some)
        };
        match start.await {
            Ok(None) => Ok(()),
            Ok(Some(CallStart::Begun { .. })) => {
                self.started_calls().insert(call.call_id.clone(), false);
                Ok(())
            }
            // The executor answers interrupted calls itself, so two calls must have the same id.
            Ok(Some(CallStart::Finished(_) | CallStart::Unknown(_))) => Err(interrupted_error()),
            Err(error) => {
                let reason = "the store of the run has not taken the call, so it has not run";
                Err(ToolError::unavailable(reason)
                    .with_operator_detail(portcullis_types::error_chain(&error)))
            }
        }
    }
}

/// Reads the interrupted calls of a step as [`InterruptedCall`]s, and the labels that they have added.
pub(super) async fn read_interrupted_calls(
    store: &dyn RunStore,
    id: &RunId,
    state: &RunState,
) -> Result<(HashMap<String, InterruptedCall>, Vec<(FlowLabel, String)>), RunError> {
    let calls: HashSet<&str> = state.next_calls().map(|call| &*call.id).collect();
    let (mut interrupted_calls, mut labels) = (HashMap::new(), Vec::new());
    if calls.is_empty() {
        return Ok((interrupted_calls, labels));
    }
    let started_calls = all_rows(|request| store.started_calls(id.as_str(), request)).await?;
    for started in started_calls.into_iter().filter(|started| calls.contains(&*started.call)) {
        for label in &started.labels {
            labels.push((parse_label(label, id)?, started.call.clone()));
        }
        if let Some(call) = interrupted_call(&started, id)? {
            interrupted_calls.insert(started.call, call);
        }
    }
    Ok((interrupted_calls, labels))
}

/// Reads the state of an interrupted call. Returns `None` if the call may run again.
fn interrupted_call(started: &StartedCall, id: &RunId) -> Result<Option<InterruptedCall>, RunError> {
    Ok(match &started.result {
        Some(result) => {
            let parsed = serde_json::from_str(result.as_str());
            let result =
                parsed.map_err(|source| RunError::Malformed { id: id.clone(), kind: "result", source })?;
            Some(InterruptedCall::Finished(Box::new(result)))
        }
        None if started.may_repeat => None,
        None => Some(InterruptedCall::Unknown),
    })
}

/// Warns that the end of a call is not stored. The step writes the result again. Until then, the call counts
/// as one with unknown effects.
fn warn_of_unwritten_end(call: &str, error: &StoreError) {
    tracing::warn!(error = error as &dyn std::error::Error, call, "cannot store the end of a call");
}
