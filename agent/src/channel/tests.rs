//! Tests of the stream of events.

use std::{sync::Arc, time::Duration};

use portcullis_types::{ToolOutcome, ToolOutput, ToolResult};

use super::*;
use crate::AgentEnd;

fn channel(capacity: usize) -> (EventSender, EventReceiver) {
    event_channel(NonZeroUsize::new(capacity).expect("not 0"))
}

fn turn(iteration: u32) -> AgentEvent {
    AgentEvent::TurnStart { iteration }
}

fn text(delta: &str) -> AgentEvent {
    AgentEvent::TextDelta { delta: delta.into() }
}

fn arguments(call: &str, delta: &str) -> AgentEvent {
    let (call_id, tool) = (call.into(), "t".into());
    AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id, tool, delta: delta.into() })
}

fn update(call: &str, text: &str) -> AgentEvent {
    AgentEvent::Tool(ToolEvent::Update { call_id: call.into(), partial: ToolOutput::text(text) })
}

fn progress(call: &str, text: &str) -> AgentEvent {
    AgentEvent::Tool(ToolEvent::Progress { call_id: call.into(), text: text.into() })
}

fn started(call: &str) -> AgentEvent {
    AgentEvent::Tool(ToolEvent::Started { call_id: call.into(), tool: "t".into() })
}

fn end(call: &str) -> AgentEvent {
    let result = ToolResult {
        call_id: call.into(),
        tool: "t".into(),
        outcome: ToolOutcome::Output(ToolOutput::text("done")),
        details: serde_json::Value::Null,
        truncated: false,
        original_bytes: 4,
        duration: Duration::ZERO,
    };
    AgentEvent::ToolEnd { result: Arc::new(result) }
}

fn drain(receiver: &mut EventReceiver) -> Vec<AgentEvent> {
    std::iter::from_fn(|| receiver.try_recv()).collect()
}

#[tokio::test]
async fn a_reader_that_keeps_up_reads_every_event() {
    let (sender, mut receiver) = channel(100);
    let events = [text("a"), text("b"), update("c", "1"), update("c", "2"), progress("c", "3"), end("c")];
    for event in &events {
        sender.emit(event.clone()).await;
    }
    drop(sender);
    let mut read = Vec::new();
    while let Some(event) = receiver.recv().await {
        read.push(event);
    }
    assert_eq!(read, events);
    assert_eq!(receiver.dropped(), 0);
}

#[tokio::test]
async fn a_run_waits_for_a_lagging_reader_and_loses_no_event() {
    let (sender, mut receiver) = channel(8);
    let writer = async {
        for nth in 0..10_000 {
            sender.emit(turn(nth)).await;
        }
        sender.emit(AgentEvent::AgentEnd { end: AgentEnd::Cancelled }).await;
        drop(sender);
    };
    let reader = async {
        let mut read = Vec::new();
        while let Some(event) = receiver.recv().await {
            assert!(receiver.waiting() <= 8);
            read.push(event);
            tokio::task::yield_now().await;
        }
        read
    };
    let ((), read) = futures_util::join!(writer, reader);
    assert_eq!(read.len(), 10_001);
    assert!((0..10_000).zip(&read).all(|(nth, event)| *event == turn(nth)));
    assert_eq!(read[10_000], AgentEvent::AgentEnd { end: AgentEnd::Cancelled });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_writers_wait_without_missing_their_turn() {
    let (sender, mut receiver) = channel(2);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8_u32 {
        let sender = sender.clone();
        writers.spawn(async move {
            for nth in 0..500 {
                sender.emit(turn(writer * 500 + nth)).await;
            }
        });
    }
    drop(sender);
    let mut read = Vec::new();
    while let Some(AgentEvent::TurnStart { iteration }) = receiver.recv().await {
        read.push(iteration);
    }
    read.sort_unstable();
    assert_eq!(read, (0..4000).collect::<Vec<_>>());
}

#[tokio::test]
async fn text_pieces_are_joined_behind_a_lagging_reader() {
    let (sender, mut receiver) = channel(3);
    sender.emit(turn(1)).await;
    for _ in 0..1000 {
        sender.emit(text("ab")).await;
    }
    sender.emit(arguments("c", "{")).await;
    assert_eq!(receiver.waiting(), 3);
    // A piece for the same call is joined and need not wait; a piece for another call waits.
    sender.emit(arguments("c", "}")).await;
    let waits = tokio::time::timeout(Duration::from_millis(20), sender.emit(arguments("d", "{"))).await;
    assert!(waits.is_err());
    let read = drain(&mut receiver);
    let read_text: String = read
        .iter()
        .filter_map(|event| match event {
            AgentEvent::TextDelta { delta } => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(read_text, "ab".repeat(1000));
    assert_eq!(read[2], arguments("c", "{}"));
    assert_eq!(receiver.dropped(), 0);
}

#[tokio::test]
async fn joined_text_does_not_grow_without_bounds() {
    let (sender, receiver) = channel(2);
    let piece = "x".repeat(MAX_JOINED_BYTES / 2);
    for _ in 0..4 {
        sender.emit(text(&piece)).await;
    }
    // Two entries, both full.
    let waits = tokio::time::timeout(Duration::from_millis(20), sender.emit(text(&piece))).await;
    assert!(waits.is_err());
    assert_eq!(receiver.waiting(), 2);
}

#[tokio::test]
async fn behind_a_lagging_reader_the_latest_update_of_a_call_stays() {
    let (sender, mut receiver) = channel(16);
    for call in ["a", "b"] {
        sender.emit_now(started(call));
    }
    for nth in 0..10_000 {
        for call in ["a", "b"] {
            sender.emit_now(update(call, &nth.to_string()));
            sender.emit_now(progress(call, &nth.to_string()));
        }
        assert!(receiver.waiting() <= 16 + 4);
    }
    sender.emit(end("a")).await;
    let dropped = receiver.dropped();
    let read = drain(&mut receiver);
    assert_eq!(read[..2], [started("a"), started("b")]);
    assert_eq!(*read.last().expect("an end"), end("a"));
    for latest in [update("a", "9999"), update("b", "9999"), progress("a", "9999"), progress("b", "9999")] {
        assert!(read.contains(&latest));
    }
    assert_eq!(dropped + read.len() as u64, 2 + 4 * 10_000 + 1, "each is read or counted");
}

#[test]
fn immediate_events_do_not_wait_and_are_bounded() {
    let (sender, receiver) = channel(1);
    for nth in 0..10_000 {
        sender.emit_now(started(&nth.to_string()));
    }
    assert_eq!(receiver.waiting(), 1 + MAX_EVENTS_BEYOND_CAPACITY);
    assert_eq!(receiver.dropped(), 10_000 - 1 - MAX_EVENTS_BEYOND_CAPACITY as u64);
}

#[test]
fn ends_have_reserved_room_which_is_bounded_too() {
    let (sender, mut receiver) = channel(1);
    for nth in 0..10_000 {
        sender.emit_now(started(&nth.to_string()));
    }
    let full = 1 + MAX_EVENTS_BEYOND_CAPACITY;
    assert_eq!(receiver.waiting(), full);
    let left_out = receiver.dropped();
    for nth in 1..MAX_ENDS_BEYOND_CAPACITY {
        sender.emit_now(end(&nth.to_string()));
    }
    let last = AgentEvent::AgentEnd { end: AgentEnd::Cancelled };
    sender.emit_now(last.clone());
    assert_eq!((receiver.waiting(), receiver.dropped()), (full + MAX_ENDS_BEYOND_CAPACITY, left_out));
    // Ordinary events of calls cannot use the reserved room, but the ends of several runs can fill it.
    sender.emit_now(started("late"));
    sender.emit_now(text("late"));
    sender.emit_now(end("one more"));
    assert_eq!((receiver.waiting(), receiver.dropped()), (full + MAX_ENDS_BEYOND_CAPACITY, left_out + 3));
    let read = drain(&mut receiver);
    assert!((1..MAX_ENDS_BEYOND_CAPACITY).all(|nth| read[full + nth - 1] == end(&nth.to_string())));
    assert_eq!(read.last(), Some(&last));
}

#[tokio::test]
async fn a_run_does_not_wait_for_a_reader_that_is_gone() {
    let (sender, receiver) = channel(1);
    assert!(sender.listens());
    sender.emit(turn(1)).await;
    let waiting = async { sender.emit(turn(2)).await };
    let going = async {
        tokio::task::yield_now().await;
        drop(receiver);
    };
    futures_util::join!(waiting, going);
    for nth in 0..100 {
        sender.emit(turn(nth)).await;
        sender.emit_now(update("a", "x"));
    }
    assert!(!sender.listens());
    assert_eq!(sender.channel.lock().queue.len(), 0);
}

#[tokio::test]
async fn the_stream_ends_when_all_senders_are_dropped() {
    let (sender, mut receiver) = channel(4);
    let second_sender = sender.clone();
    drop(sender);
    let writer = async move {
        tokio::task::yield_now().await;
        second_sender.emit(turn(1)).await;
    };
    let reader = async { (receiver.recv().await, receiver.recv().await) };
    let ((), read) = futures_util::join!(writer, reader);
    assert_eq!(read, (Some(turn(1)), None));
}
