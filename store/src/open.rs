//! Opens a store by its place.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    engine::Store,
    error::{Fault, OpenError, StoreError},
    postgres::{Postgres, PostgresOptions},
    sqlite::{Sqlite, SqliteOptions},
    store::RunStore,
};

/// The schemes of URLs of PostgreSQL.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Opens a store with the default options: a server of PostgreSQL if the place begins with `postgres://` or
/// `postgresql://`, otherwise a file of SQLite. A place with another scheme is refused.
///
/// # Errors
/// As for [`open_postgres`] and [`open_sqlite`].
pub async fn open(place: &str) -> Result<Arc<dyn RunStore>, StoreError> {
    if POSTGRES_SCHEMES.iter().any(|scheme| place.starts_with(scheme)) {
        return open_postgres(place, PostgresOptions::default()).await;
    }
    if place.contains("://") {
        return Err(
            OpenError::Url { reason: "its scheme is not `postgres` or `postgresql`", source: None }.into()
        );
    }
    open_sqlite(Path::new(place), SqliteOptions::default()).await
}

/// Opens a file of SQLite. It is made if there is none, with mode 0600. Its folder must be there, and must belong to the
/// user alone.
///
/// # Errors
/// [`OpenError`]; [`StoreError::Database`].
pub async fn open_sqlite(path: &Path, options: SqliteOptions) -> Result<Arc<dyn RunStore>, StoreError> {
    let path = PathBuf::from(path);
    let opening = tokio::task::spawn_blocking(move || Sqlite::open(&path, options));
    let opened = opening.await.map_err(|error| StoreError::database("open its file", Fault::Other, error))?;
    Ok(Arc::new(Store(opened?)))
}

/// Connects to a server of PostgreSQL, and makes the tables in its schema `portcullis` if there are none.
///
/// `sslmode` of the URL is `disable`, `prefer`, or `require`, which verifies the server's certificate and name. The
/// default is `require`, and `disable` for a Unix socket. `sslrootcert` names a file of authorities in PEM; the default
/// are those of the system.
///
/// # Errors
/// [`OpenError`]; [`StoreError::Database`].
pub async fn open_postgres(url: &str, options: PostgresOptions) -> Result<Arc<dyn RunStore>, StoreError> {
    Ok(Arc::new(Store(Postgres::open(url, options).await?)))
}
