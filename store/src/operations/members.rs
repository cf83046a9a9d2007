//! Members of spaces.

use super::{
    events::lock_log,
    pages::{PageItem, count, page},
    spaces::ensure_space,
};
use crate::{
    error::{Entity, StoreError},
    limits::{MAX_MEMBERS, check_count},
    model::{Member, Page, PageRequest, ParticipantKind},
    sql::{Sql, parameters},
    store::AgeCursor,
};

pub(crate) async fn add_member(
    sql: &mut dyn Sql,
    space: String,
    participant: String,
    joined: i64,
) -> Result<bool, StoreError> {
    // The lock keeps a concurrent transaction from removing the space, and two additions from exceeding the
    // limit together.
    lock_log(sql).await?;
    ensure_space(sql, &space).await?;
    if sql.row("select 1 from participants where id = $1", parameters![&participant]).await?.is_none() {
        return Err(StoreError::not_found(Entity::Participant, &participant));
    }
    let inserted = sql
        .execute(
            "insert into space_members (space, participant, joined) values ($1, $2, $3) \
             on conflict (space, participant) do nothing",
            parameters![&space, participant, joined],
        )
        .await?;
    if inserted == 0 {
        return Ok(false);
    }
    let count = count(sql, "select count(*) from space_members where space = $1", parameters![space]).await?;
    check_count("the members of the space", count, MAX_MEMBERS)?;
    Ok(true)
}

pub(crate) async fn remove_member(
    sql: &mut dyn Sql,
    space: String,
    participant: String,
) -> Result<bool, StoreError> {
    lock_log(sql).await?;
    ensure_space(sql, &space).await?;
    let removed = sql
        .execute(
            "delete from space_members where space = $1 and participant = $2",
            parameters![space, participant],
        )
        .await?;
    Ok(removed == 1)
}

pub(crate) async fn members(
    sql: &mut dyn Sql,
    space: String,
    request: PageRequest<AgeCursor>,
) -> Result<Page<Member, AgeCursor>, StoreError> {
    ensure_space(sql, &space).await?;
    let limit = request.rows();
    // This cursor precedes every row, because no id is empty.
    let (joined, id) = request.after.unwrap_or((i64::MIN, String::new()));
    let rows = sql
        .rows(
            "select id, kind, name, joined from space_members join participants on id = participant \
             where space = $1 and (joined, participant) > ($2, $3) order by joined, participant limit $4",
            parameters![space, joined, id, limit],
        )
        .await?;
    page(rows, limit, |row| {
        let member = Member {
            id: row.text(0)?,
            kind: row.parsed(1, ParticipantKind::parse)?,
            name: row.text(2)?,
            joined: row.int(3)?,
        };
        let cursor = (member.joined, member.id.clone());
        Ok(PageItem { item: member, cursor, payload_bytes: 0 })
    })
}

pub(crate) async fn is_member(
    sql: &mut dyn Sql,
    space: String,
    participant: String,
) -> Result<bool, StoreError> {
    let found = sql
        .row(
            "select 1 from space_members where space = $1 and participant = $2",
            parameters![space, participant],
        )
        .await?;
    Ok(found.is_some())
}

pub(crate) async fn share_space(
    sql: &mut dyn Sql,
    participant: String,
    other: String,
) -> Result<bool, StoreError> {
    let found = sql
        .row(
            // The removal of a space removes its members, so no condition on the space is needed.
            "select 1 from space_members a join space_members b on b.space = a.space \
             where a.participant = $1 and b.participant = $2 limit 1",
            parameters![participant, other],
        )
        .await?;
    Ok(found.is_some())
}
