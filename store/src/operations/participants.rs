//! Participants: adding, reading, listing, changing and removing them.

use super::{
    events::lock_log,
    inbox::consume_up_to,
    pages::{NEWEST, PageItem, count, page},
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_DEFINITION_BYTES, MAX_PAGE_BYTES, MAX_PARTICIPANTS, check_count, check_name, check_size, to_i64,
    },
    model::{NewParticipant, Page, PageRequest, Participant, ParticipantKind, ParticipantUpdate},
    sql::{Sql, SqlRow, parameters},
    store::AgeCursor,
};

pub(crate) async fn create_participant(sql: &mut dyn Sql, new: NewParticipant) -> Result<(), StoreError> {
    check_name("the id of the participant", &new.id)?;
    check_name("the name of the participant", &new.name)?;
    check_size("the definition", new.definition.len(), MAX_DEFINITION_BYTES)?;
    // The lock serializes additions, so that two of them cannot exceed the limit together.
    lock_log(sql).await?;
    let inserted = sql
        .execute(
            "insert into participants (id, kind, name, version, created, updated, bytes, definition) \
             values ($1, $2, $3, 1, $4, $4, $5, $6) on conflict (id) do nothing",
            parameters![
                &new.id,
                new.kind.as_str(),
                new.name,
                new.created,
                to_i64(new.definition.len()),
                new.definition.into_text()
            ],
        )
        .await?;
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Participant, &new.id));
    }
    let count = count(sql, "select count(*) from participants", parameters![]).await?;
    check_count("the participants", count, MAX_PARTICIPANTS)
}

pub(crate) async fn participant(sql: &mut dyn Sql, id: String) -> Result<Participant, StoreError> {
    let row = sql
        .row(
            "select id, kind, name, definition, version, created, updated, bytes from participants where id = $1",
            parameters![&id],
        )
        .await?;
    let mut row = row.ok_or_else(|| StoreError::not_found(Entity::Participant, &id))?;
    read_participant(&mut row).map(|found| found.item)
}

/// The statement that lists participants. The database evaluates the condition with an index.
macro_rules! select_participants {
    ($condition:literal) => {
        concat!(
            "select p.id, kind, name, definition, version, p.created, updated, bytes from participants p join ( \
                 select id, cast(sum(bytes) over (order by created desc, id desc) as bigint) - bytes as before from ( \
                     select id, created, bytes from participants where ",
            $condition,
            " and (created, id) < ($1, $2) order by created desc, id desc limit $3 \
                 ) as candidates \
             ) as sized on sized.id = p.id where sized.before < $4 order by p.created desc, p.id desc"
        )
    };
}

pub(crate) async fn participants(
    sql: &mut dyn Sql,
    kind: Option<ParticipantKind>,
    request: PageRequest<AgeCursor>,
) -> Result<Page<Participant, AgeCursor>, StoreError> {
    let limit = request.rows();
    let (created, id) = request.after.unwrap_or(NEWEST);
    let rows = match kind {
        Some(kind) => {
            let parameters = parameters![created, id, limit, MAX_PAGE_BYTES, kind.as_str()];
            sql.rows(select_participants!("kind = $5"), parameters).await?
        }
        None => {
            sql.rows(select_participants!("true"), parameters![created, id, limit, MAX_PAGE_BYTES]).await?
        }
    };
    page(rows, limit, read_participant)
}

fn read_participant(row: &mut SqlRow) -> Result<PageItem<Participant, AgeCursor>, StoreError> {
    let participant = Participant {
        id: row.text(0)?,
        kind: row.parsed(1, ParticipantKind::parse)?,
        name: row.text(2)?,
        definition: Json::stored(row.text(3)?),
        version: row.int(4)?,
        created: row.int(5)?,
        updated: row.int(6)?,
    };
    let cursor = (participant.created, participant.id.clone());
    Ok(PageItem { item: participant, cursor, payload_bytes: row.int(7)? })
}

pub(crate) async fn update_participant(
    sql: &mut dyn Sql,
    update: ParticipantUpdate,
) -> Result<i64, StoreError> {
    let ParticipantUpdate { id, version, name, definition, updated } = update;
    check_name("the name of the participant", &name)?;
    check_size("the definition", definition.len(), MAX_DEFINITION_BYTES)?;
    // The statement compares the version, so of two writers that have read the same version only the first
    // succeeds.
    let changed = sql
        .execute(
            "update participants set name = $3, bytes = $4, definition = $5, updated = $6, version = version + 1 \
             where id = $1 and version = $2",
            parameters![&id, version, name, to_i64(definition.len()), definition.into_text(), updated],
        )
        .await?;
    if changed == 1 {
        return Ok(version + 1);
    }
    let found = participant(sql, id).await?;
    Err(StoreError::Changed {
        entity: Entity::Participant,
        id: found.id,
        expected: version,
        found: found.version,
    })
}

pub(crate) async fn remove_participant(sql: &mut dyn Sql, id: String, now: i64) -> Result<(), StoreError> {
    // The foreign key removes the memberships with the row. The other rows name the participant only by its
    // id.
    lock_log(sql).await?;
    let removed = sql.row("delete from participants where id = $1 returning kind", parameters![&id]).await?;
    let mut removed = removed.ok_or_else(|| StoreError::not_found(Entity::Participant, &id))?;
    let kind = removed.text(0)?;
    // A participant that is added later under this id must not inherit tokens, notes or entries.
    sql.execute("delete from tokens where subject_kind = $1 and subject = $2", parameters![kind, &id])
        .await?;
    sql.execute("delete from notes where agent = $1", parameters![&id]).await?;
    consume_up_to(sql, &id, i64::MAX, now).await?;
    Ok(())
}
