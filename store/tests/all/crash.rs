//! A process is killed while it writes steps. Every acknowledged step is stored afterwards.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use portcullis_store::{NewRun, PageRequest, RunStore};

use crate::{
    conformance::{OWNER, commit, guard, json, new_run},
    sqlite::{assert_intact, block_on, database_path, open_default},
};

/// The variable that makes the child write to this file.
const FILE: &str = "PORTCULLIS_STORE_CRASH_FILE";

/// The number of processes that are killed, one after another.
const KILLS: usize = 12;

/// The start of a line about an acknowledged step; the test harness writes other lines.
const ACKNOWLEDGED: &str = "acknowledged ";

/// Writes steps until it is killed, if it was started by the other test.
#[test]
fn the_child_writes_steps() {
    let Some(path) = env::var_os(FILE) else { return };
    block_on(async {
        let store = open_default(Path::new(&path)).await;
        let mut version = store.acquire_lease(guard("r"), i64::MAX).await.expect("its own").version;
        loop {
            version = write_step(&*store, version).await;
            println!("{ACKNOWLEDGED}{version}");
            std::io::stdout().flush().expect("written");
        }
    });
}

/// A step whose state and messages all name the version that it makes.
async fn write_step(store: &dyn RunStore, version: i64) -> i64 {
    let body = json(&format!("{}", version + 1));
    let mut step = commit("r", version);
    step.state = body.clone();
    step.messages = vec![body.clone(), body];
    store.commit_step(step).await.expect("committed")
}

#[test]
fn every_acknowledged_step_survives_a_kill() {
    let (_folder, path) = database_path();
    block_on(async {
        let store = open_default(&path).await;
        let run = NewRun { lease: Some((OWNER.to_owned(), i64::MAX)), ..new_run("r") };
        store.create_run(run).await.expect("a new run");
        store.close().await;
    });
    let mut last = 1;
    for kill in 0..KILLS {
        #[expect(clippy::disallowed_methods, reason = "the test starts itself again, to be killed")]
        let mut child = Command::new(env::current_exe().expect("its path"))
            .args(["--exact", "crash::the_child_writes_steps", "--nocapture"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let acknowledged = |line: String| line.rsplit_once(ACKNOWLEDGED)?.1.parse::<i64>().ok();
        // The number of steps before the kill differs, so the kills hit different stages of a commit.
        let mut seen = 0;
        while seen < 1 + kill * 7 % 29 {
            let line = lines.next().expect("the child writes").expect("text");
            if let Some(version) = acknowledged(line) {
                (last, seen) = (version, seen + 1);
            }
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
        // The rest of the pipe was acknowledged too.
        last = lines.map_while(Result::ok).filter_map(acknowledged).last().unwrap_or(last);

        block_on(async {
            let store = open_default(&path).await;
            let run = store.run("r").await.expect("the store has the run");
            let version = run.summary.version;
            assert!(version == last || version == last + 1, "{version} after {last} was acknowledged");
            assert_eq!(run.state.as_str(), version.to_string());
            assert_eq!((run.summary.steps, run.summary.messages), (version - 1, 2 * (version - 1)));
            let (mut request, mut expected) = (PageRequest::default(), 1);
            loop {
                let page = store.messages("r", request).await.expect("a page");
                for message in page.items {
                    assert_eq!(message.ordinal, expected);
                    assert_eq!(message.body.as_str(), (2 + (expected - 1) / 2).to_string());
                    expected += 1;
                }
                let Some(cursor) = page.next else { break };
                request = PageRequest::after(cursor, 1_000);
            }
            assert_eq!(expected, run.summary.messages + 1);
            store.close().await;
            last = version;
        });
        assert_intact(&path);
    }
    println!("{last} steps survived {KILLS} kills");
}
