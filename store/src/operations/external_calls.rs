//! Calls whose result comes from outside. Each change is an update that tests the previous status. If a
//! result, a timeout, an expiry and a cancellation race, exactly one of them takes effect.

use serde_json::value::RawValue;

use super::{
    inbox::push_inbox,
    leases::lock_run,
    pages::{NEWEST, PageItem, fitting_rows, page},
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_ARGUMENTS_BYTES, MAX_OPEN_CALLS, MAX_PAYLOAD_BYTES, MAX_SWEPT_ROWS, check_count, check_name,
        check_size, to_i64,
    },
    model::{
        CallWithMessage, ExternalCallFilter, ExternalCallStatus, LeaseGuard, NewExternalCall, NewInboxEntry,
        Page, PageRequest, ResultDelivery, StoredExternalCall, TOOL_RESULT, TimeOutOutcome,
    },
    sql::{Sql, SqlRow, parameters},
    store::AgeCursor,
};

/// The columns of a call `c`, in the order that [`read_call`] takes them.
macro_rules! columns {
    () => {
        "c.id, c.run, c.agent, c.tool, c.arguments, c.status, c.result, c.created, c.updated, c.expires"
    };
}

/// The index of the column that follows [`columns`].
const NEXT_COLUMN: usize = 10;

pub(crate) async fn add_external_call(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    call: NewExternalCall,
) -> Result<(), StoreError> {
    check_name("the id of the call", &call.id)?;
    check_name("the tool", &call.tool)?;
    check_name("the inbox", &call.inbox)?;
    check_size("the arguments", call.arguments.len(), MAX_ARGUMENTS_BYTES)?;
    if !call.status.is_open() {
        return Err(StoreError::CallClosed { id: call.id, status: call.status });
    }
    let agent = lock_run(sql, &guard).await?;
    let inserted = sql
        .execute(
            "insert into calls (id, run, agent, tool, bytes, arguments, status, created, updated, expires, inbox) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10) on conflict (id) do nothing",
            parameters![
                &call.id,
                &guard.run,
                agent,
                call.tool,
                to_i64(call.arguments.len()),
                call.arguments.into_text(),
                call.status.as_str(),
                guard.now,
                call.expires,
                call.inbox
            ],
        )
        .await?;
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Call, &call.id));
    }
    // The run's row is locked until the commit, so no other transaction adds a call after this count.
    let open = sql
        .row(
            "select count(*) from calls where run = $1 and status in ('waiting', 'pending')",
            parameters![&guard.run],
        )
        .await?;
    let open = open.map_or(Ok(0), |mut row| row.int(0))?;
    check_count("the open calls of the run", open, MAX_OPEN_CALLS)
}

pub(crate) async fn time_out_external_call(
    sql: &mut dyn Sql,
    id: String,
    now: i64,
) -> Result<TimeOutOutcome, StoreError> {
    let changed = sql
        .execute(
            "update calls set status = 'pending', updated = $2 where id = $1 and status = 'waiting'",
            parameters![&id, now],
        )
        .await?;
    if changed == 1 {
        return Ok(TimeOutOutcome::NowPending);
    }
    external_call(sql, id).await.map(TimeOutOutcome::AlreadyChanged)
}

pub(crate) async fn resolve_external_call(
    sql: &mut dyn Sql,
    id: String,
    result: Json,
    now: i64,
) -> Result<ResultDelivery, StoreError> {
    check_size("the result", result.len(), MAX_PAYLOAD_BYTES)?;
    if let Some(delivery) = resolve_if_open(sql, &id, &result, now).await? {
        return Ok(delivery);
    }
    let found = external_call(sql, id).await?;
    // An open call that takes no result has expired, even if no sweep has marked it.
    let status = if found.status.is_open() { ExternalCallStatus::Expired } else { found.status };
    Err(StoreError::CallClosed { id: found.id, status })
}

/// Stores the result of an open call. `None` if the call is closed or does not exist.
pub(super) async fn resolve_if_open(
    sql: &mut dyn Sql,
    id: &str,
    result: &Json,
    now: i64,
) -> Result<Option<ResultDelivery>, StoreError> {
    // `delivered` is the ordinal of the entry in the inbox. Ordinals begin with 1, so 0 means the run itself.
    let inline = sql
        .execute(
            "update calls set status = 'resolved', result = $2, bytes = bytes + $3, updated = $4, delivered = 0 \
             where id = $1 and status = 'waiting' and (expires is null or expires > $4)",
            parameters![id, result.as_str(), to_i64(result.len()), now],
        )
        .await?;
    if inline == 1 {
        return Ok(Some(ResultDelivery::Inline));
    }
    // If the call times out between the two statements, the second finds it. No change leads back to waiting.
    let late = sql
        .row(
            "update calls set status = 'resolved', result = $2, bytes = bytes + $3, updated = $4 \
             where id = $1 and status = 'pending' and (expires is null or expires > $4) \
             returning coalesce(inbox, agent), run, tool",
            parameters![id, result.as_str(), to_i64(result.len()), now],
        )
        .await?;
    let Some(mut row) = late else { return Ok(None) };
    // A call that store version 1 wrote names no inbox, so its agent's inbox gets the result.
    let (inbox, run, tool) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let body = result_entry(id, &run, &tool, result)?;
    let entry = NewInboxEntry { agent: inbox, kind: TOOL_RESULT.to_owned(), body, created: now };
    let ordinal = push_inbox(sql, entry).await?;
    sql.execute("update calls set delivered = $2 where id = $1", parameters![id, ordinal]).await?;
    Ok(Some(ResultDelivery::Inbox { ordinal }))
}

/// Returns the body of the entry that carries a late result.
fn result_entry(id: &str, run: &str, tool: &str, result: &Json) -> Result<Json, StoreError> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        call_id: &'a str,
        run_id: &'a str,
        tool_name: &'a str,
        result: &'a RawValue,
    }
    // `RawValue` keeps numbers and the order of keys as the sender wrote them.
    let result = serde_json::from_str(result.as_str()).map_err(|source| StoreError::Json { source })?;
    Json::of(&Body { call_id: id, run_id: run, tool_name: tool, result })
}

pub(crate) async fn cancel_external_call(
    sql: &mut dyn Sql,
    id: String,
    now: i64,
) -> Result<bool, StoreError> {
    let changed = sql
        .execute(
            "update calls set status = 'cancelled', updated = $2 where id = $1 and status in ('waiting', 'pending')",
            parameters![&id, now],
        )
        .await?;
    if changed == 1 {
        return Ok(true);
    }
    external_call(sql, id).await.map(|_| false)
}

pub(crate) async fn expire_external_calls(
    sql: &mut dyn Sql,
    now: i64,
    at_most: u32,
) -> Result<Vec<String>, StoreError> {
    let limit = i64::from(at_most.min(MAX_SWEPT_ROWS));
    // The outer condition repeats the status: PostgreSQL examines it again after it has waited for a row's lock.
    let rows = sql
        .rows(
            "update calls set status = 'expired', updated = $1 where id in ( \
                 select id from calls where status in ('waiting', 'pending') and expires <= $1 order by id limit $2 \
             ) and status in ('waiting', 'pending') returning id",
            parameters![now, limit],
        )
        .await?;
    rows.into_iter().map(|mut row| row.text(0)).collect()
}

pub(crate) async fn external_call(sql: &mut dyn Sql, id: String) -> Result<StoredExternalCall, StoreError> {
    let row =
        sql.row(concat!("select ", columns!(), " from calls c where c.id = $1"), parameters![&id]).await?;
    let mut row = row.ok_or_else(|| StoreError::not_found(Entity::Call, &id))?;
    read_call(&mut row)
}

/// The newest calls `c` after a cursor that match a filter, with the number of rows as the last parameter.
macro_rules! listed {
    () => {
        " where (c.created, c.id) < ($1, $2) \
         and (cast($3 as text) is null or c.run = $3) and (cast($4 as text) is null or c.agent = $4) \
         and (cast($5 as text) is null or c.status = $5) order by c.created desc, c.id desc limit $6"
    };
}

/// A column of the newest message that shows a call `c`.
macro_rules! of_message {
    ($column:literal) => {
        concat!(
            "(select shown.",
            $column,
            " from space_messages shown join spaces s on s.id = shown.space \
             where shown.call = c.id and s.removed = 0 order by shown.created desc, shown.id desc limit 1)"
        )
    };
}

/// The statement that lists calls, the newest first.
pub(super) const LIST: &str = concat!("select ", columns!(), ", c.bytes from calls c", listed!());

/// The bytes of the rows of [`LIST`].
pub(super) const SIZES: &str = concat!("select c.bytes from calls c", listed!());

/// The statement that lists calls with their newest messages. A row has the bytes of both.
pub(super) const LIST_SHOWN: &str = concat!(
    "select ",
    columns!(),
    ", c.bytes + coalesce(m.bytes, 0), m.space, m.metadata from calls c left join space_messages m on m.id = ",
    // One message for each call, so that a call that two messages show is listed once.
    of_message!("id"),
    listed!()
);

/// The bytes of the rows of [`LIST_SHOWN`].
pub(super) const SHOWN_SIZES: &str =
    concat!("select c.bytes + coalesce(", of_message!("bytes"), ", 0) from calls c", listed!());

pub(crate) async fn external_calls(
    sql: &mut dyn Sql,
    filter: ExternalCallFilter,
    request: PageRequest<AgeCursor>,
) -> Result<Page<StoredExternalCall, AgeCursor>, StoreError> {
    list(sql, [SIZES, LIST], filter, request, |_, call| Ok(call)).await
}

pub(crate) async fn shown_calls(
    sql: &mut dyn Sql,
    filter: ExternalCallFilter,
    request: PageRequest<AgeCursor>,
) -> Result<Page<CallWithMessage, AgeCursor>, StoreError> {
    list(sql, [SHOWN_SIZES, LIST_SHOWN], filter, request, |row, call| {
        let (space, metadata) = (row.optional_text(NEXT_COLUMN + 1)?, row.optional_text(NEXT_COLUMN + 2)?);
        Ok(CallWithMessage { call, space, metadata: metadata.map(Json::stored) })
    })
    .await
}

/// Reads a page of calls. The sizes are read first, so that payloads beyond the page are never read.
async fn list<T>(
    sql: &mut dyn Sql,
    [sizes, statement]: [&'static str; 2],
    filter: ExternalCallFilter,
    request: PageRequest<AgeCursor>,
    complete: impl Fn(&mut SqlRow, StoredExternalCall) -> Result<T, StoreError>,
) -> Result<Page<T, AgeCursor>, StoreError> {
    let limit = request.rows();
    let (created, id) = request.after.unwrap_or(NEWEST);
    let ExternalCallFilter { run, agent, status } = filter;
    let parameters = |limit: i64| {
        let status = status.map(ExternalCallStatus::as_str);
        parameters![created, &id, run.clone(), agent.clone(), status, limit]
    };
    let fitting = fitting_rows(sql, sizes, parameters(limit)).await?;
    let rows = sql.rows(statement, parameters(fitting)).await?;
    page(rows, limit, |row| {
        let call = read_call(row)?;
        let cursor = (call.created, call.id.clone());
        let bytes = row.int(NEXT_COLUMN)?;
        complete(row, call).map(|item| PageItem { item, cursor, payload_bytes: bytes })
    })
}

fn read_call(row: &mut SqlRow) -> Result<StoredExternalCall, StoreError> {
    Ok(StoredExternalCall {
        id: row.text(0)?,
        run: row.text(1)?,
        agent: row.text(2)?,
        tool: row.text(3)?,
        arguments: Json::stored(row.text(4)?),
        status: row.parsed(5, ExternalCallStatus::parse)?,
        result: row.optional_text(6)?.map(Json::stored),
        created: row.int(7)?,
        updated: row.int(8)?,
        expires: row.optional_int(9)?,
    })
}
