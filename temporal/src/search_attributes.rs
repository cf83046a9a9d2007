//! The search attributes of a run: its id and its status.

use std::collections::HashMap;

use temporalio_client::{Connection, tonic};
use temporalio_common::{
    protos::temporal::api::{
        enums::v1::IndexedValueType,
        operatorservice::v1::{AddSearchAttributesRequest, ListSearchAttributesRequest},
    },
    search_attributes::{SearchAttributeKey, SearchAttributeUpdate},
};

/// The id of the run in the store.
const RUN: SearchAttributeKey<String> = SearchAttributeKey::keyword("PortcullisRun");

/// The status of the run. The first value is `running`.
const STATUS: SearchAttributeKey<String> = SearchAttributeKey::keyword("PortcullisStatus");

/// Returns the attributes of a run that begins.
pub(crate) fn run_started(run: &str) -> [SearchAttributeUpdate; 2] {
    [RUN.value_set(run.to_owned()), STATUS.value_set("running".to_owned())]
}

/// Returns the attributes of a run that has ended.
pub(crate) fn ended(status: &str) -> [SearchAttributeUpdate; 1] {
    [STATUS.value_set(status.to_owned())]
}

/// Adds the attributes if the server allows it, and returns `true` if the namespace has them. Without the
/// attributes, runs can be found only by their workflow's id.
pub(crate) async fn prepare(connection: &Connection, namespace: &str) -> bool {
    match add_missing(connection, namespace).await {
        Ok(()) => true,
        Err(status) => {
            tracing::warn!(
                error = &status as &dyn std::error::Error,
                namespace,
                "the namespace has no search attributes PortcullisRun and PortcullisStatus (keywords), and they cannot \
                 be added; runs are not searchable"
            );
            false
        }
    }
}

async fn add_missing(connection: &Connection, namespace: &str) -> Result<(), tonic::Status> {
    let namespace = namespace.to_owned();
    let mut operator = connection.operator_service();
    let list = ListSearchAttributesRequest { namespace: namespace.clone() };
    let known = operator.list_search_attributes(tonic::Request::new(list)).await?.into_inner();
    let missing: HashMap<String, i32> = [RUN.name(), STATUS.name()]
        .into_iter()
        .filter(|name| !known.custom_attributes.contains_key(*name))
        .map(|name| (name.to_owned(), IndexedValueType::Keyword.into()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let add = AddSearchAttributesRequest { search_attributes: missing, namespace };
    match operator.add_search_attributes(tonic::Request::new(add)).await {
        // Another worker has added them first.
        Err(status) if status.code() == tonic::Code::AlreadyExists => Ok(()),
        added => added.map(drop),
    }
}
