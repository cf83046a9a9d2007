//! `portcullis calls`: lists the external calls that wait for results, and submits results.

use std::process::ExitCode;

use portcullis_runs::{
    now,
    store::{Entity, ExternalCallFilter, Json, ResultDelivery, RunStore, StoreError, StoredExternalCall},
};
use serde_json::{Value, json as value, value::RawValue};

use super::{call, runs::with_store};
use crate::{
    cli::{CommonOptions, ListCallsOptions, OneCallOptions, ResolveOptions},
    error::CliError,
    output::{json, list::List, stream, text},
};

/// Lists calls.
pub(crate) fn list(common: &CommonOptions, options: &ListCallsOptions) -> Result<ExitCode, CliError> {
    with_store(common, &options.store, async |store| {
        let filter = ExternalCallFilter { run: options.run.clone(), ..ExternalCallFilter::default() };
        let mut calls = match &store {
            Some(store) => {
                portcullis_runs::all_rows(|request| store.external_calls(filter.clone(), request)).await?
            }
            None => Vec::new(),
        };
        if !options.all {
            calls.retain(|call| call.status_at(now()).is_open());
        }
        let list = List {
            items: calls,
            empty_text: "no call is waiting for a result\n",
            head: ["call", "run", "at", "tool", "status"],
            row: |call| {
                let (at, status) =
                    (super::runs::format_timestamp(call.created), call.status_at(now()).to_string());
                [call.id.clone(), call.run.clone(), at, call.tool.clone(), status]
            },
            id: |call| &call.id,
            as_json,
        };
        list.write(&options.output)
    })
}

/// Shows a call.
pub(crate) fn show(common: &CommonOptions, options: &OneCallOptions) -> Result<ExitCode, CliError> {
    with_call(common, options, async |_, call| json::write_output(&as_json(&call)?))
}

/// Submits a result.
pub(crate) fn resolve(common: &CommonOptions, options: ResolveOptions) -> Result<ExitCode, CliError> {
    let ResolveOptions { call: which, result } = options;
    let result = call::arguments(result)?;
    // `RawValue` validates the text and keeps it as it was submitted.
    let result = serde_json::from_str::<Box<RawValue>>(&result)
        .map_err(|source| CliError::SubmittedResult { source })?;
    with_call(common, &which, async |store, call| {
        let delivery = store.resolve_external_call(&call.id, Json::from_text(result.get())?, now()).await?;
        let (tool, run) = (text::inline(&call.tool), text::inline(&call.run));
        stream::write_output(&match delivery {
            ResultDelivery::Inline => {
                format!("submitted the result of {tool}; run {run} is waiting for it\n")
            }
            ResultDelivery::Inbox { .. } => format!(
                "submitted the result of {tool}; run {run} gets it before its next request to the model. \
                 If the run has ended, continue it with: portcullis runs resume {run}\n"
            ),
        })
    })
}

fn with_call(
    common: &CommonOptions,
    options: &OneCallOptions,
    work: impl AsyncFnOnce(&dyn RunStore, StoredExternalCall) -> Result<(), CliError>,
) -> Result<ExitCode, CliError> {
    with_store(common, &options.store, async |store| {
        let missing = || StoreError::NotFound { entity: Entity::Call, id: options.id.clone() };
        let store = store.ok_or_else(missing)?;
        let call = store.external_call(&options.id).await?;
        work(&*store, call).await
    })
}

fn as_json(call: &StoredExternalCall) -> Result<Value, CliError> {
    let parse = |json: &Json| {
        serde_json::from_str::<Value>(json.as_str()).map_err(|source| StoreError::Json { source })
    };
    Ok(value!({
        "id": call.id, "run": call.run, "agent": call.agent, "tool": call.tool, "arguments": parse(&call.arguments)?,
        "status": call.status_at(now()).as_str(), "result": call.result.as_ref().map(parse).transpose()?,
        "created": call.created, "updated": call.updated, "expires": call.expires,
    }))
}
