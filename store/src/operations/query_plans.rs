//! Tests that SQLite searches each large table through an index.

use rusqlite::Connection;

use super::{events, external_calls, inbox, notes, space_messages};

/// The aliases, in the statements, of rows that a page has already bounded.
const BOUNDED: [&str; 4] = ["candidates", "sized", "found", "(subquery"];

#[test]
fn listings_search_each_table_through_an_index() {
    let connection = Connection::open_in_memory().expect("opens");
    for script in [
        include_str!("../sqlite/schema_1.sql"),
        include_str!("../sqlite/schema_2.sql"),
        include_str!("../sqlite/schema_3.sql"),
        include_str!("../sqlite/schema_4.sql"),
    ] {
        connection.execute_batch(script).expect("the SQL runs");
    }
    for (statement, index) in [
        (space_messages::LIST, "space_messages"),
        (space_messages::SEARCH, "space_message_words"),
        (external_calls::LIST, "calls_by_age"),
        (external_calls::SIZES, "calls_by_age"),
        (external_calls::LIST_SHOWN, "space_messages_by_call"),
        (external_calls::SHOWN_SIZES, "space_messages_by_call"),
        (events::SELECT_EVENTS_OF_TOPIC, "event_topics"),
        (events::SELECT_ALL_EVENTS, "events"),
        (notes::DUE, "notes_by_due"),
        (inbox::WITH_ENTRIES, "inboxes_with_entries"),
    ] {
        let explained = format!("explain query plan {}", statement.replace('$', "?"));
        let mut explained = connection.prepare(&explained).expect("a statement");
        let lines: Vec<String> =
            explained.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().expect("explained");
        for line in &lines {
            let scanned = line.strip_prefix("SCAN ");
            let is_bounded = |name: &str| BOUNDED.iter().any(|bounded| name.starts_with(bounded));
            assert!(scanned.is_none_or(is_bounded), "{statement}: {lines:?}");
        }
        let is_searched = |line: &String| line.contains("SEARCH") && line.contains(index);
        assert!(lines.iter().any(is_searched), "{statement}: {lines:?}");
    }
}
