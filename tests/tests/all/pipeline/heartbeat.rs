//! Heartbeats: the observer of a silent call learns that the call still runs.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use portcullis_tools::{Caller, ToolRegistry};
use portcullis_types::{ToolEvent, ToolOutput};
use tokio::sync::Notify;

use crate::support::{Spy, caller, fixture_enabling, native_registry, raw_call, record_events};

/// A little more than the five seconds of the interval, because timers round up to whole milliseconds.
const INTERVAL: Duration = Duration::from_millis(5010);

/// Advances the clock, and runs every task whose timer has expired.
async fn advance_clock(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_gives_a_sign_of_life_every_five_seconds() {
    let fixture = fixture_enabling(&["spy"]);
    let (begun, speak, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let spoken = Arc::new(Notify::new());
    let spy_handles = (Arc::clone(&begun), Arc::clone(&speak), Arc::clone(&spoken), Arc::clone(&end));
    let spy = Spy::new("spy", move |ctx, _| {
        let (begun, speak, spoken, end) = spy_handles.clone();
        async move {
            begun.notify_one();
            speak.notified().await;
            ctx.progress("half");
            spoken.notify_one();
            end.notified().await;
            Ok(ToolOutput::text("done"))
        }
    });
    let registry = native_registry(&fixture, [spy.timeout(Duration::from_secs(500))]);
    let mut caller = caller();
    let events = record_events(&mut caller);
    let call = registry.execute_with_policy(raw_call("spy", "{}"), &caller);
    let clock = async {
        begun.notified().await;
        for _ in 0..2 {
            advance_clock(INTERVAL).await;
        }
        advance_clock(Duration::from_secs(4)).await;
        speak.notify_one();
        spoken.notified().await;
        // The tool reports in this interval, and not in the next.
        advance_clock(INTERVAL - Duration::from_secs(4)).await;
        advance_clock(INTERVAL).await;
        end.notify_one();
    };
    let (result, ()) = tokio::join!(call, clock);
    assert_eq!(result.model_text(), "done");
    let events = events.lock().expect("not poisoned").clone();
    let beat = |seconds: u64| format!("heartbeat {seconds} s");
    assert_eq!(
        events,
        ["requested spy", "started spy", &beat(5), &beat(10), "progress half", &beat(20), "finished"]
    );
}

#[tokio::test(start_paused = true)]
async fn nested_call_events_are_not_a_heartbeat_of_the_outer_tool() {
    let fixture = fixture_enabling(&["outer", "inner"]);
    let cell: Arc<OnceLock<Arc<ToolRegistry>>> = Arc::default();
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let spy_handles = (Arc::clone(&begun), Arc::clone(&end));
    let long = Duration::from_secs(500);
    let inner = Spy::new("inner", move |_, _| {
        let (begun, end) = spy_handles.clone();
        async move {
            begun.notify_one();
            end.notified().await;
            Ok(ToolOutput::text("done"))
        }
    });
    let registries = Arc::clone(&cell);
    let outer = Spy::new("outer", move |ctx, _| {
        let registry = Arc::clone(registries.get().expect("set"));
        async move {
            registry.execute_with_policy(raw_call("inner", "{}"), &Caller::nested(&ctx)).await.into_result()
        }
    });
    let registry = Arc::new(native_registry(&fixture, [inner.timeout(long), outer.timeout(long)]));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let mut caller = caller();
    let beats = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&beats);
    caller.on_event = Some(Arc::new(move |event| {
        if let ToolEvent::Heartbeat { call_id, .. } = event {
            sink.lock().expect("not poisoned").push(call_id.clone());
        }
    }));
    let call = raw_call("outer", "{}");
    let id = call.id.clone();
    let call = registry.execute_with_policy(call, &caller);
    let clock = async {
        begun.notified().await;
        for _ in 0..3 {
            advance_clock(INTERVAL).await;
        }
        end.notify_one();
    };
    let (result, ()) = tokio::join!(call, clock);
    assert_eq!(result.model_text(), "done");
    let beats = beats.lock().expect("not poisoned").clone();
    assert_eq!(beats.iter().filter(|call| **call == id).count(), 3, "{beats:?}");
    drop(cell);
}
