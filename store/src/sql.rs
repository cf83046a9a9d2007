//! The common parts of both databases: statements with numbered parameters, and rows of integers and texts. A
//! statement names its parameters `$1`, `$2`, …, and both databases understand it.

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::error::{DatabaseFailure, StoreError};

/// An open transaction, or a connection that reads.
#[async_trait]
pub(crate) trait Sql: Send {
    /// Runs a statement, and returns its rows.
    async fn rows(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<Vec<SqlRow>, StoreError>;

    /// Runs a statement, and returns the number of rows that it has changed.
    async fn execute(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<u64, StoreError>;

    /// Runs a statement that has at most one row.
    async fn row(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<Option<SqlRow>, StoreError> {
        Ok(self.rows(sql, parameters).await?.into_iter().next())
    }
}

/// The work of a store in one transaction.
pub(crate) type TransactionWork<T> =
    Box<dyn for<'a> FnOnce(&'a mut (dyn Sql + 'a)) -> BoxFuture<'a, Result<T, StoreError>> + Send>;

/// A database. [`Store`](crate::engine::Store) makes a store of it.
pub(crate) trait SqlBackend: Send + Sync + 'static {
    /// Runs the operation in a write transaction; on an error it is rolled back. `action` names the operation in errors.
    fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;

    /// Runs the operation in a read transaction.
    fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;

    /// Ends the work that was accepted, and closes all connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// A value of a column or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The parameters of a statement.
macro_rules! parameters {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::Value::from($value)),*] };
}
pub(crate) use parameters;

/// A row of a result. Its columns are taken by their index, from 0.
#[derive(Debug)]
pub(crate) struct SqlRow(pub(crate) Vec<Value>);

/// A column with an unexpected value. Only a damaged or foreign database has one.
#[derive(Debug, Error)]
#[error("column {column} has the unexpected value {found:?}")]
struct ColumnError {
    column: usize,
    found: Option<Value>,
}

impl SqlRow {
    pub(crate) fn int(&mut self, column: usize) -> Result<i64, StoreError> {
        match self.take(column) {
            Some(Value::Int(value)) => Ok(value),
            found => Err(unreadable_row(ColumnError { column, found })),
        }
    }

    pub(crate) fn text(&mut self, column: usize) -> Result<String, StoreError> {
        match self.take(column) {
            Some(Value::Text(value)) => Ok(value),
            found => Err(unreadable_row(ColumnError { column, found })),
        }
    }

    pub(crate) fn optional_int(&mut self, column: usize) -> Result<Option<i64>, StoreError> {
        // A missing column is not null, so `int` reports it as damage.
        if self.is_null(column) { Ok(None) } else { self.int(column).map(Some) }
    }

    pub(crate) fn optional_text(&mut self, column: usize) -> Result<Option<String>, StoreError> {
        if self.is_null(column) { Ok(None) } else { self.text(column).map(Some) }
    }

    /// Takes a text and parses it.
    pub(crate) fn parsed<T, E>(
        &mut self,
        column: usize,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, StoreError>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        // This crate has written the text, so a text that does not parse means a damaged row.
        parse(&self.text(column)?).map_err(unreadable_row)
    }

    fn is_null(&self, column: usize) -> bool {
        matches!(self.0.get(column), Some(Value::Null))
    }

    fn take(&mut self, column: usize) -> Option<Value> {
        // Move the value out, because a copy of a payload can have 16 MiB.
        self.0.get_mut(column).map(|value| std::mem::replace(value, Value::Null))
    }
}

fn unreadable_row(source: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::database("read a row", DatabaseFailure::Corrupt, source)
}
