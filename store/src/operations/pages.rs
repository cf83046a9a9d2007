//! Makes pages of rows: the cursor of the next page, and the number of rows that fit into a number of bytes.

use crate::{
    error::StoreError,
    limits::MAX_PAGE_BYTES,
    model::Page,
    sql::{Sql, SqlRow, Value},
    store::AgeCursor,
};

/// The cursor before the newest row. With a separate condition for the first page, SQLite would not use its
/// index.
pub(super) const NEWEST: AgeCursor = (i64::MAX, String::new());

/// A row of a page, as [`page`] needs it.
pub(super) struct PageItem<T, C> {
    pub(super) item: T,
    /// The cursor of the page that begins after this row.
    pub(super) cursor: C,
    /// The size of the row's payloads. 0 in a listing without payloads, whose pages only a number of rows limits.
    pub(super) payload_bytes: i64,
}

/// Makes a page of rows. The statement has ended the page at the limit of rows, or after the row that exceeds
/// [`MAX_PAGE_BYTES`].
pub(super) fn page<T, C>(
    rows: Vec<SqlRow>,
    limit: i64,
    mut read: impl FnMut(&mut SqlRow) -> Result<PageItem<T, C>, StoreError>,
) -> Result<Page<T, C>, StoreError> {
    let mut items = Vec::with_capacity(rows.len());
    let (mut last, mut count, mut bytes) = (None, 0, 0_i64);
    for mut row in rows {
        let PageItem { item, cursor, payload_bytes } = read(&mut row)?;
        items.push(item);
        last = Some(cursor);
        count += 1;
        bytes = bytes.saturating_add(payload_bytes);
    }
    // The last page can be exactly full. Its cursor then leads to an empty page.
    let next = last.filter(|_| count >= limit || bytes >= MAX_PAGE_BYTES);
    Ok(Page { items, next })
}

/// Returns the number of rows that a page has room for. The statement lists their bytes, and the page ends
/// after the row that reaches [`MAX_PAGE_BYTES`].
pub(super) async fn fitting_rows(
    sql: &mut dyn Sql,
    sizes: &'static str,
    parameters: Vec<Value>,
) -> Result<i64, StoreError> {
    let (mut count, mut bytes) = (0, 0_i64);
    for mut row in sql.rows(sizes, parameters).await? {
        if bytes >= MAX_PAGE_BYTES {
            break;
        }
        bytes = bytes.saturating_add(row.int(0)?);
        count += 1;
    }
    Ok(count)
}

/// The labels of a run or a started call, as they are stored.
pub(super) fn labels_text(labels: &[String]) -> Result<String, StoreError> {
    let sorted: std::collections::BTreeSet<&String> = labels.iter().collect();
    crate::Json::of(&sorted).map(crate::Json::into_text)
}

pub(super) fn parse_labels(text: &str) -> Result<Vec<String>, serde_json::Error> {
    serde_json::from_str(text)
}

/// Runs a statement that counts, and returns the number.
pub(super) async fn count(
    sql: &mut dyn Sql,
    statement: &'static str,
    parameters: Vec<Value>,
) -> Result<i64, StoreError> {
    sql.row(statement, parameters).await?.map_or(Ok(0), |mut row| row.int(0))
}
