//! Started calls: which calls of a run have begun, and which have finished.

use super::{
    leases::{lock_run, why_refused},
    pages::{PageItem, labels_text, page, parse_labels},
    runs::ensure_run,
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_ARGUMENTS_BYTES, MAX_PAGE_BYTES, MAX_PAYLOAD_BYTES, MAX_STARTED_CALLS, check_count, check_labels,
        check_name, check_size, to_i64,
    },
    model::{
        CallFinish, CallStart, FinishedCall, LeaseGuard, NewStartedCall, Page, PageRequest, StartedCall,
    },
    sql::{Sql, SqlRow, parameters},
};

pub(crate) async fn start_call(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    started: NewStartedCall,
) -> Result<CallStart, StoreError> {
    check_name("the id of the call", &started.call)?;
    check_name("the tool", &started.tool)?;
    check_size("the arguments", started.arguments.len(), MAX_ARGUMENTS_BYTES)?;
    check_labels(&started.labels)?;
    // The run's lock keeps a second process from starting the same call between the two statements.
    lock_run(sql, &guard).await?;
    let stored = sql
        .row(
            "select call, tool, arguments, may_repeat, attempts, begun, finished, result, labels, ordinal, bytes \
             from started_calls where run = $1 and call = $2",
            parameters![&guard.run, &started.call],
        )
        .await?;
    match stored {
        None => add_started(sql, &guard, started).await,
        Some(mut row) => {
            let stored = read_started(&mut row)?.item;
            if stored.finished.is_some() {
                return Ok(CallStart::Finished(stored));
            }
            // A call without an end may have had its effects, so it runs again only if that is harmless.
            if !stored.may_repeat {
                return Ok(CallStart::Unknown(stored));
            }
            let attempt = stored.attempts + 1;
            sql.execute(
                "update started_calls set attempts = $3, begun = $4 where run = $1 and call = $2",
                parameters![&guard.run, &started.call, attempt, guard.now],
            )
            .await?;
            Ok(CallStart::Begun { attempt })
        }
    }
}

async fn add_started(
    sql: &mut dyn Sql,
    guard: &LeaseGuard,
    started: NewStartedCall,
) -> Result<CallStart, StoreError> {
    let row = sql
        .row(
            "update runs set started_calls = started_calls + 1 where id = $1 returning started_calls",
            parameters![&guard.run],
        )
        .await?;
    let Some(mut row) = row else { return Err(why_refused(sql, guard.clone(), None).await?) };
    let ordinal = row.int(0)?;
    check_count("the started calls of the run", ordinal, MAX_STARTED_CALLS)?;
    sql.execute(
        "insert into started_calls (run, call, ordinal, tool, bytes, arguments, may_repeat, attempts, begun, labels) \
         values ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9)",
        parameters![
            &guard.run,
            started.call,
            ordinal,
            started.tool,
            to_i64(started.arguments.len()),
            started.arguments.into_text(),
            started.may_repeat,
            guard.now,
            labels_text(&started.labels)?
        ],
    )
    .await?;
    Ok(CallStart::Begun { attempt: 1 })
}

pub(crate) async fn finish_call(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    end: CallFinish,
) -> Result<(), StoreError> {
    check_size("the result", end.result.len(), MAX_PAYLOAD_BYTES)?;
    check_labels(&end.labels)?;
    lock_run(sql, &guard).await?;
    // A result is written once, because the model may have read it.
    let changed = sql
        .execute(
            "update started_calls set finished = $3, bytes = bytes + $4, result = $5, labels = $6 \
             where run = $1 and call = $2 and finished is null",
            parameters![
                &guard.run,
                &end.call,
                guard.now,
                to_i64(end.result.len()),
                end.result.into_text(),
                labels_text(&end.labels)?
            ],
        )
        .await?;
    if changed == 1 {
        return Ok(());
    }
    let found = sql
        .row("select 1 from started_calls where run = $1 and call = $2", parameters![&guard.run, &end.call])
        .await?;
    Err(match found {
        Some(_) => StoreError::exists(Entity::StartedCall, &end.call),
        None => StoreError::not_found(Entity::StartedCall, &end.call),
    })
}

/// Adds calls that were not written when they began. Their ordinals end with `last`.
pub(crate) async fn add_finished(
    sql: &mut dyn Sql,
    run: &str,
    last: i64,
    started_calls: Vec<FinishedCall>,
) -> Result<(), StoreError> {
    check_count("the started calls of the run", last, MAX_STARTED_CALLS)?;
    let first = last - to_i64(started_calls.len());
    for (ordinal, finished) in (first + 1..).zip(started_calls) {
        let FinishedCall { started, started_at, finished, result } = finished;
        check_name("the id of the call", &started.call)?;
        check_name("the tool", &started.tool)?;
        check_size("the arguments", started.arguments.len(), MAX_ARGUMENTS_BYTES)?;
        check_size("the result", result.len(), MAX_PAYLOAD_BYTES)?;
        check_labels(&started.labels)?;
        // A call whose start was written gets its result here and keeps its ordinal, so the order may have
        // gaps. A stored result is not replaced.
        let bytes = to_i64(started.arguments.len() + result.len());
        sql.execute(
            "insert into started_calls (run, call, ordinal, tool, bytes, arguments, may_repeat, attempts, begun, finished, \
             result, labels) values ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $11) \
             on conflict (run, call) do update set bytes = excluded.bytes, attempts = started_calls.attempts + 1, \
             begun = excluded.begun, finished = excluded.finished, result = excluded.result, labels = excluded.labels \
             where started_calls.finished is null",
            parameters![
                run,
                started.call,
                ordinal,
                started.tool,
                bytes,
                started.arguments.into_text(),
                started.may_repeat,
                started_at,
                finished,
                result.into_text(),
                labels_text(&started.labels)?
            ],
        )
        .await?;
    }
    Ok(())
}

pub(crate) async fn started_calls(
    sql: &mut dyn Sql,
    run: String,
    request: PageRequest<i64>,
) -> Result<Page<StartedCall, i64>, StoreError> {
    ensure_run(sql, &run).await?;
    let limit = request.rows();
    let rows = sql
        .rows(
            "select call, tool, arguments, may_repeat, attempts, begun, finished, result, labels, e.ordinal, bytes \
             from started_calls e join ( \
                 select ordinal, cast(sum(bytes) over (order by ordinal) as bigint) - bytes as before from ( \
                     select ordinal, bytes from started_calls where run = $1 and ordinal > $2 order by ordinal limit $3 \
                 ) as candidates \
             ) as sized on sized.ordinal = e.ordinal where e.run = $1 and sized.before < $4 order by e.ordinal",
            parameters![run, request.after.unwrap_or(0), limit, MAX_PAGE_BYTES],
        )
        .await?;
    page(rows, limit, read_started)
}

fn read_started(row: &mut SqlRow) -> Result<PageItem<StartedCall, i64>, StoreError> {
    let started = StartedCall {
        call: row.text(0)?,
        tool: row.text(1)?,
        arguments: Json::stored(row.text(2)?),
        may_repeat: row.int(3)? != 0,
        attempts: row.int(4)?,
        started_at: row.int(5)?,
        finished: row.optional_int(6)?,
        result: row.optional_text(7)?.map(Json::stored),
        labels: row.parsed(8, parse_labels)?,
    };
    Ok(PageItem { item: started, cursor: row.int(9)?, payload_bytes: row.int(10)? })
}
