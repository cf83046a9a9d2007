//! Runs: adding, reading and listing them.

use super::{
    inbox::consume_span,
    pages::{NEWEST, PageItem, labels_text, page, parse_labels},
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_COMMIT_BYTES, MAX_COMMIT_MESSAGES, MAX_PAYLOAD_BYTES, check_count, check_labels, check_name,
        check_size, check_text, to_i64,
    },
    model::{NewRun, Page, PageRequest, Run, RunFilter, RunStatus, RunSummary},
    sql::{Sql, SqlRow, parameters},
    store::AgeCursor,
};

pub(crate) async fn create_run(sql: &mut dyn Sql, run: NewRun) -> Result<(), StoreError> {
    check_name("the id of the run", &run.id)?;
    check_name("the agent", &run.agent)?;
    check_text("the workspace", &run.workspace)?;
    check_labels(&run.labels)?;
    check_payloads(&run.state, &run.messages)?;
    if let Some((owner, _)) = &run.lease {
        check_name("the owner of the lease", owner)?;
    }
    let labels = labels_text(&run.labels)?;
    let (owner, until) = run.lease.unzip();
    let inserted = sql
        .execute(
            "insert into runs (id, agent, created, updated, status, ended, version, messages, steps, started_calls, labels, \
             lease_owner, lease_until, workspace) values ($1, $2, $3, $3, $4, 0, 1, $5, 0, 0, $6, $7, $8, $9) \
             on conflict (id) do nothing",
            parameters![
                &run.id,
                run.agent,
                run.created,
                RunStatus::Running.as_str(),
                to_i64(run.messages.len()),
                labels,
                owner,
                until,
                run.workspace
            ],
        )
        .await?;
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Run, &run.id));
    }
    sql.execute(
        "insert into run_states (run, state) values ($1, $2)",
        parameters![&run.id, run.state.into_text()],
    )
    .await?;
    insert_messages(sql, &run.id, 0, run.messages).await?;
    // The entries are consumed in the transaction of the run, so a crash leaves them to the next run.
    match run.consumed_inbox {
        Some(span) => consume_span(sql, span, run.created).await,
        None => Ok(()),
    }
}

/// Checks the payloads of one transaction.
pub(super) fn check_payloads(state: &Json, messages: &[Json]) -> Result<(), StoreError> {
    check_size("the state of the run", state.len(), MAX_PAYLOAD_BYTES)?;
    check_count("the messages of a step", to_i64(messages.len()), to_i64(MAX_COMMIT_MESSAGES))?;
    let mut bytes = state.len();
    for message in messages {
        check_size("a message", message.len(), MAX_PAYLOAD_BYTES)?;
        bytes += message.len();
    }
    check_size("a step with its messages", bytes, MAX_COMMIT_BYTES)
}

/// Adds messages after the one with this ordinal.
pub(super) async fn insert_messages(
    sql: &mut dyn Sql,
    run: &str,
    last: i64,
    messages: Vec<Json>,
) -> Result<(), StoreError> {
    for (ordinal, message) in (last + 1..).zip(messages) {
        sql.execute(
            "insert into messages (run, ordinal, bytes, body) values ($1, $2, $3, $4)",
            parameters![run, ordinal, to_i64(message.len()), message.into_text()],
        )
        .await?;
    }
    Ok(())
}

pub(crate) async fn run(sql: &mut dyn Sql, id: String) -> Result<Run, StoreError> {
    let row = sql
        .row(
            "select id, agent, created, updated, status, version, messages, steps, labels, lease_owner, lease_until, \
             cancel_requested, workspace, state from runs join run_states on run = id where id = $1",
            parameters![&id],
        )
        .await?;
    let mut row = row.ok_or_else(|| StoreError::not_found(Entity::Run, &id))?;
    Ok(Run { summary: read_summary(&mut row)?, state: Json::stored(row.text(13)?) })
}

/// The statement that lists runs. The database evaluates the condition with an index.
macro_rules! select_runs {
    ($condition:literal) => {
        concat!(
            "select id, agent, created, updated, status, version, messages, steps, labels, lease_owner, lease_until, \
             cancel_requested, workspace from runs where ",
            $condition,
            // PostgreSQL cannot tell the type of a parameter that is only compared with null, hence the
            // casts.
            " and (created, id) < ($1, $2) and (cast($3 as text) is null or agent = $3) \
             and (cast($4 as text) is null or status = $4) \
             and (cast($5 as bigint) is null or (ended = 0 and (lease_owner is null or lease_until <= $5))) \
             and (cast($7 as text) is null or workspace = $7) \
             and (cast($8 as bigint) is null or ended = $8) order by created desc, id desc limit $6"
        )
    };
}

pub(crate) async fn runs(
    sql: &mut dyn Sql,
    filter: RunFilter,
    request: PageRequest<AgeCursor>,
) -> Result<Page<RunSummary, AgeCursor>, StoreError> {
    let limit = request.rows();
    let RunFilter { agent, workspace, status, is_open, resumable_at } = filter;
    let (created, id) = request.after.unwrap_or(NEWEST);
    // Each statement begins with a condition that an index serves, and the most selective filter chooses it. The
    // other filters are checked for each of its rows.
    let statement = match (&workspace, &agent, is_open, resumable_at) {
        (Some(_), ..) => select_runs!("workspace = $7"),
        (None, Some(_), Some(_), _) => select_runs!("agent = $3 and ended = $8"),
        (None, Some(_), None, _) => select_runs!("agent = $3"),
        (None, None, Some(_), None) => select_runs!("ended = $8"),
        (None, None, _, Some(_)) => select_runs!("ended = 0"),
        (None, None, None, None) => select_runs!("true"),
    };
    let status = status.map(RunStatus::as_str);
    let has_ended = is_open.map(|is_open| !is_open);
    let parameters = parameters![created, id, agent, status, resumable_at, limit, workspace, has_ended];
    let rows = sql.rows(statement, parameters).await?;
    page(rows, limit, |row| {
        let run = read_summary(row)?;
        let cursor = (run.created, run.id.clone());
        Ok(PageItem { item: run, cursor, payload_bytes: 0 })
    })
}

fn read_summary(row: &mut SqlRow) -> Result<RunSummary, StoreError> {
    Ok(RunSummary {
        id: row.text(0)?,
        agent: row.text(1)?,
        created: row.int(2)?,
        updated: row.int(3)?,
        status: row.parsed(4, RunStatus::parse)?,
        version: row.int(5)?,
        messages: row.int(6)?,
        steps: row.int(7)?,
        labels: row.parsed(8, parse_labels)?,
        lease: row.optional_text(9)?.zip(row.optional_int(10)?),
        cancel_requested_at: row.optional_int(11)?,
        workspace: row.text(12)?,
    })
}

pub(crate) async fn request_cancel(sql: &mut dyn Sql, run: String, now: i64) -> Result<(), StoreError> {
    // No lease is needed: the process that drives the run reads the request when it renews its lease.
    let changed = sql
        .execute(
            "update runs set cancel_requested = coalesce(cancel_requested, $2) where id = $1 and ended = 0",
            parameters![&run, now],
        )
        .await?;
    if changed == 1 {
        return Ok(());
    }
    ensure_run(sql, &run).await?;
    Err(StoreError::Ended { run })
}

/// Fails if there is no such run.
pub(super) async fn ensure_run(sql: &mut dyn Sql, run: &str) -> Result<(), StoreError> {
    match sql.row("select 1 from runs where id = $1", parameters![run]).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::not_found(Entity::Run, run)),
    }
}
