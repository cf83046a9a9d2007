//! Removal of what is over, and the probe of the database.

use crate::{
    error::StoreError,
    limits::MAX_SWEEP,
    sql::{Sql, parameters},
};

/// Selects the runs to remove. A run's own inbox has the name of the run.
macro_rules! ended_runs {
    () => {
        "select id from runs where ended = 1 and updated < $1 and not exists ( \
             select 1 from calls where run = runs.id and status in ('waiting', 'pending') \
         ) order by updated, id limit $2"
    };
}

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
    // The same runs in each statement: all are in one transaction, and a run that has ended is not changed.
    for delete in [
        concat!("delete from inbox_entries where agent in (", ended_runs!(), ")"),
        concat!("delete from inboxes where agent in (", ended_runs!(), ")"),
    ] {
        sql.execute(delete, parameters![time, limit]).await?;
    }
    sql.execute(concat!("delete from runs where id in (", ended_runs!(), ")"), parameters![time, limit]).await
}

pub(crate) async fn ping(sql: &mut dyn Sql) -> Result<(), StoreError> {
    sql.row("select id from runs limit 1", parameters![]).await.map(|_| ())
}
