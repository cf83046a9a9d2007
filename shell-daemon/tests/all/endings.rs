//! Exact exit codes, signals and output.

use portcullis_shell_daemon::{Ending, ShellError};

use crate::fixture::{Fixture, request};

#[test]
fn codes_and_signals_are_exact() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        for (command, ending) in [
            ("true", Ending::Code(0)),
            ("false", Ending::Code(1)),
            ("exit 7", Ending::Code(7)),
            ("exit 255", Ending::Code(255)),
            ("(exit 9)", Ending::Code(9)),
            ("no-such-program", Ending::Code(127)),
            ("./", Ending::Code(126)),
            ("if", Ending::Code(2)),
            ("bash -c 'kill -11 $$'", Ending::Code(139)),
            ("kill -TERM $$", Ending::Signal(15)),
            ("kill -9 $$", Ending::Signal(9)),
            ("kill 0", Ending::Signal(15)),
            ("", Ending::Code(0)),
            ("# only a comment", Ending::Code(0)),
        ] {
            assert_eq!(session.run(command).end.ending, ending, "{command}");
        }
    });
}

#[test]
fn messages_name_the_line_that_people_expect() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        assert_eq!(
            session.run("no-such-program").stderr,
            "bash: line 1: no-such-program: command not found\n"
        );
    });
}

#[test]
fn output_is_exact_within_each_stream() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let result = session.run("printf 'a\\0b\\xff'; echo err >&2; printf c");
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("a\0b\u{fffd}c", "err\n"));
        let result = session.run("head -c 30000000 /dev/zero | tr '\\0' x");
        assert_eq!((result.stdout.len(), result.end.output_bytes), (30_000_000, 30_000_000));
    });
}

#[test]
fn output_beyond_the_bound_is_counted_and_dropped() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (mut command_request, canceller) = request("head -c 5000000 /dev/zero; echo done > done");
        command_request.max_output_bytes = 1000;
        let result = session.attempt((command_request, canceller)).unwrap();
        assert_eq!((result.stdout.len(), result.end.output_bytes), (1000, 5_000_000));
        assert!(fixture.path("shared/done").exists(), "the command ran to its end");
    });
}

#[test]
fn input_is_read_to_its_end_or_left() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (mut command_request, canceller) = request("wc -c");
        command_request.stdin = vec![b'x'; 3_000_000];
        assert_eq!(session.attempt((command_request, canceller)).unwrap().stdout, "3000000\n");
        let (mut command_request, canceller) = request("true");
        command_request.stdin = vec![b'x'; 3_000_000];
        assert_eq!(session.attempt((command_request, canceller)).unwrap().end.ending, Ending::Code(0));
        assert_eq!(session.output("cat"), "", "without input there is an immediate end");
    });
}

#[test]
fn a_command_has_a_bound_and_no_nul() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let long = format!("true {}; echo ran", "x".repeat(600_000));
        assert_eq!(session.output(&long), "ran\n", "longer than an argument may be");
        for command in ["true\0".to_owned(), "x".repeat((1 << 20) + 1)] {
            let refused = session.attempt(request(&command));
            assert!(matches!(refused, Err(ShellError::CommandUnusable { .. })), "{refused:?}");
        }
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn resource_usage_of_a_command_is_reported() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let end = session.run("for ((i = 0; i < 200000; i++)); do :; done").end;
        assert!(end.cpu.as_millis() > 10 && end.cpu <= end.duration * 2, "{end:?}");
        assert!(end.peak_memory_bytes > 1 << 20, "{end:?}");
    });
}
