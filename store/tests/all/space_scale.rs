//! A space with many messages. Pages and searches use indexes, so none reads the whole space.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_store::{Change, GatewayStore, PageRequest};
use rusqlite::Connection;

use crate::{
    conformance::builders::{add_space, new_message},
    postgres_server::Server,
    sqlite::{block_on, database_path, open_gateway},
};

/// The messages of the large space in SQLite.
const MESSAGES: usize = 100_000;

/// Every message whose number is a multiple of this has a rare word.
const RARE: usize = 10_000;

async fn fill(store: &Arc<dyn GatewayStore>, messages: usize) {
    add_space(&**store, "s").await;
    let ids: Vec<usize> = (0..messages).collect();
    for group in ids.chunks(200) {
        let posted = group.iter().map(|number| {
            let rare = if number % RARE == 0 { "rare" } else { "usual" };
            let text = format!("message {number} is {rare} and says hello");
            Change::PostMessage(new_message("s", &format!("m{number}"), &text))
        });
        store.apply(posted.collect()).await.expect("posted");
    }
}

/// Reads all pages, and returns the number of messages and the time of the slowest page.
async fn read(store: &dyn GatewayStore, search: Option<&str>, limit: u32) -> (usize, Duration) {
    let (mut request, mut count, mut slowest) = (PageRequest::first(limit), 0, Duration::ZERO);
    loop {
        let started_at = Instant::now();
        let page = store.space_messages("s", search, request).await.expect("a page");
        slowest = slowest.max(started_at.elapsed());
        count += page.items.len();
        let Some(cursor) = page.next else { return (count, slowest) };
        request = PageRequest::after(cursor, limit);
    }
}

async fn check(store: &Arc<dyn GatewayStore>, messages: usize) {
    fill(store, messages).await;
    let rare = messages.div_ceil(RARE);
    for (search, expected) in [
        (None, messages),
        (Some("hello"), messages),
        (Some("rare"), rare),
        (Some("message rare hello"), rare),
        (Some("nowhere"), 0),
        (Some("hello nowhere"), 0),
    ] {
        let (count, slowest) = read(&**store, search, 1_000).await;
        println!("{search:?} in {messages} messages: {count}, slowest page {slowest:?}");
        assert_eq!(count, expected, "{search:?}");
    }
}

#[test]
fn a_large_space_is_listed_and_searched_in_pages() {
    let (_folder, path) = database_path();
    block_on(async { check(&open_gateway(&path).await, MESSAGES).await });
    // The query plans use an index for each table, and scan none.
    let connection = Connection::open(&path).expect("opens");
    let plan = |statement: &str| {
        let mut explained = connection.prepare(&format!("explain query plan {statement}")).expect("prepared");
        let lines = explained.query_map([], |row| row.get::<_, String>(3)).expect("explained");
        lines.collect::<Result<Vec<_>, _>>().expect("readable")
    };
    let word = "select ordinal from space_message_words w where space = 's' and word = 'hello' and ordinal < 9 \
         and exists (select 1 from space_message_words where space = 's' and word = 'rare' and ordinal = w.ordinal) \
         order by ordinal desc limit 9";
    let events = "select id, bytes from event_topics join events on id = event where topic = 't' and event > 1 \
         order by event limit 9";
    for statement in [
        "select ordinal, bytes from space_messages where space = 's' and ordinal < 9 order by ordinal desc limit 9",
        word,
        events,
        "select agent, id from notes where due is not null and due <= 1 order by due, agent, id limit 9",
        "select agent from inboxes where waiting > 0 and agent >= 'a' and agent < 'b' order by agent limit 9",
        "select id from runs where agent = 'a' and ended = 0 and (created, id) < (1, '') order by created desc, id desc",
    ] {
        let lines = plan(statement);
        let is_indexed = |line: &String| !line.starts_with("SCAN") && !line.contains("TEMP B-TREE");
        assert!(lines.iter().all(is_indexed), "{statement}: {lines:?}");
    }
}

#[test]
fn a_large_space_on_a_server_is_listed_and_searched_in_pages() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        let store = portcullis_store::open_gateway(&url).await.expect("opens");
        check(&store, MESSAGES / 10).await;
    });
}
