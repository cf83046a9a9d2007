//! Messages of spaces: posting, changing, reading, listing and searching them.

use super::{
    pages::{PageItem, page},
    spaces::ensure_space,
    words::{add_words, indexed_words, rarest_first, remove_words, searched_words},
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_MESSAGE_TEXT_BYTES, MAX_METADATA_BYTES, MAX_PAGE_BYTES, MAX_SEARCH_WORDS, MAX_SPACE_MESSAGES,
        check_count, check_name, check_size, check_text_within, to_i64,
    },
    model::{
        Author, MessageKind, MessageStatus, MessageUpdate, NewMessage, Page, PageRequest, ParticipantKind,
        SpaceMessage,
    },
    sql::{Sql, SqlRow, Value, parameters},
};

/// The columns of a message, as [`read_message`] reads them.
macro_rules! columns {
    () => {
        "m.id, m.space, m.ordinal, m.author, m.author_kind, m.author_name, m.kind, m.body, m.reply_to, m.status, \
         m.call, m.metadata, m.created, m.updated, m.bytes"
    };
}

pub(super) async fn post_message(sql: &mut dyn Sql, new: NewMessage) -> Result<SpaceMessage, StoreError> {
    check_name("the id of the message", &new.id)?;
    check_name("the author", &new.author.id)?;
    check_name("the name of the author", &new.author.name)?;
    check_sizes(&new.text, new.metadata.as_ref())?;
    if let Some(call) = &new.call {
        check_name("the id of the call", call)?;
    }
    // The space's row gives the ordinal, and its lock serializes authors.
    let row = sql
        .row(
            "update spaces set messages = messages + 1 where id = $1 and removed = 0 returning messages",
            parameters![&new.space],
        )
        .await?;
    let ordinal = match row {
        Some(mut row) => row.int(0)?,
        None => return Err(StoreError::not_found(Entity::Space, &new.space)),
    };
    check_count("the messages of the space", ordinal, MAX_SPACE_MESSAGES)?;
    // A reply to a message of another space would reveal whether that message exists.
    if let Some(reply_to) = &new.reply_to {
        let found = sql
            .row(
                "select 1 from space_messages where id = $1 and space = $2",
                parameters![reply_to, &new.space],
            )
            .await?;
        if found.is_none() {
            return Err(StoreError::not_found(Entity::Message, reply_to));
        }
    }
    let bytes = new.text.len() + new.metadata.as_ref().map_or(0, Json::len);
    let inserted = sql
        .execute(
            "insert into space_messages (space, ordinal, id, author, author_kind, author_name, kind, reply_to, status, \
             call, created, updated, bytes, body, metadata) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13, $14) on conflict (id) do nothing",
            parameters![
                &new.space,
                ordinal,
                &new.id,
                &new.author.id,
                new.author.kind.as_str(),
                &new.author.name,
                new.kind.as_str(),
                new.reply_to.as_ref(),
                new.status.as_str(),
                new.call.as_ref(),
                new.created,
                to_i64(bytes),
                &new.text,
                new.metadata.as_ref().map(Json::as_str)
            ],
        )
        .await?;
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Message, &new.id));
    }
    // The words are written with the message, so that a search finds every message that a listing has.
    let words: Vec<String> = indexed_words(&new.text).into_iter().collect();
    add_words(sql, &new.space, ordinal, &words).await?;
    let NewMessage { id, space, author, kind, text, reply_to, status, call, metadata, created } = new;
    let updated = created;
    Ok(SpaceMessage {
        id,
        space,
        ordinal,
        author,
        kind,
        text,
        reply_to,
        status,
        call,
        metadata,
        created,
        updated,
    })
}

fn check_sizes(text: &str, metadata: Option<&Json>) -> Result<(), StoreError> {
    check_text_within("the text of the message", text, MAX_MESSAGE_TEXT_BYTES)?;
    check_size("the metadata of the message", metadata.map_or(0, Json::len), MAX_METADATA_BYTES)
}

/// Changes a message that has the expected status. Returns whether it had that status, and the message after
/// the call.
pub(super) async fn update_message(
    sql: &mut dyn Sql,
    update: MessageUpdate,
) -> Result<(bool, SpaceMessage), StoreError> {
    let MessageUpdate { id, expected, text, status, metadata, updated } = update;
    check_sizes(text.as_deref().unwrap_or_default(), metadata.as_ref())?;
    // An update takes the row's lock in both databases, so of two concurrent updates the second reads the
    // status of the first.
    sql.execute("update space_messages set status = status where id = $1", parameters![&id]).await?;
    let mut message = space_message(sql, id).await?;
    if expected.is_some_and(|expected| expected != message.status) {
        return Ok((false, message));
    }
    if let Some(text) = text {
        // Only the difference is written, because most words of a changed text stay.
        let (old, new) = (indexed_words(&message.text), indexed_words(&text));
        let removed: Vec<String> = old.difference(&new).cloned().collect();
        let added: Vec<String> = new.difference(&old).cloned().collect();
        remove_words(sql, &message.space, message.ordinal, &removed).await?;
        add_words(sql, &message.space, message.ordinal, &added).await?;
        message.text = text;
    }
    message.status = status.unwrap_or(message.status);
    message.metadata = metadata.or(message.metadata);
    message.updated = updated;
    let bytes = message.text.len() + message.metadata.as_ref().map_or(0, Json::len);
    sql.execute(
        "update space_messages set body = $2, status = $3, metadata = $4, bytes = $5, updated = $6 where id = $1",
        parameters![
            &message.id,
            &message.text,
            message.status.as_str(),
            message.metadata.as_ref().map(Json::as_str),
            to_i64(bytes),
            updated
        ],
    )
    .await?;
    Ok((true, message))
}

pub(crate) async fn space_message(sql: &mut dyn Sql, id: String) -> Result<SpaceMessage, StoreError> {
    let row = sql
        .row(
            concat!(
                "select ",
                columns!(),
                " from space_messages m join spaces s on s.id = m.space where m.id = $1 and s.removed = 0"
            ),
            parameters![&id],
        )
        .await?;
    let mut row = row.ok_or_else(|| StoreError::not_found(Entity::Message, &id))?;
    read_message(&mut row).map(|found| found.item)
}

pub(crate) async fn call_message(
    sql: &mut dyn Sql,
    call: String,
) -> Result<Option<SpaceMessage>, StoreError> {
    let row = sql
        .row(
            concat!(
                "select ",
                columns!(),
                " from space_messages m join spaces s on s.id = m.space where m.call = $1 and s.removed = 0 \
                 order by m.created desc, m.id desc limit 1"
            ),
            parameters![call],
        )
        .await?;
    row.map(|mut row| read_message(&mut row).map(|found| found.item)).transpose()
}

/// The statement that lists messages from a source of their ordinals, the newest first.
macro_rules! select_messages {
    ($($candidates:expr),+ $(,)?) => {
        concat!(
            "select ",
            columns!(),
            " from space_messages m join ( \
                 select ordinal, cast(sum(bytes) over (order by ordinal desc) as bigint) - bytes as before from (",
            $($candidates,)+
            ") as candidates \
             ) as sized on sized.ordinal = m.ordinal where m.space = $1 and sized.before < $4 order by m.ordinal desc"
        )
    };
}

pub(crate) async fn space_messages(
    sql: &mut dyn Sql,
    space: String,
    search: Option<String>,
    request: PageRequest<i64>,
) -> Result<Page<SpaceMessage, i64>, StoreError> {
    ensure_space(sql, &space).await?;
    let limit = request.rows();
    let mut parameters = parameters![&space, request.after.unwrap_or(i64::MAX), limit, MAX_PAGE_BYTES];
    let statement = match search {
        None => LIST,
        Some(search) => {
            let words = rarest_first(sql, &space, searched_words(&search)?).await?;
            if words.is_empty() {
                return Ok(Page { items: Vec::new(), next: None });
            }
            parameters.extend(words.iter().map(Value::from));
            // The statement always has the same number of words, so that it is prepared once. Unused words
            // are null.
            parameters.resize(4 + MAX_SEARCH_WORDS, Value::Null);
            SEARCH
        }
    };
    let rows = sql.rows(statement, parameters).await?;
    page(rows, limit, read_message)
}

/// A condition that a message has a word. A null word matches every message.
macro_rules! has_word {
    ($word:literal) => {
        concat!(
            " and (cast($",
            $word,
            " as text) is null or exists (select 1 from space_message_words \
             where space = $1 and word = $",
            $word,
            " and ordinal = w.ordinal))"
        )
    };
}

/// The statement of a listing.
pub(super) const LIST: &str = select_messages!(
    "select ordinal, bytes from space_messages where space = $1 and ordinal < $2 order by ordinal desc limit $3"
);

/// The statement of a search. The first word finds the messages through the index, in order; the others are looked up
/// there for each.
pub(super) const SEARCH: &str = select_messages!(
    "select c.ordinal, c.bytes from ( \
         select ordinal from space_message_words w where space = $1 and word = $5 and ordinal < $2",
    has_word!("6"),
    has_word!("7"),
    has_word!("8"),
    has_word!("9"),
    has_word!("10"),
    has_word!("11"),
    has_word!("12"),
    " order by ordinal desc limit $3 \
     ) as found join space_messages c on c.space = $1 and c.ordinal = found.ordinal"
);

fn read_message(row: &mut SqlRow) -> Result<PageItem<SpaceMessage, i64>, StoreError> {
    let message = SpaceMessage {
        id: row.text(0)?,
        space: row.text(1)?,
        ordinal: row.int(2)?,
        author: Author { id: row.text(3)?, kind: row.parsed(4, ParticipantKind::parse)?, name: row.text(5)? },
        kind: row.parsed(6, MessageKind::parse)?,
        text: row.text(7)?,
        reply_to: row.optional_text(8)?,
        status: row.parsed(9, MessageStatus::parse)?,
        call: row.optional_text(10)?,
        metadata: row.optional_text(11)?.map(Json::stored),
        created: row.int(12)?,
        updated: row.int(13)?,
    };
    let ordinal = message.ordinal;
    Ok(PageItem { item: message, cursor: ordinal, payload_bytes: row.int(14)? })
}
