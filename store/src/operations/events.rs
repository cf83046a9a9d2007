//! The log of events. The table `event_log` has one row, which gives the ids. A transaction holds the row's
//! lock until its end, so ids become visible in increasing order.

use std::collections::BTreeSet;

use super::pages::{PageItem, labels_text, page, parse_labels};
use crate::{
    error::StoreError,
    json::Json,
    limits::{
        MAX_EVENT_BYTES, MAX_PAGE_BYTES, MAX_SWEPT_ROWS, MAX_TOPICS, check_count, check_name, check_size,
        to_i64,
    },
    model::{Event, EventBounds, NewEvent, Page, PageRequest},
    sql::{Sql, SqlRow, parameters},
};

/// Takes the lock of the log. Transactions that lock several rows take it first, so that no two of them
/// deadlock.
pub(super) async fn lock_log(sql: &mut dyn Sql) -> Result<(), StoreError> {
    sql.execute("update event_log set newest = newest", parameters![]).await.map(|_| ())
}

pub(crate) async fn append_event(sql: &mut dyn Sql, event: NewEvent) -> Result<i64, StoreError> {
    check_name("the kind of the event", &event.kind)?;
    check_size("the data of the event", event.data.len(), MAX_EVENT_BYTES)?;
    check_count("the topics of the event", to_i64(event.topics.len()), to_i64(MAX_TOPICS))?;
    event.topics.iter().try_for_each(|topic| check_name("a topic", topic))?;
    if event.topics.is_empty() {
        return Err(StoreError::Invalid { field: "the topics of the event", expected: "one topic or more" });
    }
    let row = sql.row("update event_log set newest = newest + 1 returning newest", parameters![]).await?;
    // The migration inserts the one row, so the fallback is never used.
    let id = row.map_or(Ok(1), |mut row| row.int(0))?;
    sql.execute(
        "insert into events (id, created, kind, topics, bytes, data) values ($1, $2, $3, $4, $5, $6)",
        parameters![
            id,
            event.created,
            event.kind,
            labels_text(&event.topics)?,
            to_i64(event.data.len()),
            event.data.into_text()
        ],
    )
    .await?;
    // A set, because a topic that is named twice would break the primary key.
    for topic in event.topics.iter().collect::<BTreeSet<_>>() {
        sql.execute("insert into event_topics (topic, event) values ($1, $2)", parameters![topic, id])
            .await?;
    }
    Ok(id)
}

/// The statement that lists events from a source of their ids.
macro_rules! select_events {
    ($ids:literal) => {
        concat!(
            "select e.id, e.created, e.kind, e.topics, e.data, e.bytes from events e join ( \
                 select id, cast(sum(bytes) over (order by id) as bigint) - bytes as before from (",
            $ids,
            ") as candidates \
             ) as sized on sized.id = e.id where sized.before < $3 order by e.id"
        )
    };
}

/// The statements of a listing: of a topic, and of all.
pub(super) const SELECT_EVENTS_OF_TOPIC: &str = select_events!(
    "select id, bytes from event_topics join events on id = event \
     where topic = $4 and event > $1 order by event limit $2"
);
pub(super) const SELECT_ALL_EVENTS: &str =
    select_events!("select id, bytes from events where id > $1 order by id limit $2");

pub(crate) async fn events(
    sql: &mut dyn Sql,
    topic: Option<String>,
    request: PageRequest<i64>,
) -> Result<Page<Event, i64>, StoreError> {
    let limit = request.rows();
    let mut parameters = parameters![request.after.unwrap_or(0), limit, MAX_PAGE_BYTES];
    let statement = match topic {
        Some(topic) => {
            parameters.push(topic.into());
            SELECT_EVENTS_OF_TOPIC
        }
        None => SELECT_ALL_EVENTS,
    };
    let rows = sql.rows(statement, parameters).await?;
    page(rows, limit, read_event)
}

fn read_event(row: &mut SqlRow) -> Result<PageItem<Event, i64>, StoreError> {
    let id = row.int(0)?;
    let event = Event {
        id,
        created: row.int(1)?,
        kind: row.text(2)?,
        topics: row.parsed(3, parse_labels)?,
        data: Json::stored(row.text(4)?),
    };
    Ok(PageItem { item: event, cursor: id, payload_bytes: row.int(5)? })
}

pub(crate) async fn event_bounds(sql: &mut dyn Sql) -> Result<EventBounds, StoreError> {
    let row = sql.row("select newest, removed from event_log", parameters![]).await?;
    let (newest, removed) = match row {
        Some(mut row) => (row.int(0)?, row.int(1)?),
        None => (0, 0),
    };
    Ok(EventBounds { newest, removed })
}

pub(crate) async fn remove_events_before(
    sql: &mut dyn Sql,
    time: i64,
    at_most: u32,
) -> Result<u64, StoreError> {
    let limit = i64::from(at_most.min(MAX_SWEPT_ROWS));
    lock_log(sql).await?;
    // Delete the oldest events only up to the first that is kept, so that the kept events have no gaps.
    let rows = sql
        .rows(
            "delete from events where id in (select id from events order by id limit $2) \
             and id < coalesce((select min(id) from ( \
                 select id, created from events order by id limit $2 \
             ) as oldest where created >= $1), 9223372036854775807) returning id",
            parameters![time, limit],
        )
        .await?;
    let ids = rows.into_iter().map(|mut row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    let Some(last) = ids.iter().max() else { return Ok(0) };
    // A reader that reconnects compares its position with `removed`, and so detects that it missed events.
    sql.execute("update event_log set removed = $1 where removed < $1", parameters![*last]).await?;
    Ok(u64::try_from(ids.len()).unwrap_or(u64::MAX))
}

/// Removes a topic from at most this many events, and deletes the events that have no other topic. Returns
/// the number of events that the topic was removed from.
pub(super) async fn remove_topic(sql: &mut dyn Sql, topic: &str, limit: i64) -> Result<u64, StoreError> {
    let rows = sql
        .rows(
            "delete from event_topics where topic = $1 and event in ( \
                 select event from event_topics where topic = $1 order by event limit $2 \
             ) returning event",
            parameters![topic, limit],
        )
        .await?;
    let ids = rows.into_iter().map(|mut row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else { return Ok(0) };
    // Every event has at least one topic. An event in this range without a topic has therefore just lost its last one.
    sql.execute(
        "delete from events where id between $1 and $2 \
         and not exists (select 1 from event_topics where event = events.id)",
        parameters![*first, *last],
    )
    .await?;
    Ok(u64::try_from(ids.len()).unwrap_or(u64::MAX))
}
