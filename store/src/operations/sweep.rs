//! Removes ended runs and consumed inbox entries. Also probes the database.

use crate::{
    error::StoreError,
    limits::MAX_SWEPT_ROWS,
    sql::{Sql, parameters},
};

/// The condition of a run to remove: it has ended before the time `$1`, and has no open call.
macro_rules! is_removable {
    () => {
        "ended = 1 and updated < $1 and not exists ( \
             select 1 from calls where run = runs.id and status in ('waiting', 'pending') \
         )"
    };
}

/// The runs to remove. A run's own inbox has the name of the run.
const REMOVABLE_RUNS: &str =
    concat!("select id from runs where ", is_removable!(), " order by updated, id limit $2");

/// Removes a run if it is still removable.
const REMOVE_RUN: &str = concat!("delete from runs where id = $2 and ", is_removable!());

pub(crate) async fn remove_ended_before(
    sql: &mut dyn Sql,
    time: i64,
    at_most: u32,
) -> Result<u64, StoreError> {
    let limit = i64::from(at_most.min(MAX_SWEPT_ROWS));
    sql.execute(
        "delete from inbox_entries where (agent, ordinal) in ( \
             select agent, ordinal from inbox_entries where consumed < $1 order by consumed limit $2 \
         )",
        parameters![time, limit],
    )
    .await?;
    let mut removed = 0;
    for mut row in sql.rows(REMOVABLE_RUNS, parameters![time, limit]).await? {
        let id = row.text(0)?;
        // Remove the run first, and only if it is still removable: in PostgreSQL another transaction may have
        // reopened it since, and its inbox must then stay.
        let deleted = sql.execute(REMOVE_RUN, parameters![time, &id]).await?;
        if deleted == 0 {
            continue;
        }
        sql.execute("delete from inbox_entries where agent = $1", parameters![&id]).await?;
        sql.execute("delete from inboxes where agent = $1", parameters![&id]).await?;
        removed += deleted;
    }
    Ok(removed)
}

pub(crate) async fn ping(sql: &mut dyn Sql) -> Result<(), StoreError> {
    sql.row("select id from runs limit 1", parameters![]).await.map(|_| ())
}
