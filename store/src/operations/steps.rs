//! Steps: the transaction that commits one, and the listings of steps and messages.

use super::{
    inbox::consume_up_to,
    leases::why_refused,
    pages::{PageItem, labels_text, page},
    runs::{check_payloads, ensure_run, insert_messages},
    started_calls::add_finished,
};
use crate::{
    error::StoreError,
    json::Json,
    limits::{
        MAX_MESSAGES, MAX_PAGE_BYTES, MAX_STEPS, check_count, check_labels, check_name, check_text, to_i64,
    },
    model::{CommitStep, Page, PageRequest, Step, StepRecord, StoredMessage},
    sql::{Sql, parameters},
};

pub(crate) async fn commit_step(sql: &mut dyn Sql, commit: CommitStep) -> Result<i64, StoreError> {
    let CommitStep { guard, version, state, status, labels, messages, finished_calls, step, consumed_inbox } =
        commit;
    check_name("the kind of the step", &step.kind)?;
    check_text("the summary of the step", &step.summary)?;
    check_labels(&labels)?;
    check_payloads(&state, &messages)?;
    let (added, added_calls) = (to_i64(messages.len()), to_i64(finished_calls.len()));
    // One statement checks the version and the lease, and advances the run if it is open. An owner whose
    // lease has expired therefore writes nothing. A run that ends releases its lease.
    let row = sql
        .row(
            "update runs set version = version + 1, updated = $4, status = $5, ended = $6, labels = $7, \
             messages = messages + $8, steps = steps + 1, started_calls = started_calls + $9, \
             lease_owner = case when cast($6 as bigint) = 1 then null else lease_owner end, \
             lease_until = case when cast($6 as bigint) = 1 then null else lease_until end \
             where id = $1 and version = $2 and lease_owner = $3 and lease_until > $4 and ended = 0 \
             returning messages, steps, started_calls",
            parameters![
                &guard.run,
                version,
                &guard.owner,
                guard.now,
                status.as_str(),
                status.has_ended(),
                labels_text(&labels)?,
                added,
                added_calls
            ],
        )
        .await?;
    let Some(mut row) = row else { return Err(why_refused(sql, guard, Some(version)).await?) };
    let (message_count, step_count, call_count) = (row.int(0)?, row.int(1)?, row.int(2)?);
    // An exceeded bound rolls the advance back with the transaction.
    check_count("the messages of the run", message_count, MAX_MESSAGES)?;
    check_count("the steps of the run", step_count, MAX_STEPS)?;
    sql.execute(
        "update run_states set state = $2 where run = $1",
        parameters![&guard.run, state.into_text()],
    )
    .await?;
    // The count was raised above under the row's lock, so these ordinals belong to this step only.
    insert_messages(sql, &guard.run, message_count - added, messages).await?;
    sql.execute(
        "insert into steps (run, ordinal, kind, begun, finished, summary) values ($1, $2, $3, $4, $5, $6)",
        parameters![&guard.run, step_count, step.kind, step.started_at, step.finished, step.summary],
    )
    .await?;
    if !finished_calls.is_empty() {
        add_finished(sql, &guard.run, call_count, finished_calls).await?;
    }
    // The entries are consumed with the step, so a crash neither loses nor repeats one.
    if let Some((inbox, up_to)) = consumed_inbox {
        consume_up_to(sql, &inbox, up_to, guard.now).await?;
    }
    Ok(version + 1)
}

pub(crate) async fn messages(
    sql: &mut dyn Sql,
    run: String,
    request: PageRequest<i64>,
) -> Result<Page<StoredMessage, i64>, StoreError> {
    ensure_run(sql, &run).await?;
    let limit = request.rows();
    // The inner selections read only sizes, so that payloads beyond the page are never read.
    let rows = sql
        .rows(
            "select m.ordinal, m.body, m.bytes from messages m join ( \
                 select ordinal, cast(sum(bytes) over (order by ordinal) as bigint) - bytes as before from ( \
                     select ordinal, bytes from messages where run = $1 and ordinal > $2 order by ordinal limit $3 \
                 ) as candidates \
             ) as sized on sized.ordinal = m.ordinal where m.run = $1 and sized.before < $4 order by m.ordinal",
            parameters![run, request.after.unwrap_or(0), limit, MAX_PAGE_BYTES],
        )
        .await?;
    page(rows, limit, |row| {
        let ordinal = row.int(0)?;
        Ok(PageItem {
            item: StoredMessage { ordinal, body: Json::stored(row.text(1)?) },
            cursor: ordinal,
            payload_bytes: row.int(2)?,
        })
    })
}

pub(crate) async fn steps(
    sql: &mut dyn Sql,
    run: String,
    request: PageRequest<i64>,
) -> Result<Page<Step, i64>, StoreError> {
    ensure_run(sql, &run).await?;
    let limit = request.rows();
    let rows = sql
        .rows(
            "select ordinal, kind, begun, finished, summary from steps where run = $1 and ordinal > $2 \
             order by ordinal limit $3",
            parameters![run, request.after.unwrap_or(0), limit],
        )
        .await?;
    page(rows, limit, |row| {
        let ordinal = row.int(0)?;
        let record = StepRecord {
            kind: row.text(1)?,
            started_at: row.int(2)?,
            finished: row.int(3)?,
            summary: row.text(4)?,
        };
        Ok(PageItem { item: Step { ordinal, record }, cursor: ordinal, payload_bytes: 0 })
    })
}
