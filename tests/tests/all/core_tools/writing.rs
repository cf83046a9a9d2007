//! Concurrent writes and reads: no reader sees half of a write, and no write is lost.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, Fixture};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_the_old_text_or_the_new_one_and_never_a_part() {
    let fixture = Fixture::new();
    let texts = ["a".repeat(300_000), "b".repeat(500_000)];
    fixture.put("f.txt", &texts[0]);
    let registry = fixture.registry().await;
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let reader = {
        let (path, texts) = (fixture.shared("f.txt"), texts.clone());
        let (stop, reads) = (Arc::clone(&stop), Arc::clone(&reads));
        thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let text = fs::read_to_string(&path).expect("always there");
                assert!(texts.contains(&text), "half a file of {} bytes", text.len());
                reads.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    // Repeat the writes until some reads have interleaved with them.
    let is_read = || reads.load(Ordering::SeqCst) >= 20 || reader.is_finished();
    for round in (0..).take_while(|round| *round < 20 || !is_read()) {
        let arguments = json!({"path": "f.txt", "content": texts[round % 2]});
        let written = CallOutcome::run(&registry, "file_write", arguments).await;
        assert!(written.0.outcome.is_output(), "{:?}", written.0.outcome);
    }
    stop.store(true, Ordering::SeqCst);
    reader.join().expect("saw no half");
    let remaining_names: Vec<_> = fs::read_dir(fixture.workspace().join("shared"))
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(remaining_names, ["f.txt"], "no temporary file stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creation_of_a_file_succeeds_once() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    let calls = (0..12).map(|number| {
        let arguments = json!({"path": "new/one.txt", "content": format!("{number}"), "mode": "create"});
        CallOutcome::run(&registry, "file_write", arguments)
    });
    let answers = join_all(calls).await;
    let winners: Vec<usize> =
        (0..answers.len()).filter(|number| answers[*number].0.outcome.is_output()).collect();
    assert_eq!(winners.len(), 1, "{answers:#?}");
    let text = fs::read_to_string(fixture.shared("new/one.txt")).expect("the file is readable");
    assert_eq!(text, winners[0].to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_many_append_are_all_there_and_whole() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    let line = |number: usize| format!("{number:03} {}\n", "x".repeat(1000));
    let calls = (0..24).map(|number| {
        let arguments = json!({"path": "log.txt", "content": line(number), "mode": "append"});
        CallOutcome::run(&registry, "file_write", arguments)
    });
    for answer in join_all(calls).await {
        assert!(answer.0.outcome.is_output(), "{:?}", answer.0.outcome);
    }
    let text = fs::read_to_string(fixture.shared("log.txt")).expect("the file is readable");
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, (0..24).map(line).collect::<Vec<_>>());
}
