//! Reads all pages of a listing.

use portcullis_store::{Page, PageRequest, StoreError};

/// Returns all rows of a listing, read page by page.
///
/// # Errors
/// Same as `list`.
pub async fn all_rows<T, C, F>(list: impl Fn(PageRequest<C>) -> F) -> Result<Vec<T>, StoreError>
where
    F: Future<Output = Result<Page<T, C>, StoreError>>,
{
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let page = list(PageRequest { after, ..PageRequest::default() }).await?;
        items.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(items),
        }
    }
}
