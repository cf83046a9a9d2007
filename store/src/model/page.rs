//! Pages of a listing.

use crate::limits::MAX_PAGE_ROWS;

/// The requested page of a listing. The default is the first page, with as many rows as a page may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest<C> {
    /// The cursor that the previous page returned; `None` for the first page.
    pub after: Option<C>,
    /// The maximum number of rows: at least 1 and at most [`MAX_PAGE_ROWS`].
    pub limit: u32,
}

impl<C> Default for PageRequest<C> {
    fn default() -> Self {
        Self { after: None, limit: MAX_PAGE_ROWS }
    }
}

impl<C> PageRequest<C> {
    /// The first page, with at most this many rows.
    #[must_use]
    pub fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }

    /// The page after a cursor, with at most this many rows.
    #[must_use]
    pub fn after(cursor: C, limit: u32) -> Self {
        Self { after: Some(cursor), limit }
    }

    pub(crate) fn rows(&self) -> i64 {
        // A page of 0 rows would have no cursor, which reads as the end of the listing.
        i64::from(self.limit.clamp(1, MAX_PAGE_ROWS))
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The rows, in order.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` after the last row. The next page can be empty.
    pub next: Option<C>,
}
