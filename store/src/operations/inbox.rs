//! Inboxes: sending, reading and consuming entries.

use super::pages::{PageItem, page};
use crate::{
    error::StoreError,
    json::Json,
    limits::{
        MAX_PAGE_BYTES, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, MAX_UNREAD_ENTRIES, check_count, check_name,
        check_size, to_i64,
    },
    model::{InboxEntry, InboxSpan, NewInboxEntry, Page, PageRequest},
    sql::{Sql, parameters},
};

pub(crate) async fn push_inbox(sql: &mut dyn Sql, entry: NewInboxEntry) -> Result<i64, StoreError> {
    check_name("the agent", &entry.agent)?;
    check_name("the kind of the entry", &entry.kind)?;
    // The names in the entry of a late result need the additional bytes.
    check_size("the entry of the inbox", entry.body.len(), MAX_PAYLOAD_BYTES + MAX_TEXT_BYTES)?;
    // The agent's row gives the ordinal, and its lock serializes senders.
    let row = sql
        .row(
            "insert into inboxes (agent, last, waiting) values ($1, 1, 1) on conflict (agent) do update \
             set last = inboxes.last + 1, waiting = inboxes.waiting + 1 returning last, waiting",
            parameters![&entry.agent],
        )
        .await?;
    let (ordinal, waiting) =
        row.map_or(Ok((1, 1)), |mut row| Ok::<_, StoreError>((row.int(0)?, row.int(1)?)))?;
    // An error rolls the counters back with the transaction.
    check_count("the entries of the inbox", waiting, MAX_UNREAD_ENTRIES)?;
    sql.execute(
        "insert into inbox_entries (agent, ordinal, kind, bytes, body, created) values ($1, $2, $3, $4, $5, $6)",
        parameters![
            entry.agent,
            ordinal,
            entry.kind,
            to_i64(entry.body.len()),
            entry.body.into_text(),
            entry.created
        ],
    )
    .await?;
    Ok(ordinal)
}

/// Whether an inbox is full. The lock of its row keeps the answer valid until the transaction ends.
pub(super) async fn is_full(sql: &mut dyn Sql, agent: &str) -> Result<bool, StoreError> {
    let row = sql
        .row("update inboxes set last = last where agent = $1 returning waiting", parameters![agent])
        .await?;
    Ok(row.map_or(Ok(0), |mut row| row.int(0))? >= MAX_UNREAD_ENTRIES)
}

pub(crate) async fn inbox(
    sql: &mut dyn Sql,
    agent: String,
    request: PageRequest<i64>,
) -> Result<Page<InboxEntry, i64>, StoreError> {
    let limit = request.rows();
    let rows = sql
        .rows(
            "select e.ordinal, kind, body, created, consumed, bytes from inbox_entries e join ( \
                 select ordinal, cast(sum(bytes) over (order by ordinal) as bigint) - bytes as before from ( \
                     select ordinal, bytes from inbox_entries where agent = $1 and ordinal > $2 and consumed is null \
                     order by ordinal limit $3 \
                 ) as candidates \
             ) as sized on sized.ordinal = e.ordinal where e.agent = $1 and sized.before < $4 order by e.ordinal",
            parameters![agent, request.after.unwrap_or(0), limit, MAX_PAGE_BYTES],
        )
        .await?;
    page(rows, limit, |row| {
        let ordinal = row.int(0)?;
        let entry = InboxEntry {
            ordinal,
            kind: row.text(1)?,
            body: Json::stored(row.text(2)?),
            created: row.int(3)?,
            consumed: row.optional_int(4)?,
        };
        Ok(PageItem { item: entry, cursor: ordinal, payload_bytes: row.int(5)? })
    })
}

pub(crate) async fn consume_inbox(
    sql: &mut dyn Sql,
    agent: String,
    up_to: i64,
    now: i64,
) -> Result<u64, StoreError> {
    consume_up_to(sql, &agent, up_to, now).await
}

pub(super) async fn consume_up_to(
    sql: &mut dyn Sql,
    agent: &str,
    up_to: i64,
    now: i64,
) -> Result<u64, StoreError> {
    // Take the lock before counting the entries, in the same order as a sender.
    sql.execute("update inboxes set last = last where agent = $1", parameters![agent]).await?;
    let consumed = sql
        .execute(
            "update inbox_entries set consumed = $3 where agent = $1 and ordinal <= $2 and consumed is null",
            parameters![agent, up_to, now],
        )
        .await?;
    sql.execute(
        "update inboxes set waiting = waiting - $2 where agent = $1",
        parameters![agent, i64::try_from(consumed).unwrap_or(i64::MAX)],
    )
    .await?;
    Ok(consumed)
}

/// Consumes exactly these entries, or fails.
pub(super) async fn consume_span(sql: &mut dyn Sql, span: InboxSpan, now: i64) -> Result<(), StoreError> {
    // Lock the row before the entries, in the same order as a sender.
    let InboxSpan { agent, first, last } = span;
    sql.execute("update inboxes set last = last where agent = $1", parameters![&agent]).await?;
    let consumed = sql
        .execute(
            "update inbox_entries set consumed = $4 where agent = $1 and ordinal between $2 and $3 \
             and consumed is null",
            parameters![&agent, first, last, now],
        )
        .await?;
    let consumed = i64::try_from(consumed).unwrap_or(i64::MAX);
    // Ordinals have no gaps, so the number of rows proves that no entry was consumed before.
    if first > last || last.checked_sub(first).and_then(|count| count.checked_add(1)) != Some(consumed) {
        return Err(StoreError::InboxConsumed { agent, first, last });
    }
    sql.execute("update inboxes set waiting = waiting - $2 where agent = $1", parameters![agent, consumed])
        .await?;
    Ok(())
}

/// The statement that finds inboxes with entries.
pub(super) const WITH_ENTRIES: &str = "select agent from inboxes where waiting > 0 and agent >= $1 and agent < $2 \
     and agent > $3 order by agent limit $4";

pub(crate) async fn inboxes_with_entries(
    sql: &mut dyn Sql,
    prefix: String,
    request: PageRequest<String>,
) -> Result<Page<String, String>, StoreError> {
    let limit = request.rows();
    // The largest character ends the range of names with the prefix.
    let end = format!("{prefix}{}", char::MAX);
    let rows =
        sql.rows(WITH_ENTRIES, parameters![prefix, end, request.after.unwrap_or_default(), limit]).await?;
    page(rows, limit, |row| {
        let agent = row.text(0)?;
        Ok(PageItem { item: agent.clone(), cursor: agent, payload_bytes: 0 })
    })
}
