//! Commands that exhaust resources must not affect other commands.

use std::time::{Duration, Instant};

use portcullis_shell_daemon::{Completion, Ending, Interruption};

use crate::fixture::{
    Fixture, doubling_timeouts, marker, processes_with, request, request_with_timeout, wait_until,
};

#[test]
fn a_fork_bomb_is_killed_at_its_deadline() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("bomb");
        let bomb = format!("{} (setsid true; b 7) & b 5", bomb(&marker));
        let begun = Instant::now();
        let result = session.attempt(request_with_timeout(&bomb, Duration::from_millis(400))).unwrap();
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout));
        // The command was killed: a sleeper ends by itself only after thirty seconds.
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
        assert_eq!(processes_with(&marker), Vec::<String>::new());
        assert_eq!(session.output("echo on"), "on\n");
    });
}

/// A function `b DEPTH` that multiplies into at most 2 to the power of `DEPTH` sleepers: root has no process
/// limit, and a failing test must not take the machine down.
fn bomb(marker: &str) -> String {
    format!(
        "b() {{ local n=$1; echo x >> nodes; if ((n == 0)); then exec -a {marker} sleep 30; fi; b $((n - 1)) & b $((n - 1)) & wait; }};"
    )
}

#[test]
fn too_many_processes_of_a_command_or_its_jobs_are_killed() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("many");
        let (mut command_request, canceller) = request(&format!("{} b 7", bomb(&marker)));
        command_request.max_processes = 40;
        let result = session.attempt((command_request, canceller)).unwrap();
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Processes));
        assert_eq!(processes_with(&marker), Vec::<String>::new());

        let command = format!("{} (until [ -e go ]; do sleep 0.01; done; b 7) & echo answer", bomb(&marker));
        let (mut command_request, canceller) = request(&command);
        command_request.max_processes = 40;
        let result = session.attempt((command_request, canceller)).unwrap();
        assert_eq!((result.end.completion, result.end.jobs_left), (Completion::Finished, true));
        session.output("rm -f nodes; touch go");
        // Of 41 processes at a time, at least half are inner nodes of the tree, not sleepers.
        wait_until("they multiply", || {
            std::fs::read(fixture.path("shared/nodes")).is_ok_and(|all| all.len() > 20)
        });
        wait_until("and are killed", || processes_with(&marker).is_empty());
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn memory_descriptors_and_files_have_bounds() {
    Fixture::for_each_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.limits.file_bytes = 8 << 20;
        let mut session =
            crate::fixture::Session(portcullis_shell_daemon::ShellSession::start(&spec).unwrap());
        // 10 GB in one piece.
        let result = session.run("perl -e '$x = \"a\" x 10_000_000_000; print length $x'");
        assert!(result.end.ending != Ending::Code(0) && result.stdout.is_empty(), "{result:?}");
        let result =
            session.run("for ((n = 300; n < 3000; n++)); do eval \"exec $n</dev/null\" || exit 5; done");
        assert_ne!(result.end.ending, Ending::Code(0), "{result:?}");
        let result = session.run("head -c 20000000 /dev/zero > big; exit $?");
        assert_ne!(result.end.ending, Ending::Code(0), "{result:?}");
        assert!(std::fs::metadata(fixture.path("shared/big")).unwrap().len() <= 8 << 20);
        assert_eq!(
            session.run("ulimit -n 4096 2>/dev/null || ulimit -c unlimited").end.ending,
            Ending::Code(1)
        );
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn output_without_end_is_bounded_and_ends_at_the_deadline() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let attempt = |limit| {
            let (mut command_request, canceller) = request_with_timeout("yes & cat /dev/zero", limit);
            command_request.max_output_bytes = 1 << 20;
            let result = session.attempt((command_request, canceller)).unwrap();
            assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout));
            assert!(result.stdout.len() <= 1 << 20, "{:?}", result.end);
            result
        };
        let first = Duration::from_millis(300);
        let has_more = doubling_timeouts(first).map(attempt).any(|result| result.end.output_bytes > 1 << 20);
        assert!(has_more, "it has written more than is handed on");
    });
}

#[test]
fn memory_that_looks_like_a_folder_is_bounded() {
    Fixture::strong().iter().for_each(|fixture| {
        // Without a mount for it, `/tmp` is in memory as well.
        let mut spec = fixture.spec();
        spec.mounts.retain(|mount| mount.name != "tmp");
        let mut session =
            crate::fixture::Session(portcullis_shell_daemon::ShellSession::start(&spec).unwrap());
        for folder in ["/dev/shm", "/tmp"] {
            let result = session.run(&format!("head -c 100000000 /dev/zero > {folder}/big"));
            assert_ne!(result.end.ending, Ending::Code(0), "{folder}: {result:?}");
            let size: u64 =
                session.output(&format!("stat -c %s {folder}/big; rm {folder}/big")).trim().parse().unwrap();
            assert!(size <= 64 << 20, "{folder}: {size}");
            let result =
                session.run(&format!("cd {folder} && mkdir many && cd many && seq 20000 | xargs touch"));
            assert_ne!(result.end.ending, Ending::Code(0), "{folder}: many files: {result:?}");
            session.run(&format!("cd; rm -r {folder}/many"));
        }
        for elsewhere in ["/", "/etc", "/dev", "/proc"] {
            assert_ne!(session.run(&format!("cd {elsewhere} && mkdir new")).end.ending, Ending::Code(0));
        }
    });
}

/// The calls are made by number, so that no program has to be compiled for each call. `portcullis-confine` tests the
/// details of each call.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_that_reach_other_processes_or_the_kernel_are_refused() {
    const REFUSED: &str = "1\n";
    let script = |number: u32| format!("perl -e 'syscall({number}, -1, 0, 0, 0); print $!+0, \"\\n\"'");
    let calls = [
        ("shmget", 29),
        ("ptrace", 101),
        ("mount", 165),
        ("add_key", 248),
        ("keyctl", 250),
        ("unshare", 272),
        ("perf_event_open", 298),
        ("open_by_handle_at", 304),
        ("setns", 308),
        ("process_vm_readv", 310),
        ("bpf", 321),
        ("userfaultfd", 323),
        ("io_uring_setup", 425),
        ("open_tree", 428),
        ("fsopen", 430),
        ("pidfd_getfd", 438),
        ("mount_setattr", 442),
    ];
    Fixture::for_each_confined_posture(|fixture| {
        let mut session = fixture.session();
        for (name, number) in calls {
            assert_eq!(session.output(&script(number)), REFUSED, "{name}");
        }
    });
    // The control: without the filter most calls get as far as their arguments.
    let fixture = Fixture::minimal();
    let mut session = fixture.session();
    let free = calls.iter().filter(|(_, number)| session.output(&script(*number)) != REFUSED);
    assert!(free.count() >= 8);
}
