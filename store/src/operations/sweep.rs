//! Removes ended runs and consumed inbox entries. Also probes the database.

use crate::{
    error::StoreError,
    limits::MAX_SWEEP,
    sql::{Sql, parameters},
};

/// The runs to remove. A run's own inbox has the name of the run.
const ENDED_RUNS: &str = "select id from runs where ended = 1 and updated < $1 and not exists ( \
     select 1 from calls where run = runs.id and status in ('waiting', 'pending') \
 ) order by updated, id limit $2";

pub(crate) async fn remove_ended_before(
    sql: &mut dyn Sql,
    time: i64,
    at_most: u32,
) -> Result<u64, StoreError> {
    let limit = i64::from(at_most.min(MAX_SWEEP));
    sql.execute(
        "delete from inbox_entries where (agent, ordinal) in ( \
             select agent, ordinal from inbox_entries where consumed < $1 order by consumed limit $2 \
         )",
        parameters![time, limit],
    )
    .await?;
    let mut removed = 0;
    for mut row in sql.rows(ENDED_RUNS, parameters![time, limit]).await? {
        let id = row.text(0)?;
        // The run first, and only as it was listed: in PostgreSQL another transaction may have reopened it since, and
        // its inbox must then stay.
        let deleted = sql
            .execute(
                "delete from runs where id = $1 and ended = 1 and updated < $2 and not exists ( \
                     select 1 from calls where run = runs.id and status in ('waiting', 'pending') \
                 )",
                parameters![&id, time],
            )
            .await?;
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
