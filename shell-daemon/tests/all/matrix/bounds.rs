//! Commands that exhaust resources, in every column. No other command suffers, and the reports are exact.

use std::{collections::BTreeSet, path::Path, time::Duration};

use portcullis_shell_protocol::{
    ExecEvent, ExecRequest, KillSessionRequest, Stream, exec_event::Event, exited::Ending,
};
use tonic::{Code, Streaming};

use super::column::{Column, TrialSetup};
use crate::{
    fixture::{doubling_timeouts, processes_with},
    server::sidecar::{begin, exec, finish, memory_kib, output, run, session, wait_until_async},
};

/// Runs a test in every column that works on this machine.
async fn for_each_posture(test: &str, check: impl AsyncFn(&mut TrialSetup)) {
    for column in Column::all() {
        if let Some(mut setup) = TrialSetup::new(column, test).await {
            check(&mut setup).await;
        }
    }
}

#[tokio::test]
async fn a_command_killed_at_its_deadline_ran_once_and_left_nothing() {
    for_each_posture("once", async |setup| {
        let script = setup.script(
            "echo x >> counter; (setsid bash -c '(exec -a @mark@ sleep 60 & echo up)' &); exec -a @mark@ sleep 60",
        );
        let mut limits = doubling_timeouts(Duration::from_secs(1));
        loop {
            // Remove the file of the previous attempt, which was too short. Its processes are gone and cannot write the
            // file again.
            let _ = std::fs::remove_file(setup.fixture.path("shared/counter"));
            let limit = limits.next().expect("it is up in time");
            let result = setup.attempt(&script, u64::try_from(limit.as_millis()).unwrap()).await;
            assert_eq!(result.exited.interruption, "timeout");
            assert_eq!(processes_with(&setup.mark), Vec::<String>::new());
            if result.stdout == "up\n" {
                break;
            }
        }
        assert_eq!(output(&mut setup.shell, &setup.session, "cd; cat counter").await, "x\n");
    })
    .await;
}

#[tokio::test]
async fn sessions_do_not_exhaust_each_other() {
    for_each_posture("others", async |setup| {
        let other_session = session(&mut setup.shell).await;
        let bomb = setup.script(
            "b() { local n=$1; ((n == 0)) && exec -a @mark@ sleep 60; b $((n - 1)) & b $((n - 1)) & wait; }; b 6",
        );
        for attack in [
            bomb.as_str(),
            "perl -e 'for (1..10000) { open($f[$_], \"<\", \"/dev/null\") || last } sleep 30'",
            "perl -e 'open(F, \"<\", \"/dev/zero\"); sysread(F, $x, 200_000_000) || exit 9; sleep 30'",
            "cat /dev/zero",
        ] {
            let request =
                ExecRequest { timeout_ms: 400, ..exec(&setup.session, &format!("cd; ({attack})")) };
            let mut shell = setup.shell.clone();
            let (result, other_output) = tokio::join!(
                run(&mut shell, request),
                output(&mut setup.shell, &other_session, "(:); cat /proc/self/stat > /dev/null; echo on")
            );
            assert!(!result.unwrap().exited.interruption.is_empty(), "{attack}");
            assert_eq!(other_output, "on\n", "{attack}");
            assert_eq!(output(&mut setup.shell, &setup.session, "echo on").await, "on\n", "{attack}");
        }
        let mark = setup.mark.clone();
        wait_until_async("nothing is left", || processes_with(&mark).is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn output_without_end_is_cut_and_takes_no_memory_of_the_sidecar() {
    for_each_posture("output", async |setup| {
        output(&mut setup.shell, &setup.session, "head -c 2000000 /dev/zero > /dev/null").await;
        let before = memory_kib(&setup.sidecar.child, "VmHWM:");
        for (much, bytes) in [
            ("head -c 200000000 /dev/zero", 200_000_000),
            ("yes | head -c 30000000 & yes | head -c 30000000 >&2; wait", 60_000_000),
            ("head -c 30000000 /dev/zero | tr '\\0' x", 30_000_000),
        ] {
            let result = setup.attempt(much, 60_000).await;
            assert_eq!((result.exited.output_bytes, result.exited.truncated), (bytes, true), "{much}");
            assert_eq!(result.stdout.len() + result.stderr.len(), 1 << 20, "{much}");
        }
        let result = setup.attempt("cat /dev/zero", 300).await;
        assert_eq!(result.exited.interruption, "timeout");
        let grown = memory_kib(&setup.sidecar.child, "VmHWM:") - before;
        assert!(grown < 24 << 10, "the sidecar grew by {grown} KiB");
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_not_text_arrive_unchanged() {
    for_each_posture("bytes", async |setup| {
        let script = r"printf '\x1b]0;title\x07\x1b[2Ja\0b\xff\xfe\r\xe2\x80\xaec'; printf '\x9b31m\0' >&2";
        let (_, mut stream) = begin(&mut setup.shell, exec(&setup.session, script)).await.unwrap();
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
    for_each_posture("held", async |setup| {
        let script = setup.script("(setsid bash -c 'exec -a @mark@ sleep 60' &); echo answer");
        let result = setup.attempt(&script, 20_000).await;
        assert_eq!((result.stdout.as_str(), result.exited.jobs_left), ("answer\n", true));
        assert_eq!((result.exited.interruption.as_str(), result.exited.ending), ("", Some(Ending::Code(0))));
        let kill = KillSessionRequest { session_id: setup.session.clone() };
        setup.shell.kill_session(kill).await.unwrap();
        assert_eq!(processes_with(&setup.mark), Vec::<String>::new());
    })
    .await;
}

/// Starts two processes that are hard to find, and waits until both run. The shell waits for one of them.
async fn begin_tree(setup: &mut TrialSetup) -> Streaming<ExecEvent> {
    let script = setup.script(
        "cd; echo x >> counter; (setsid bash -c '(exec -a @mark@ sleep 60 &)' &); exec -a @mark@ sleep 60",
    );
    let (_, stream) = begin(&mut setup.shell, exec(&setup.session, &script)).await.unwrap();
    let mark = setup.mark.clone();
    let sleepers = || processes_with(&mark).iter().filter(|line| line.starts_with(&mark)).count();
    wait_until_async("both run", || sleepers() == 2).await;
    stream
}

async fn finished_commands_leave_no_process(setup: &TrialSetup) {
    wait_until_async("nothing is left", || processes_with(&setup.mark).is_empty()).await;
    let counter = std::fs::read_to_string(setup.fixture.path("shared/counter")).unwrap();
    assert_eq!(counter, "x\n", "it ran once");
}

#[tokio::test]
async fn a_sidecar_that_is_killed_leaves_no_process_of_its_commands() {
    for_each_posture("killed", async |setup| {
        let stream = begin_tree(setup).await;
        setup.sidecar.child.kill().unwrap();
        let error = finish(stream).await.unwrap_err();
        assert!(matches!(error.code(), Code::Unavailable | Code::Unknown), "{error:?}");
        finished_commands_leave_no_process(setup).await;
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_process_of_its_command() {
    for_each_posture("gone", async |setup| {
        drop(begin_tree(setup).await);
        finished_commands_leave_no_process(setup).await;
    })
    .await;
}

/// The sidecar itself scans for protected paths: strange files must not block it.
#[tokio::test]
async fn special_files_do_not_block_the_scan() {
    for_each_posture("strange", async |setup| {
        let script = "mkdir -p s/.git s/loop && mkfifo s/.bashrc s/.envrc && ln -s loop s/loop/loop && ln -s /dev/zero s/.git/hooks \
                      && ln -s .. s/loop/up && mkdir s/shut && chmod 0 s/shut && d=s; for ((i = 0; i < 90; i++)); do d=$d/d; done; mkdir -p $d";
        let result = setup.attempt(script, 20_000).await;
        assert_eq!(result.exited.ending, Some(Ending::Code(0)), "{result:?}");
        for expected_path in ["/shared/s/.bashrc", "/shared/s/.envrc", "/shared/s/.git/hooks"] {
            assert!(
                result.exited.protected_paths.iter().any(|path| path == expected_path),
                "{expected_path}: {result:?}"
            );
        }
        // This session finds the files at its start. If it has its own file tree, it makes them read-only.
        let second_session = session(&mut setup.shell).await;
        assert_eq!(output(&mut setup.shell, &second_session, "echo on").await, "on\n");
    })
    .await;
}

#[tokio::test]
async fn a_session_leaves_no_unexpected_file() {
    for_each_posture("ghosts", async |setup| {
        let before = listing(&setup.fixture.path(""));
        let second_session = session(&mut setup.shell).await;
        let attack =
            "cd; echo x >> .git/hooks/pre-commit; rm -f .envrc/x; mkdir .bashrc/x; : > made; rm made; :";
        run(&mut setup.shell, exec(&second_session, attack)).await.unwrap();
        let kill = KillSessionRequest { session_id: second_session };
        setup.shell.kill_session(kill).await.unwrap();
        assert_eq!(listing(&setup.fixture.path("")), before);
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
