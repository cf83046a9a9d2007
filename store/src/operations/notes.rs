//! Notes of agents, and the plans among them that become due.

use serde_json::value::RawValue;

use super::{
    events::lock_log,
    inbox::{is_full, push_inbox},
    pages::{PageItem, count, page},
};
use crate::{
    error::StoreError,
    json::Json,
    limits::{
        MAX_NOTE_BYTES, MAX_NOTES, MAX_PAGE_BYTES, MAX_SWEPT_ROWS, MIN_PLAN_INTERVAL_MS, check_count,
        check_name, check_size, to_i64,
    },
    model::{DuePlan, NewInboxEntry, NewNote, Note, NoteKind, PLAN_ENTRY, Page, PageRequest},
    sql::{Sql, parameters},
    store::AgeCursor,
};

pub(crate) async fn set_notes(
    sql: &mut dyn Sql,
    agent: String,
    kind: NoteKind,
    notes: Vec<NewNote>,
    now: i64,
) -> Result<(), StoreError> {
    check_name("the agent", &agent)?;
    check_count("the notes", to_i64(notes.len()), MAX_NOTES)?;
    notes.iter().try_for_each(|note| check_note(kind, note))?;
    lock_log(sql).await?;
    for note in notes {
        sql.execute(
            "insert into notes (agent, kind, id, due, every, created, updated, bytes, body) \
             values ($1, $2, $3, $4, $5, $6, $6, $7, $8) on conflict (agent, kind, id) do update \
             set due = excluded.due, every = excluded.every, updated = excluded.updated, bytes = excluded.bytes, \
             body = excluded.body",
            parameters![
                &agent,
                kind.as_str(),
                note.id,
                note.due,
                note.every,
                now,
                to_i64(note.body.len()),
                note.body.into_text()
            ],
        )
        .await?;
    }
    // The notes are counted after the writes, because a replaced note does not add to their number.
    let parameters = parameters![agent, kind.as_str()];
    let count = count(sql, "select count(*) from notes where agent = $1 and kind = $2", parameters).await?;
    check_count("the notes of the agent", count, MAX_NOTES)
}

fn check_note(kind: NoteKind, note: &NewNote) -> Result<(), StoreError> {
    check_name("the id of the note", &note.id)?;
    check_size("the note", note.body.len(), MAX_NOTE_BYTES)?;
    if kind != NoteKind::Plan && (note.due.is_some() || note.every.is_some()) {
        let expected = "absent: only a plan is due";
        return Err(StoreError::Invalid { field: "the due time of the note", expected });
    }
    if note.every.is_some_and(|every| every < MIN_PLAN_INTERVAL_MS) {
        let expected = "1,000 milliseconds or more";
        return Err(StoreError::Invalid { field: "the interval of the plan", expected });
    }
    Ok(())
}

pub(crate) async fn remove_notes(
    sql: &mut dyn Sql,
    agent: String,
    kind: NoteKind,
    ids: Vec<String>,
) -> Result<u64, StoreError> {
    check_count("the notes", to_i64(ids.len()), MAX_NOTES)?;
    lock_log(sql).await?;
    let mut removed = 0;
    for id in ids {
        removed += sql
            .execute(
                "delete from notes where agent = $1 and kind = $2 and id = $3",
                parameters![&agent, kind.as_str(), id],
            )
            .await?;
    }
    Ok(removed)
}

pub(crate) async fn notes(
    sql: &mut dyn Sql,
    agent: String,
    kind: NoteKind,
    request: PageRequest<AgeCursor>,
) -> Result<Page<Note, AgeCursor>, StoreError> {
    let limit = request.rows();
    let (created, id) = request.after.unwrap_or((i64::MIN, String::new()));
    let rows = sql
        .rows(
            "select n.id, n.body, n.due, n.every, n.created, n.updated, n.bytes, n.kind from notes n join ( \
                 select id, cast(sum(bytes) over (order by created, id) as bigint) - bytes as before from ( \
                     select id, created, bytes from notes where agent = $1 and kind = $2 \
                     and (created, id) > ($3, $4) order by created, id limit $5 \
                 ) as candidates \
             ) as sized on sized.id = n.id where n.agent = $1 and n.kind = $2 and sized.before < $6 \
             order by n.created, n.id",
            parameters![agent, kind.as_str(), created, id, limit, MAX_PAGE_BYTES],
        )
        .await?;
    page(rows, limit, |row| {
        let note = Note {
            id: row.text(0)?,
            kind: row.parsed(7, NoteKind::parse)?,
            body: Json::stored(row.text(1)?),
            due: row.optional_int(2)?,
            every: row.optional_int(3)?,
            created: row.int(4)?,
            updated: row.int(5)?,
        };
        let cursor = (note.created, note.id.clone());
        Ok(PageItem { item: note, cursor, payload_bytes: row.int(6)? })
    })
}

/// The statement that finds plans that are due.
pub(super) const DUE: &str = "select agent, id, due, every, body from notes where due is not null and due <= $1 \
     order by due, agent, id limit $2";

pub(crate) async fn take_due_plans(
    sql: &mut dyn Sql,
    now: i64,
    at_most: u32,
) -> Result<Vec<DuePlan>, StoreError> {
    let limit = i64::from(at_most.min(MAX_SWEPT_ROWS));
    // Two processes take the lock one after the other, so the second sees the due times that the first has set.
    lock_log(sql).await?;
    let rows = sql.rows(DUE, parameters![now, limit]).await?;
    let mut plans = Vec::with_capacity(rows.len());
    for mut row in rows {
        let (agent, id, due) = (row.text(0)?, row.text(1)?, row.int(2)?);
        let next = row.optional_int(3)?.map(|every| next_due(due, every, now));
        let body = plan_entry(&id, due, &row.text(4)?)?;
        sql.execute(
            "update notes set due = $4 where agent = $1 and kind = $2 and id = $3",
            parameters![&agent, NoteKind::Plan.as_str(), &id, next],
        )
        .await?;
        // A full inbox must not fail the transaction, which would delay the plans of all other agents.
        let ordinal = if is_full(sql, &agent).await? {
            None
        } else {
            let kind = PLAN_ENTRY.to_owned();
            let entry = NewInboxEntry { agent: agent.clone(), kind, body, created: now };
            Some(push_inbox(sql, entry).await?)
        };
        plans.push(DuePlan { agent, id, due, next, ordinal });
    }
    Ok(plans)
}

/// The first due time after now. Missed times are skipped.
fn next_due(due: i64, every: i64, now: i64) -> i64 {
    // An interval of 0 in a damaged row would divide by zero.
    let every = every.max(MIN_PLAN_INTERVAL_MS);
    let passed = now.saturating_sub(due).max(0) / every;
    due.saturating_add(every.saturating_mul(passed.saturating_add(1)))
}

/// Returns the body of the inbox entry that is made from a plan.
fn plan_entry(id: &str, due: i64, plan: &str) -> Result<Json, StoreError> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        plan_id: &'a str,
        due: i64,
        plan: &'a RawValue,
    }
    let plan = serde_json::from_str(plan).map_err(|source| StoreError::Json { source })?;
    Json::of(&Body { plan_id: id, due, plan })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_have_passed_are_left_out() {
        for (due, every, now, expected) in [
            (1_000, 5_000, 1_000, 6_000),
            (1_000, 5_000, 5_999, 6_000),
            (1_000, 5_000, 6_000, 11_000),
            (1_000, 5_000, 60_999, 61_000),
            (i64::MIN, 1_000, i64::MAX, i64::MAX),
        ] {
            let next = next_due(due, every, now);
            assert!(next == expected || (due == i64::MIN && next > due), "{due} {every} {now}: {next}");
        }
    }
}
