//! Streams of events.

use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_returning_reader_gets_missed_events_once_and_in_order() {
    let world = World::new().await;
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Home", &[&ada]).await;
    let path = format!("/api/spaces/{space}/events");
    let mut reader = world.events(&token, &path, None).await;
    world.say(&token, &space, "one").await;
    let first = reader.next().await;
    assert_eq!((first.kind.as_str(), &first.data["message"]["text"]), ("message.created", &json!("one")));
    drop(reader);
    for text in ["two", "three"] {
        world.say(&token, &space, text).await;
    }
    let mut reader = world.events(&token, &path, first.id).await;
    world.say(&token, &space, "four").await;
    let mut last = first.id;
    for expected in ["two", "three", "four"] {
        let event = reader.next().await;
        assert_eq!(event.data["message"]["text"], expected);
        assert!(event.id > last, "ids grow");
        last = event.id;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_an_unknown_id_starts_again() {
    let world = World::new().await;
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Home", &[&ada]).await;
    let path = format!("/api/spaces/{space}/events");
    let mut reader = world.events(&token, &path, Some(1_000_000)).await;
    assert_eq!(reader.next().await.kind, "reset");
    world.say(&token, &space, "on").await;
    assert_eq!(reader.next().await.data["message"]["text"], "on");
    for wrong in ["x", "-1", "1.5"] {
        let path = format!("{path}?lastEventId={wrong}");
        assert_eq!(world.call(&token, "GET", &path, None).await.0.as_u16(), 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_space_has_the_events_of_its_own_alone() {
    let world = World::new().await;
    let (ada, token) = world.user("Ada").await;
    let (home, work) = (world.space("Home", &[&ada]).await, world.space("Work", &[&ada]).await);
    let mut reader = world.events(&token, &format!("/api/spaces/{home}/events"), None).await;
    world.say(&token, &work, "at work").await;
    world.say(&token, &home, "at home").await;
    assert_eq!(reader.next().await.data["message"]["text"], "at home");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_get_every_event() {
    let world = World::new().await;
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Home", &[&ada]).await;
    let path = format!("/api/spaces/{space}/events");
    let mut readers = Vec::new();
    // Open more streams than a user's token may have.
    for _ in 0..10_000 {
        readers.push(world.events(&world.admin, &path, None).await);
    }
    for number in 0..5 {
        world.say(&token, &space, &format!("{number}")).await;
    }
    for reader in &mut readers {
        for number in 0..5 {
            assert_eq!(reader.next().await.data["message"]["text"], format!("{number}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_right_to_it() {
    let world = World::new().await;
    let agent = world.agent("Assistant", json!([])).await;
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Home", &[&ada, &agent]).await;
    let of_space = format!("/api/spaces/{space}/events");
    let of_agent = format!("/api/agents/{agent}/events");
    let member = format!("/api/spaces/{space}/members");
    let join = async |id: &str| {
        world.ok(&world.admin, "PUT", &format!("{member}/{id}"), None).await;
    };
    // Each right that can be lost, and the change that revokes it.
    for (path, method, change) in [
        (&of_space, "DELETE", format!("{member}/{ada}")),
        (&of_agent, "DELETE", format!("{member}/{agent}")),
        (&of_space, "DELETE", "token".to_owned()),
    ] {
        join(&ada).await;
        join(&agent).await;
        let (id, own) = world.token_with_id("user", &ada).await;
        let (mut reader, mut operator) =
            (world.events(&own, path, None).await, world.events(&world.admin, path, None).await);
        let change = if change == "token" { format!("/api/tokens/{id}") } else { change };
        world.ok(&world.admin, method, &change, None).await;
        let later = reader.rest().await;
        assert!(later.iter().all(|event| event.kind == "member.left"), "{change}: {later:?}");
        // The operator's stream continues.
        world.ok(&world.admin, "PUT", &format!("{member}/{ada}"), None).await;
        if path == &of_space {
            world.say(&token, &space, "on").await;
            operator.until("message.created").await;
        }
    }
    // A removed space and a removed agent have no readers.
    let mut reader = world.events(&world.admin, &of_agent, None).await;
    world.ok(&world.admin, "DELETE", &format!("/api/agents/{agent}"), None).await;
    reader.rest().await;
    let mut reader = world.events(&world.admin, &of_space, None).await;
    world.ok(&world.admin, "DELETE", &format!("/api/spaces/{space}"), None).await;
    reader.rest().await;
}

/// Another process removes the token in the store, and this gateway is not notified.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_soon_after_another_process_has_taken_its_right() {
    let world = World::new().await;
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Home", &[&ada]).await;
    let (id, own) = world.token_with_id("user", &ada).await;
    let path = format!("/api/spaces/{space}/events");
    let (mut reader, mut other) =
        (world.events(&own, &path, None).await, world.events(&token, &path, None).await);
    assert!(world.store.remove_token(&id).await.expect("removed"));
    // The clock is paused, so the minute passes immediately.
    assert_eq!(reader.rest().await.len(), 0);
    world.say(&token, &space, "on").await;
    other.until("message.created").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_a_limited_number_of_streams() {
    let world = World::new().await;
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Home", &[&ada]).await;
    let path = format!("/api/spaces/{space}/events");
    let mut readers = Vec::new();
    for _ in 0..256 {
        readers.push(world.events(&token, &path, None).await);
    }
    assert_eq!(world.call(&token, "GET", &path, None).await.0.as_u16(), 429);
    let other = world.token("user", &ada).await;
    drop(world.events(&other, &path, None).await);
    readers.pop();
    // A reader that reconnects again and again holds only one stream.
    for _ in 0..1_000 {
        world.events(&token, &path, None).await;
    }
}
