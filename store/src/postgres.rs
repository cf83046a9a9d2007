//! The store in PostgreSQL, in the schema `portcullis` of a database: a pool of connections, and a timeout
//! for each operation.

mod failure;
mod migrate;
mod session;
mod tls;
mod url;

use std::{fmt, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};

use self::{
    failure::{pool_error, postgres_error},
    session::SqlSession,
};
use crate::{
    error::{DatabaseFailure, StoreError},
    sql::{SqlBackend, TransactionWork},
};

/// The options of a PostgreSQL store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The maximum number of connections. Further operations wait for one. Default: 8.
    pub connections: usize,
    /// The time limit of the wait for a connection: for a free one of the pool, and for a new one to the server.
    /// Default: 10 seconds.
    pub connect_timeout: Duration,
    /// The time limit of one statement. Default: 30 seconds. The limit for a lock is half of it. The limit
    /// for a whole operation is twice as long. Its connection is then closed, because the server may have
    /// hung.
    pub statement_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pool: Pool,
    operation_timeout: Duration,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the configuration, which has the password.
        f.debug_struct("Postgres").field("status", &self.pool.status()).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects to the server, and makes or migrates the tables.
    pub(crate) async fn open(text: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let url::Server { mut config, roots } = url::parse(text)?;
        config.connect_timeout(options.connect_timeout);
        config.application_name("portcullis");
        // The last setting of a name counts: the URL can choose the durability of a commit, but not the tables.
        let ours = format!(
            "-c synchronous_commit=on {} -c search_path=portcullis -c statement_timeout={time} -c lock_timeout={lock} \
             -c idle_in_transaction_session_timeout={idle} -c default_transaction_isolation=read\\ committed \
             -c default_transaction_read_only=off",
            config.get_options().unwrap_or_default(),
            // The server treats 0 as no limit.
            time = options.statement_timeout.as_millis().max(1),
            // The lock's limit is shorter, so that a wait for a lock is reported as busy and not as timed
            // out.
            lock = (options.statement_timeout / 2).as_millis().max(1),
            // The server ends a transaction whose process hangs, so that its locks do not stay.
            idle = options.statement_timeout.saturating_mul(2).as_millis().max(1),
        );
        config.options(ours);
        // `Fast` saves a query before each operation. A broken connection then fails the operation itself.
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, tls::connector(roots)?, manager_config);
        let wait = Some(options.connect_timeout);
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(1))
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts { wait, create: wait, recycle: wait })
            .build()
            .map_err(|error| StoreError::database("make its pool", DatabaseFailure::Other, error))?;
        let postgres = Self { pool, operation_timeout: options.statement_timeout.saturating_mul(2) };
        // The first connection is made now, so that a wrong URL or password fails at the start.
        let mut client = postgres.client("connect").await?;
        let migrating = migrate::migrate(&mut client, migrate::MIGRATIONS);
        let migrated = tokio::time::timeout(postgres.operation_timeout, migrating).await;
        postgres.finish("migrate its tables", client, migrated)?;
        Ok(postgres)
    }

    async fn client(&self, action: &'static str) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| pool_error(action, error))
    }

    /// Closes the connection of an operation that timed out, because its answer could arrive as the answer to
    /// the next.
    fn finish<T>(
        &self,
        action: &'static str,
        client: Object,
        outcome: Result<Result<T, StoreError>, tokio::time::error::Elapsed>,
    ) -> Result<T, StoreError> {
        match outcome {
            Ok(result) => result,
            Err(elapsed) => {
                drop(Object::take(client));
                Err(StoreError::database(action, DatabaseFailure::TimedOut, elapsed))
            }
        }
    }
}

impl SqlBackend for Postgres {
    async fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> Result<T, StoreError> {
        let mut client = self.client(action).await?;
        let writing = async {
            let failed = |error| postgres_error(action, error);
            let transaction = client.transaction().await.map_err(failed)?;
            let written = operation(&mut SqlSession::new(&transaction, action)).await;
            match written {
                Ok(output) => transaction.commit().await.map_err(failed).map(|()| output),
                Err(error) => {
                    // Ignore a failed rollback: the first error says more. A connection whose rollback fails
                    // is closed.
                    let _ = transaction.rollback().await;
                    Err(error)
                }
            }
        };
        let outcome = tokio::time::timeout(self.operation_timeout, writing).await;
        self.finish(action, client, outcome)
    }

    async fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> Result<T, StoreError> {
        let client = self.client(action).await?;
        let mut session = SqlSession::new(&client, action);
        let outcome = tokio::time::timeout(self.operation_timeout, operation(&mut session)).await;
        self.finish(action, client, outcome)
    }

    async fn close(&self) {
        self.pool.close();
    }
}
