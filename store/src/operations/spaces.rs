//! Spaces: adding, reading, listing and removing them, and sweeping the rows of removed spaces.

use super::{
    events::{lock_log, remove_topic},
    pages::{NEWEST, PageItem, count, page},
};
use crate::{
    error::{Entity, StoreError},
    limits::{MAX_SPACES, MAX_SWEPT_ROWS, check_count, check_name},
    model::{NewSpace, Page, PageRequest, Space},
    sql::{Sql, SqlRow, parameters},
    store::AgeCursor,
};

/// The number of words of messages that are removed for each row that a sweep may change. Words are small rows.
const WORDS_FOR_A_ROW: i64 = 16;

pub(crate) async fn create_space(sql: &mut dyn Sql, new: NewSpace) -> Result<(), StoreError> {
    check_name("the id of the space", &new.id)?;
    check_name("the name of the space", &new.name)?;
    lock_log(sql).await?;
    let inserted = sql
        .execute(
            "insert into spaces (id, name, created, messages, removed) values ($1, $2, $3, 0, 0) \
             on conflict (id) do nothing",
            parameters![&new.id, new.name, new.created],
        )
        .await?;
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Space, &new.id));
    }
    let count = count(sql, "select count(*) from spaces", parameters![]).await?;
    check_count("the spaces", count, MAX_SPACES)
}

/// The statement that selects spaces. The database evaluates the condition with an index.
macro_rules! select_spaces {
    ($condition:literal) => {
        concat!(
            "select id, name, created, messages, (select count(*) from space_members where space = spaces.id) \
             from spaces where removed = 0 and ",
            $condition
        )
    };
}

pub(crate) async fn space(sql: &mut dyn Sql, id: String) -> Result<Space, StoreError> {
    let row = sql.row(select_spaces!("id = $1"), parameters![&id]).await?;
    let mut row = row.ok_or_else(|| StoreError::not_found(Entity::Space, &id))?;
    read_space(&mut row).map(|found| found.item)
}

pub(crate) async fn spaces(
    sql: &mut dyn Sql,
    member: Option<String>,
    request: PageRequest<AgeCursor>,
) -> Result<Page<Space, AgeCursor>, StoreError> {
    let limit = request.rows();
    let (created, id) = request.after.unwrap_or(NEWEST);
    let rows = match member {
        Some(member) => {
            let statement = select_spaces!(
                "id in (select space from space_members where participant = $4) and (created, id) < ($1, $2) \
                 order by created desc, id desc limit $3"
            );
            sql.rows(statement, parameters![created, id, limit, member]).await?
        }
        None => {
            let statement =
                select_spaces!("(created, id) < ($1, $2) order by created desc, id desc limit $3");
            sql.rows(statement, parameters![created, id, limit]).await?
        }
    };
    page(rows, limit, read_space)
}

fn read_space(row: &mut SqlRow) -> Result<PageItem<Space, AgeCursor>, StoreError> {
    let space = Space {
        id: row.text(0)?,
        name: row.text(1)?,
        created: row.int(2)?,
        messages: row.int(3)?,
        members: row.int(4)?,
    };
    let cursor = (space.created, space.id.clone());
    Ok(PageItem { item: space, cursor, payload_bytes: 0 })
}

pub(crate) async fn remove_space(sql: &mut dyn Sql, id: String, topic: String) -> Result<(), StoreError> {
    check_name("the topic", &topic)?;
    lock_log(sql).await?;
    let removed = sql
        .execute(
            "update spaces set removed = 1, removed_topic = $2 where id = $1 and removed = 0",
            parameters![&id, topic],
        )
        .await?;
    if removed == 0 {
        return Err(StoreError::not_found(Entity::Space, &id));
    }
    // Remove only the members now, which hides the space. Its messages can be too many for one transaction.
    sql.execute("delete from space_members where space = $1", parameters![id]).await?;
    Ok(())
}

pub(crate) async fn sweep_spaces(sql: &mut dyn Sql, at_most: u32) -> Result<u64, StoreError> {
    // With a limit of 0 a sweep would report that nothing is left.
    let limit = i64::from(at_most.clamp(1, MAX_SWEPT_ROWS));
    lock_log(sql).await?;
    let found = sql
        .row("select id, removed_topic from spaces where removed = 1 order by id limit 1", parameters![])
        .await?;
    let Some(mut found) = found else { return Ok(0) };
    let (id, topic) = (found.text(0)?, found.optional_text(1)?);
    if let Some(topic) = topic {
        let events = remove_topic(sql, &topic, limit).await?;
        // Each call removes rows of one table only, so that its transaction stays short.
        if events > 0 {
            return Ok(events);
        }
    }
    for (delete, limit) in [
        (
            "delete from space_message_words where space = $1 and (word, ordinal) in ( \
                 select word, ordinal from space_message_words where space = $1 order by word, ordinal limit $2 \
             )",
            limit * WORDS_FOR_A_ROW,
        ),
        (
            "delete from space_messages where space = $1 and ordinal in ( \
                 select ordinal from space_messages where space = $1 order by ordinal limit $2 \
             )",
            limit,
        ),
    ] {
        let removed = sql.execute(delete, parameters![&id, limit]).await?;
        if removed > 0 {
            return Ok(removed);
        }
    }
    // Remove the space's row last, because the sweep finds all other rows through it.
    sql.execute("delete from spaces where id = $1", parameters![id]).await
}

/// Fails if there is no such space.
pub(super) async fn ensure_space(sql: &mut dyn Sql, id: &str) -> Result<(), StoreError> {
    match sql.row("select 1 from spaces where id = $1 and removed = 0", parameters![id]).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::not_found(Entity::Space, id)),
    }
}
