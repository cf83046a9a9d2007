//! [`SqlSession`]: a connection that runs the statements of one operation.

use async_trait::async_trait;
use rusqlite::{
    Connection, ToSql,
    types::{ToSqlOutput, ValueRef},
};

use super::sqlite_error;
use crate::{
    error::{DatabaseFailure, StoreError},
    sql::{Sql, SqlRow, TransactionWork, Value},
};

/// A connection, and the operation that uses it.
pub(super) struct SqlSession<'a> {
    connection: &'a mut Connection,
    action: &'static str,
}

impl<'a> SqlSession<'a> {
    pub(super) fn new(connection: &'a mut Connection, action: &'static str) -> Self {
        Self { connection, action }
    }

    /// Runs an operation. Its futures never wait: an SQLite statement runs on the thread that asks for it.
    pub(super) fn run<T>(&mut self, operation: TransactionWork<T>) -> Result<T, StoreError> {
        pollster::block_on(operation(self))
    }

    fn query(&mut self, sql: &str, parameters: &[Value]) -> rusqlite::Result<Vec<SqlRow>> {
        // In SQLite `$1` is a name, numbered by its first appearance; `?1` is the number itself.
        let mut statement = self.connection.prepare_cached(&sql.replace('$', "?"))?;
        let columns = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(parameters))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let mut values = Vec::with_capacity(columns);
            for column in 0..columns {
                values.push(read_value(row.get_ref(column)?));
            }
            found.push(SqlRow(values));
        }
        Ok(found)
    }
}

/// A value that the tables cannot have becomes null, which the reader of the row refuses.
fn read_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Null,
        },
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Value::Null,
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

#[async_trait]
impl Sql for SqlSession<'_> {
    async fn rows(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<Vec<SqlRow>, StoreError> {
        self.query(sql, &parameters).map_err(|error| sqlite_error(self.action, error))
    }

    async fn execute(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        let run = || -> rusqlite::Result<usize> {
            let mut statement = self.connection.prepare_cached(&sql.replace('$', "?"))?;
            statement.execute(rusqlite::params_from_iter(&parameters))
        };
        let changed = run().map_err(|error| sqlite_error(self.action, error))?;
        u64::try_from(changed)
            .map_err(|error| StoreError::database(self.action, DatabaseFailure::Other, error))
    }
}
