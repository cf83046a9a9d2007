//! Removal of what is over, and the probe of the database.

use crate::{
    error::StoreError,
    limits::MAX_SWEEP,
    sql::{Sql, parameters},
};

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
    sql.execute(
        "delete from runs where id in ( \
             select id from runs where ended = 1 and updated < $1 and not exists ( \
                 select 1 from calls where run = runs.id and status in ('waiting', 'pending') \
             ) order by updated limit $2 \
         )",
        parameters![time, limit],
    )
    .await
}

pub(crate) async fn ping(sql: &mut dyn Sql) -> Result<(), StoreError> {
    sql.row("select id from runs limit 1", parameters![]).await.map(|_| ())
}
