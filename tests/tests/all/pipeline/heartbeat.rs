//! Whoever watches a call that says nothing is told that it runs.

use std::{sync::Arc, time::Duration};

use portcullis_types::ToolOutput;
use tokio::sync::Notify;

use crate::support::{Spy, caller, listening, natives, raw, world_enabling};

/// A little more than the five seconds, since timers wait for whole milliseconds.
const STRETCH: Duration = Duration::from_millis(5010);

/// Lets time pass, and everybody act who waited for it.
async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_gives_a_sign_of_life_every_five_seconds() {
    let world = world_enabling(&["spy"]);
    let (begun, speak, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let spoken = Arc::new(Notify::new());
    let theirs = (Arc::clone(&begun), Arc::clone(&speak), Arc::clone(&spoken), Arc::clone(&end));
    let spy = Spy::new("spy", move |ctx, _| {
        let (begun, speak, spoken, end) = theirs.clone();
        async move {
            begun.notify_one();
            speak.notified().await;
            ctx.progress("half");
            spoken.notify_one();
            end.notified().await;
            Ok(ToolOutput::text("done"))
        }
    });
    let registry = natives(&world, [spy.timeout(Duration::from_secs(500))]);
    let mut caller = caller();
    let heard = listening(&mut caller);
    let call = registry.execute_with_policy(raw("spy", "{}"), &caller);
    let clock = async {
        begun.notified().await;
        for _ in 0..2 {
            pass(STRETCH).await;
        }
        pass(Duration::from_secs(4)).await;
        speak.notify_one();
        spoken.notified().await;
        // In this stretch it has spoken, in the next it has not.
        pass(STRETCH - Duration::from_secs(4)).await;
        pass(STRETCH).await;
        end.notify_one();
    };
    let (result, ()) = tokio::join!(call, clock);
    assert_eq!(result.model_text(), "done");
    let heard = heard.lock().expect("not poisoned").clone();
    let beat = |seconds: u64| format!("heartbeat {seconds} s");
    assert_eq!(
        heard,
        ["requested spy", "started spy", &beat(5), &beat(10), "progress half", &beat(20), "finished"]
    );
}
