//! Commands that exhaust resources, in every column: no other command suffers, and their reports are exact.

use std::{collections::BTreeSet, path::Path, time::Duration};

use portcullis_shell_protocol::{
    ExecEvent, ExecRequest, KillSessionRequest, Stream, exec_event::Event, exited::Ending,
};
use tonic::{Code, Streaming};

use super::column::{Column, Place};
use crate::{
    server::sidecar::{begin, exec, finish, memory_kib, output, run, session, soon},
    world::{ever_longer, processes_with},
};

/// Runs a test in every column that works here.
async fn each(test: &str, check: impl AsyncFn(&mut Place)) {
    for column in Column::all() {
        if let Some(mut place) = Place::new(column, test).await {
            check(&mut place).await;
        }
    }
}

#[tokio::test]
async fn a_command_killed_at_its_deadline_ran_once_and_left_nothing() {
    each("once", async |place| {
        let script = place.script(
            "echo x >> counter; (setsid bash -c '(exec -a @mark@ sleep 60 & echo up)' &); exec -a @mark@ sleep 60",
        );
        let mut limits = ever_longer(Duration::from_secs(1));
        loop {
            // From the previous attempt, which was too short. All its processes are gone, so none can write
            // it again.
            let _ = std::fs::remove_file(place.world.path("shared/counter"));
            let limit = limits.next().expect("it is up in time");
            let ran = place.attempt(&script, u64::try_from(limit.as_millis()).unwrap()).await;
            assert_eq!(ran.exited.interruption, "timeout");
            assert_eq!(processes_with(&place.mark), Vec::<String>::new());
            if ran.stdout == "up\n" {
                break;
            }
        }
        assert_eq!(output(&mut place.shell, &place.session, "cd; cat counter").await, "x\n");
    })
    .await;
}

#[tokio::test]
async fn sessions_do_not_exhaust_each_other() {
    each("others", async |place| {
        let other = session(&mut place.shell).await;
        let bomb = place.script(
            "b() { local n=$1; ((n == 0)) && exec -a @mark@ sleep 60; b $((n - 1)) & b $((n - 1)) & wait; }; b 6",
        );
        for attack in [
            bomb.as_str(),
            "perl -e 'for (1..10000) { open($f[$_], \"<\", \"/dev/null\") || last } sleep 30'",
            "perl -e 'open(F, \"<\", \"/dev/zero\"); sysread(F, $x, 200_000_000) || exit 9; sleep 30'",
            "cat /dev/zero",
        ] {
            let request =
                ExecRequest { timeout_ms: 400, ..exec(&place.session, &format!("cd; ({attack})")) };
            let mut shell = place.shell.clone();
            let (ran, seen) = tokio::join!(
                run(&mut shell, request),
                output(&mut place.shell, &other, "(:); cat /proc/self/stat > /dev/null; echo on")
            );
            assert!(!ran.unwrap().exited.interruption.is_empty(), "{attack}");
            assert_eq!(seen, "on\n", "{attack}");
            assert_eq!(output(&mut place.shell, &place.session, "echo on").await, "on\n", "{attack}");
        }
        let mark = place.mark.clone();
        soon("nothing is left", || processes_with(&mark).is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn output_without_end_is_cut_and_takes_no_memory_of_the_daemon() {
    each("output", async |place| {
        output(&mut place.shell, &place.session, "head -c 2000000 /dev/zero > /dev/null").await;
        let before = memory_kib(&place.daemon.child, "VmHWM:");
        for (much, bytes) in [
            ("head -c 200000000 /dev/zero", 200_000_000),
            ("yes | head -c 30000000 & yes | head -c 30000000 >&2; wait", 60_000_000),
            ("head -c 30000000 /dev/zero | tr '\\0' x", 30_000_000),
        ] {
            let ran = place.attempt(much, 60_000).await;
            assert_eq!((ran.exited.output_bytes, ran.exited.truncated), (bytes, true), "{much}");
            assert_eq!(ran.stdout.len() + ran.stderr.len(), 1 << 20, "{much}");
        }
        let ran = place.attempt("cat /dev/zero", 300).await;
        assert_eq!(ran.exited.interruption, "timeout");
        let grown = memory_kib(&place.daemon.child, "VmHWM:") - before;
        assert!(grown < 24 << 10, "the daemon grew by {grown} KiB");
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_are() {
    each("bytes", async |place| {
        let script = r"printf '\x1b]0;title\x07\x1b[2Ja\0b\xff\xfe\r\xe2\x80\xaec'; printf '\x9b31m\0' >&2";
        let (_, mut stream) = begin(&mut place.shell, exec(&place.session, script)).await.unwrap();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(event) = stream.message().await.unwrap() {
            if let Some(Event::Output(output)) = event.event {
                if output.stream() == Stream::Stdout { &mut stdout } else { &mut stderr }
                    .extend(output.bytes);
            }
        }
        assert_eq!(stdout, b"\x1b]0;title\x07\x1b[2Ja\0b\xff\xfe\r\xe2\x80\xaec");
        assert_eq!(stderr, b"\x9b31m\0");
    })
    .await;
}

#[tokio::test]
async fn a_job_that_holds_the_output_does_not_hold_the_answer() {
    each("held", async |place| {
        let script = place.script("(setsid bash -c 'exec -a @mark@ sleep 60' &); echo answer");
        let ran = place.attempt(&script, 20_000).await;
        assert_eq!((ran.stdout.as_str(), ran.exited.jobs_left), ("answer\n", true));
        assert_eq!((ran.exited.interruption.as_str(), ran.exited.ending), ("", Some(Ending::Code(0))));
        let kill = KillSessionRequest { session_id: place.session.clone() };
        place.shell.kill_session(kill).await.unwrap();
        assert_eq!(processes_with(&place.mark), Vec::<String>::new());
    })
    .await;
}

/// Starts two processes that are hard to find, one of which the shell waits for, and waits until both run.
async fn begin_tree(place: &mut Place) -> Streaming<ExecEvent> {
    let script = place.script(
        "cd; echo x >> counter; (setsid bash -c '(exec -a @mark@ sleep 60 &)' &); exec -a @mark@ sleep 60",
    );
    let (_, stream) = begin(&mut place.shell, exec(&place.session, &script)).await.unwrap();
    let mark = place.mark.clone();
    let sleepers = || processes_with(&mark).iter().filter(|line| line.starts_with(&mark)).count();
    soon("both run", || sleepers() == 2).await;
    stream
}

async fn finished_commands_leave_no_process(place: &Place) {
    soon("nothing is left", || processes_with(&place.mark).is_empty()).await;
    let counter = std::fs::read_to_string(place.world.path("shared/counter")).unwrap();
    assert_eq!(counter, "x\n", "it ran once");
}

#[tokio::test]
async fn a_daemon_that_is_killed_leaves_no_process_of_its_commands() {
    each("killed", async |place| {
        let stream = begin_tree(place).await;
        place.daemon.child.kill().unwrap();
        let error = finish(stream).await.unwrap_err();
        assert!(matches!(error.code(), Code::Unavailable | Code::Unknown), "{error:?}");
        finished_commands_leave_no_process(place).await;
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_process_of_its_command() {
    each("gone", async |place| {
        drop(begin_tree(place).await);
        finished_commands_leave_no_process(place).await;
    })
    .await;
}

/// The daemon itself scans for protected paths: strange files must not block it.
#[tokio::test]
async fn special_files_do_not_block_the_scan() {
    each("strange", async |place| {
        let script = "mkdir -p s/.git s/loop && mkfifo s/.bashrc s/.envrc && ln -s loop s/loop/loop && ln -s /dev/zero s/.git/hooks \
                      && ln -s .. s/loop/up && mkdir s/shut && chmod 0 s/shut && d=s; for ((i = 0; i < 90; i++)); do d=$d/d; done; mkdir -p $d";
        let ran = place.attempt(script, 20_000).await;
        assert_eq!(ran.exited.ending, Some(Ending::Code(0)), "{ran:?}");
        for told in ["/shared/s/.bashrc", "/shared/s/.envrc", "/shared/s/.git/hooks"] {
            assert!(ran.exited.protected_paths.iter().any(|path| path == told), "{told}: {ran:?}");
        }
        // A session that finds these files at its start, and makes them read-only if it has its own file
        // tree.
        let other = session(&mut place.shell).await;
        assert_eq!(output(&mut place.shell, &other, "echo on").await, "on\n");
    })
    .await;
}

#[tokio::test]
async fn a_session_leaves_no_file_that_nobody_made() {
    each("ghosts", async |place| {
        let before = listing(&place.world.path(""));
        let other = session(&mut place.shell).await;
        let attack =
            "cd; echo x >> .git/hooks/pre-commit; rm -f .envrc/x; mkdir .bashrc/x; : > made; rm made; :";
        run(&mut place.shell, exec(&other, attack)).await.unwrap();
        let kill = KillSessionRequest { session_id: other };
        place.shell.kill_session(kill).await.unwrap();
        assert_eq!(listing(&place.world.path("")), before);
    })
    .await;
}

/// All paths below a folder.
fn listing(folder: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        all.insert(entry.path().display().to_string());
        if entry.file_type().unwrap().is_dir() {
            all.extend(listing(&entry.path()));
        }
    }
    all
}
