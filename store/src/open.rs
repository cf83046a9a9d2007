//! Opens a store: an SQLite file, or a PostgreSQL server.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    engine::Store,
    error::{DatabaseFailure, OpenError, StoreError},
    postgres::{Postgres, PostgresOptions},
    space_store::GatewayStore,
    sqlite::{Sqlite, SqliteOptions},
    store::RunStore,
};

/// The schemes of PostgreSQL URLs.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Opens a store of runs with the default options: a PostgreSQL server if the location begins with `postgres://` or
/// `postgresql://`, otherwise an SQLite file. A location with another scheme is refused.
///
/// # Errors
/// As for [`open_postgres`] and [`open_sqlite`].
pub async fn open(location: &str) -> Result<Arc<dyn RunStore>, StoreError> {
    Ok(open_gateway(location).await?)
}

/// Opens a store of runs in an SQLite file. A missing file is created with mode 0600. Its folder must exist,
/// and must belong only to the user.
///
/// # Errors
/// [`OpenError`]; [`StoreError::Database`].
pub async fn open_sqlite(path: &Path, options: SqliteOptions) -> Result<Arc<dyn RunStore>, StoreError> {
    Ok(open_gateway_sqlite(path, options).await?)
}

/// Opens a store of runs on a PostgreSQL server. Missing tables are created in its schema `portcullis`.
///
/// `sslmode` of the URL is `disable`, `prefer`, or `require`, which verifies the server's certificate and name. The
/// default is `require`, and `disable` for a Unix socket. `sslrootcert` names a PEM file of root
/// certificates. The default is the system's root certificates.
///
/// # Errors
/// [`OpenError`]; [`StoreError::Database`].
pub async fn open_postgres(url: &str, options: PostgresOptions) -> Result<Arc<dyn RunStore>, StoreError> {
    Ok(open_gateway_postgres(url, options).await?)
}

/// Opens a store of runs and spaces, as [`open`] does.
///
/// # Errors
/// As for [`open`].
pub async fn open_gateway(location: &str) -> Result<Arc<dyn GatewayStore>, StoreError> {
    if POSTGRES_SCHEMES.iter().any(|scheme| location.starts_with(scheme)) {
        return open_gateway_postgres(location, PostgresOptions::default()).await;
    }
    // Without this check a mistyped URL, with its password, would become the name of a file.
    if location.contains("://") {
        return Err(
            OpenError::Url { reason: "its scheme is not `postgres` or `postgresql`", source: None }.into()
        );
    }
    open_gateway_sqlite(Path::new(location), SqliteOptions::default()).await
}

/// Opens a store of runs and spaces, as [`open_sqlite`] does.
///
/// # Errors
/// As for [`open_sqlite`].
pub async fn open_gateway_sqlite(
    path: &Path,
    options: SqliteOptions,
) -> Result<Arc<dyn GatewayStore>, StoreError> {
    let path = PathBuf::from(path);
    // Opening waits for the disk and for the locks of other processes.
    let opening = tokio::task::spawn_blocking(move || Sqlite::open(&path, options));
    let opened = opening
        .await
        .map_err(|error| StoreError::database("open its file", DatabaseFailure::Other, error))?;
    Ok(Arc::new(Store::new(opened?)))
}

/// Opens a store of runs and spaces, as [`open_postgres`] does.
///
/// # Errors
/// As for [`open_postgres`].
pub async fn open_gateway_postgres(
    url: &str,
    options: PostgresOptions,
) -> Result<Arc<dyn GatewayStore>, StoreError> {
    Ok(Arc::new(Store::new(Postgres::open(url, options).await?)))
}
