//! Events: parsing, limits, and silence.

use std::{convert::Infallible, io};

use axum::body::Body;
use proptest::prelude::*;
use serde_json::json;
use tokio::time::{Instant, interval};

use super::*;
use crate::testing::{self, End, FakeGateway, pending, stored};

async fn read(chunks: Vec<Bytes>) -> Vec<Result<Event, ClientError>> {
    of_chunks(stream::iter(chunks.into_iter().map(Ok))).collect().await
}

async fn check(text: &str, expected: &[(Option<&str>, &str, Value)]) {
    let events = read(vec![Bytes::copy_from_slice(text.as_bytes())]).await;
    let events: Vec<Event> = events.into_iter().map(|event| event.expect("an event")).collect();
    let expected: Vec<Event> = expected
        .iter()
        .map(|(id, kind, data)| Event {
            id: id.map(str::to_owned),
            kind: (*kind).to_owned(),
            data: data.clone(),
        })
        .collect();
    assert_eq!(events, expected, "{text:?}");
}

#[tokio::test]
async fn events_are_read_as_the_gateway_writes_them() {
    check("retry: 1000\n\n:\n\n", &[]).await;
    check("id: 7\nevent: reset\ndata: {}\n\n", &[(Some("7"), "reset", json!({}))]).await;
    check("event: message.streaming\ndata: [1,\ndata: 2]\n\n", &[(None, "message.streaming", json!([1, 2]))])
        .await;
    check("data: 1\r\n\r\ndata: 2\r\rdata: 3\n\n", &[1, 2, 3].map(|number| (None, "message", json!(number))))
        .await;
    check("id: 1\nevent: cut.off\ndata: 1\n", &[]).await;
}

#[tokio::test]
async fn a_call_is_read_from_its_event() {
    let event = pending(3, "cal_1", "fetch", &json!({ "query": "x" }));
    let event = read(vec![event.into()]).await.remove(0).expect("an event");
    let call = event.call().expect("readable").expect("a call");
    assert_eq!((&*call.call_id, &*call.tool_name, call.args), ("cal_1", "fetch", json!({ "query": "x" })));
    let other = Event { kind: "call.resolved".to_owned(), ..event.clone() };
    assert_eq!(other.call().expect("readable"), None);
    for (key, value) in [("callId", json!(1)), ("callId", json!("..")), ("runId", json!("x".repeat(1000)))] {
        let mut faulty = event.clone();
        faulty.data[key] = value;
        assert!(matches!(faulty.call(), Err(ClientError::Unreadable { subject: "event", .. })), "{key}");
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_first_fault() {
    let faults =
        ["data: {\n\n", "no field\n\n", "data: \u{fffd}x\n\n", "id: a b\ndata: 1\n\n", "id: \ndata: 1\n\n"];
    for fault in faults {
        let text = format!("data: 1\n\n{fault}data: 2\n\n");
        // The parser may report a fault before the events of the same chunk.
        let cut = "data: 1\n\n".len();
        let chunks = vec![
            Bytes::copy_from_slice(&text.as_bytes()[..cut]),
            Bytes::copy_from_slice(&text.as_bytes()[cut..]),
        ];
        let events = read(chunks).await;
        let [Ok(first), Err(ClientError::Unreadable { subject: "event", .. })] = &*events else {
            panic!("{fault:?}: {events:?}");
        };
        assert_eq!(first.data, json!(1));
    }
    let events = read(vec![Bytes::from_static(b"data: \"\xff\"\n\n")]).await;
    assert!(matches!(&*events, [Err(ClientError::Unreadable { .. })]), "{events:?}");
}

#[tokio::test]
async fn an_event_of_10_megabytes_is_refused() {
    let fake = FakeGateway::start();
    let large = stored(2, "message.created", &json!("x".repeat(10_000_000)));
    let parts = [stored(1, "message.created", &json!(1)), large, stored(3, "message.created", &json!(3))];
    fake.noted().streams.push_back(testing::stream(parts, End::IsSilent));
    let events: Vec<_> = fake.client().events("agt_1", None).await.expect("connects").collect().await;
    let [Ok(_), Err(error)] = &*events else { panic!("{} events", events.len()) };
    assert!(
        matches!(error, ClientError::TooLarge { subject: "event", limit_bytes } if *limit_bytes == 8 << 20)
    );
}

#[tokio::test]
async fn the_lines_of_an_event_count_together_and_events_do_not() {
    let line = format!("data: \"{}\"\n", "x".repeat(1 << 20));
    let events = read(vec![line.clone().into(); 9]).await;
    assert!(matches!(&*events, [Err(ClientError::TooLarge { .. })]), "{} events", events.len());
    for end in ["\n", "\r\n", "\r"] {
        let event = line.replace('\n', &format!("{end}{end}"));
        let events = read(vec![event.into(); 9]).await;
        assert_eq!(events.iter().filter(|event| event.is_ok()).count(), 9, "{end:?}");
    }
    // Comments never end an event, and an empty line ends them.
    let comments = vec![Bytes::from(format!(":{}\n\n", "x".repeat(1 << 20))); 20];
    assert!(read(comments).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_silent_for_60_seconds_is_lost() {
    let fake = FakeGateway::start();
    fake.noted().streams.push_back(testing::stream([stored(1, "a", &json!(1))], End::IsSilent));
    let mut events = fake.client().events("agt_1", None).await.expect("connects");
    events.next().await.expect("an event").expect("readable");
    let begun = Instant::now();
    let error = events.next().await.expect("an end").expect_err("silent");
    assert!(matches!(error, ClientError::Silent { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn comments_keep_a_stream_open() {
    let fake = FakeGateway::start();
    let begun = Instant::now();
    let comments = stream::unfold(interval(Duration::from_secs(15)), async |mut interval| {
        interval.tick().await;
        Some((Bytes::from_static(b":\n\n"), interval))
    });
    let event = stream::once(future::ready(Bytes::from(stored(1, "a", &json!(1)))));
    let body = Body::from_stream(comments.take(100).chain(event).map(Ok::<_, Infallible>));
    fake.noted().streams.push_back(testing::event_stream(body));
    let mut events = fake.client().events("agt_1", None).await.expect("connects");
    assert_eq!(events.next().await.expect("an event").expect("readable").data, json!(1));
    assert_eq!(begun.elapsed().as_secs(), 99 * 15);
    assert!(events.next().await.is_none(), "the gateway has ended it");
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error() {
    let fake = FakeGateway::start();
    fake.noted().streams.push_back(testing::stream([stored(1, "a", &json!(1))], End::Breaks));
    let events: Vec<_> = fake.client().events("agt_1", None).await.expect("connects").collect().await;
    assert!(matches!(&*events, [Ok(_), Err(ClientError::Connection { .. })]), "{events:?}");
}

#[tokio::test]
async fn an_error_of_the_bytes_is_not_wrapped() {
    let chunks = stream::once(future::ready(Err(ClientError::connection(io::Error::other("lost")))));
    let events: Vec<_> = of_chunks(chunks).collect().await;
    assert!(matches!(&*events, [Err(ClientError::Connection { .. })]), "{events:?}");
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same_events(
        texts in prop::collection::vec("[a-zé\u{1F600} ]{0,8}", 0..6),
        end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        cuts in prop::collection::vec(1_usize..7, 1..40),
    ) {
        let whole: String = texts
            .iter()
            .enumerate()
            .map(|(id, text)| format!("id: {id}{end}event: k{end}data: {}{end}{end}", json!(text)))
            .collect();
        let mut rest = Bytes::from(whole);
        let mut chunks = Vec::new();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            chunks.push(rest.split_to((*cut).min(rest.len())));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let events = runtime.block_on(read(chunks));
        let read_texts: Vec<_> = events.into_iter().map(|event| event.expect("an event").data).collect();
        prop_assert_eq!(read_texts, texts.iter().map(|text| json!(text)).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let events = runtime.block_on(read(bytes.chunks(7).map(Bytes::copy_from_slice).collect()));
        prop_assert!(events.iter().rev().skip(1).all(Result::is_ok), "an error is the last");
    }
}
