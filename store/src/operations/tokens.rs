//! Tokens: adding, finding, listing and removing them.

use super::{
    events::lock_log,
    pages::{NEWEST, PageItem, count, page},
};
use crate::{
    error::{Entity, StoreError},
    limits::{MAX_TOKENS, check_count, check_name},
    model::{Page, PageRequest, Token},
    sql::{Sql, SqlRow, parameters},
    store::AgeCursor,
};

/// The digits of a SHA-256.
const HASH_DIGITS: usize = 64;

pub(crate) async fn add_token(sql: &mut dyn Sql, token: Token) -> Result<(), StoreError> {
    check_name("the id of the token", &token.id)?;
    check_name("the kind of the subject", &token.subject_kind)?;
    if let Some(subject) = &token.subject {
        check_name("the subject", subject)?;
    }
    // A token's own text, passed here by mistake, must not reach the disk.
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if token.hash.len() != HASH_DIGITS || !token.hash.bytes().all(is_digit) {
        let expected = "64 lowercase hexadecimal digits";
        return Err(StoreError::Invalid { field: "the hash of the token", expected });
    }
    lock_log(sql).await?;
    // The id and the hash are both unique, so the conflict names no column.
    let inserted = sql
        .execute(
            "insert into tokens (id, hash, subject_kind, subject, created) values ($1, $2, $3, $4, $5) \
             on conflict do nothing",
            parameters![&token.id, token.hash, token.subject_kind, token.subject, token.created],
        )
        .await?;
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Token, &token.id));
    }
    let count = count(sql, "select count(*) from tokens", parameters![]).await?;
    check_count("the tokens", count, MAX_TOKENS)
}

pub(crate) async fn find_token(sql: &mut dyn Sql, hash: String) -> Result<Option<Token>, StoreError> {
    let row = sql
        .row("select id, hash, subject_kind, subject, created from tokens where hash = $1", parameters![hash])
        .await?;
    row.map(|mut row| read_token(&mut row).map(|found| found.item)).transpose()
}

pub(crate) async fn tokens(
    sql: &mut dyn Sql,
    request: PageRequest<AgeCursor>,
) -> Result<Page<Token, AgeCursor>, StoreError> {
    let limit = request.rows();
    let (created, id) = request.after.unwrap_or(NEWEST);
    let rows = sql
        .rows(
            "select id, hash, subject_kind, subject, created from tokens where (created, id) < ($1, $2) \
             order by created desc, id desc limit $3",
            parameters![created, id, limit],
        )
        .await?;
    page(rows, limit, read_token)
}

pub(crate) async fn remove_token(sql: &mut dyn Sql, id: String) -> Result<bool, StoreError> {
    Ok(sql.execute("delete from tokens where id = $1", parameters![id]).await? == 1)
}

pub(crate) async fn remove_tokens_of(
    sql: &mut dyn Sql,
    subject_kind: String,
    subject: String,
) -> Result<u64, StoreError> {
    sql.execute(
        "delete from tokens where subject_kind = $1 and subject = $2",
        parameters![subject_kind, subject],
    )
    .await
}

fn read_token(row: &mut SqlRow) -> Result<PageItem<Token, AgeCursor>, StoreError> {
    let token = Token {
        id: row.text(0)?,
        hash: row.text(1)?,
        subject_kind: row.text(2)?,
        subject: row.optional_text(3)?,
        created: row.int(4)?,
    };
    let cursor = (token.created, token.id.clone());
    Ok(PageItem { item: token, cursor, payload_bytes: 0 })
}
