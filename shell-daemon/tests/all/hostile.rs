//! Commands that use up what they can: only they suffer.

use std::time::{Duration, Instant};

use portcullis_shell_daemon::{Completed, Ending, Interruption};

use crate::world::{World, eventually, marker, processes_with, request, with_timeout};

#[test]
fn a_bomb_of_processes_dies_at_its_deadline() {
    World::each(|world| {
        let mut session = world.session();
        let marker = marker("bomb");
        let bomb = format!("{} (setsid true; b 7) & b 5", bomb(&marker));
        let begun = Instant::now();
        let ran = session.attempt(with_timeout(&bomb, Duration::from_millis(400))).unwrap();
        assert_eq!(ran.end.completed, Completed::No(Interruption::Timeout));
        assert!(begun.elapsed() < Duration::from_millis(1400), "{:?}", begun.elapsed());
        assert_eq!(processes_with(&marker), Vec::<String>::new());
        assert_eq!(session.output("echo on"), "on\n");
    });
}

/// A function `b DEPTH` that multiplies, with 2 to the power of `DEPTH` sleepers at most: root has no limit of
/// processes, and a test that fails must not take the machine along.
fn bomb(marker: &str) -> String {
    format!(
        "b() {{ local n=$1; if ((n == 0)); then echo x >> leaves; exec -a {marker} sleep 30; fi; b $((n - 1)) & b $((n - 1)) & wait; }};"
    )
}

#[test]
fn too_many_processes_of_a_command_or_its_jobs_are_killed() {
    World::each(|world| {
        let mut session = world.session();
        let marker = marker("many");
        let (mut one, canceller) = request(&format!("{} b 7", bomb(&marker)));
        one.max_processes = 40;
        let ran = session.attempt((one, canceller)).unwrap();
        assert_eq!(ran.end.completed, Completed::No(Interruption::Processes));
        assert_eq!(processes_with(&marker), Vec::<String>::new());

        let command = format!("{} (until [ -e go ]; do sleep 0.01; done; b 7) & echo answer", bomb(&marker));
        let (mut one, canceller) = request(&command);
        one.max_processes = 40;
        let ran = session.attempt((one, canceller)).unwrap();
        assert_eq!((ran.end.completed, ran.end.jobs_left), (Completed::Yes, true));
        session.output("rm -f leaves; touch go");
        eventually("they multiply", || {
            std::fs::read(world.path("shared/leaves")).is_ok_and(|all| all.len() > 20)
        });
        eventually("and are killed", || processes_with(&marker).is_empty());
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn memory_descriptors_and_files_have_bounds() {
    World::each(|world| {
        let mut spec = world.spec();
        spec.limits.file_bytes = 8 << 20;
        let mut session = crate::world::Session(portcullis_shell_daemon::ShellSession::start(&spec).unwrap());
        // 10 GB in one piece.
        let ran = session.run("perl -e '$x = \"a\" x 10_000_000_000; print length $x'");
        assert!(ran.end.ending != Ending::Code(0) && ran.stdout.is_empty(), "{ran:?}");
        let ran =
            session.run("for ((n = 300; n < 3000; n++)); do eval \"exec $n</dev/null\" || exit 5; done");
        assert_ne!(ran.end.ending, Ending::Code(0), "{ran:?}");
        let ran = session.run("head -c 20000000 /dev/zero > big; exit $?");
        assert_ne!(ran.end.ending, Ending::Code(0), "{ran:?}");
        assert!(std::fs::metadata(world.path("shared/big")).unwrap().len() <= 8 << 20);
        assert_eq!(
            session.run("ulimit -n 4096 2>/dev/null || ulimit -c unlimited").end.ending,
            Ending::Code(1)
        );
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn output_without_end_is_bounded_and_ends_at_the_deadline() {
    World::each(|world| {
        let mut session = world.session();
        let (mut one, canceller) = with_timeout("yes & cat /dev/zero", Duration::from_millis(300));
        one.max_output_bytes = 1 << 20;
        let ran = session.attempt((one, canceller)).unwrap();
        assert_eq!(ran.end.completed, Completed::No(Interruption::Timeout));
        assert!(ran.stdout.len() <= 1 << 20 && ran.end.output_bytes > 1 << 20, "{:?}", ran.end);
    });
}
