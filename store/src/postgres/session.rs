//! [`SqlSession`]: a connection or transaction that runs the statements of one operation.

use std::error::Error;

use async_trait::async_trait;
use bytes::BytesMut;
use deadpool_postgres::GenericClient;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::failure::postgres_error;
use crate::{
    error::StoreError,
    sql::{Sql, SqlRow, Value},
};

/// A connection or transaction, and the operation that uses it.
pub(super) struct SqlSession<'a, C> {
    client: &'a C,
    action: &'static str,
}

impl<'a, C: GenericClient + Sync> SqlSession<'a, C> {
    pub(super) fn new(client: &'a C, action: &'static str) -> Self {
        Self { client, action }
    }

    async fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<SqlRow>, tokio_postgres::Error> {
        let statement = self.client.prepare_cached(sql).await?;
        let rows = self.client.query(&statement, &parameters(values)).await?;
        rows.iter().map(read_row).collect()
    }

    async fn change(&self, sql: &'static str, values: &[Value]) -> Result<u64, tokio_postgres::Error> {
        let statement = self.client.prepare_cached(sql).await?;
        self.client.execute(&statement, &parameters(values)).await
    }
}

/// Refuses texts with NUL, as the server would. Only an id or name to look up can have one here.
fn check_texts(values: &[Value]) -> Result<(), StoreError> {
    if values.iter().any(|value| matches!(value, Value::Text(text) if text.contains('\0'))) {
        Err(StoreError::Nul { field: "an id or a name" })
    } else {
        Ok(())
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// Reads a row. A column of an unexpected type is an error of `tokio_postgres`.
fn read_row(row: &tokio_postgres::Row) -> Result<SqlRow, tokio_postgres::Error> {
    let values = row.columns().iter().enumerate().map(|(index, column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map_or(Value::Null, Value::Int),
            // `select 1` is an `int4`. All columns of the tables are `int8` or `text`.
            Type::INT4 => {
                row.try_get::<_, Option<i32>>(index)?.map_or(Value::Null, |int| Value::Int(int.into()))
            }
            _ => row.try_get::<_, Option<String>>(index)?.map_or(Value::Null, Value::Text),
        })
    });
    values.collect::<Result<_, _>>().map(SqlRow)
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) => value.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::TEXT)
    }

    to_sql_checked!();
}

#[async_trait]
impl<C: GenericClient + Sync> Sql for SqlSession<'_, C> {
    async fn rows(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<Vec<SqlRow>, StoreError> {
        check_texts(&parameters)?;
        self.query(sql, &parameters).await.map_err(|error| postgres_error(self.action, error))
    }

    async fn execute(&mut self, sql: &'static str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        check_texts(&parameters)?;
        self.change(sql, &parameters).await.map_err(|error| postgres_error(self.action, error))
    }
}
