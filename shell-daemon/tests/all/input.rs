//! Input that is written while a command runs.

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use portcullis_shell_daemon::{
    CancelSender, CommandInput, CommandRequest, Completion, InputError, InputWriter, Interruption,
    OutputChunk,
};

use crate::fixture::{Fixture, request, wait_until};

fn streamed(command: &str) -> (CommandRequest, CancelSender, InputWriter) {
    let (mut request, canceller) = request(command);
    let (input, writer) = CommandInput::new().expect("descriptors");
    request.input = Some(input);
    (request, canceller, writer)
}

/// Writes until a write fails, and returns the error.
fn write_without_end(mut writer: InputWriter) -> JoinHandle<InputError> {
    thread::spawn(move || {
        loop {
            if let Err(error) = writer.write(&[b'x'; 10_000]) {
                return error;
            }
        }
    })
}

#[test]
fn a_command_and_its_caller_take_turns() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (mut command_request, _canceller, mut writer) = streamed(
            "read first; read name; echo \"$first, $name\"; read age; echo \"$age years\"; read || echo end",
        );
        command_request.stdin = b"hello\n".to_vec();
        let mut answers = ["ann\n", "7\n"].into_iter();
        writer.write(answers.next().expect("one").as_bytes()).expect("it reads");
        let mut writer = Some(writer);
        let mut seen = String::new();
        let end = session.0.run(&command_request, &mut |chunk: OutputChunk<'_>| {
            seen.push_str(&String::from_utf8_lossy(chunk.bytes));
            // The input is written only after the answer to the last line. None of it existed when the command started.
            match answers.next() {
                Some(answer) => writer.as_mut().expect("open").write(answer.as_bytes()).expect("it reads"),
                None => drop(writer.take()),
            }
        });
        assert_eq!(end.expect("it runs").completion, Completion::Finished);
        assert_eq!(seen, "hello, ann\n7 years\nend\n");
    });
}

#[test]
fn ten_megabytes_go_in_and_come_out_as_they_were() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (mut command_request, _canceller, mut writer) = streamed("cat");
        let all: Vec<u8> =
            (0..10_000_000_u32).map(|number| number.to_le_bytes()[number as usize % 3]).collect();
        let (first, rest) = all.split_at(300_000);
        command_request.stdin = first.to_vec();
        let rest = rest.to_vec();
        let writing = thread::spawn(move || rest.chunks(7_777).try_for_each(|piece| writer.write(piece)));
        let mut out = Vec::new();
        let end =
            session.0.run(&command_request, &mut |chunk: OutputChunk<'_>| out.extend_from_slice(chunk.bytes));
        assert_eq!(end.expect("it runs").output_bytes, 10_000_000);
        assert!(out == all, "every byte, in order");
        writing.join().expect("no panic").expect("all was read");
    });
}

#[test]
fn a_command_that_never_reads_blocks_then_refuses_the_writer() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (command_request, _canceller, mut writer) = streamed("until [[ -e go ]]; do :; done");
        let go = fixture.path("shared/go");
        let writing = thread::spawn(move || {
            let mut written_bytes = 0;
            // The capacity of two pipes, far below what would fill the memory.
            let full = loop {
                match writer.try_write(&[b'x'; 4096]) {
                    Ok(written) => written_bytes += written,
                    Err(error) => {
                        // The other pipe may still have room.
                        (0..100_000).for_each(|_| thread::yield_now());
                        match writer.try_write(b"x") {
                            Ok(written) => written_bytes += written,
                            Err(_) => break error,
                        }
                    }
                }
            };
            std::fs::write(go, "").expect("writable");
            (full, written_bytes, writer.write(&[b'x'; 1 << 20]))
        });
        let result = session.attempt((command_request, _canceller)).expect("it runs");
        assert_eq!(result.end.completion, Completion::Finished);
        let (full, written_bytes, after) = writing.join().expect("no panic");
        assert!(matches!(full, InputError::Full), "{full:?}");
        assert!(written_bytes <= 128 << 10, "{written_bytes}");
        assert!(matches!(after, Err(InputError::Closed)), "{after:?}");
    });
}

#[test]
fn a_closed_input_is_noticed_while_nothing_is_written() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (command_request, canceller, mut writer) =
            streamed("read; exec <&-; until [[ -e told ]]; do :; done");
        let closed_file = fixture.path("shared/told");
        let writing = thread::spawn(move || {
            writer.write(b"line\n").expect("it reads");
            // The descriptor becomes writable when there is room or when the reading end is closed, so a caller can
            // wait for either without a write.
            wait_until("the command has closed it", || {
                matches!(writer.try_write(b"x"), Err(InputError::Closed))
            });
            std::fs::write(closed_file, "").expect("writable");
        });
        assert_eq!(
            session.attempt((command_request, canceller)).expect("it runs").end.completion,
            Completion::Finished
        );
        writing.join().expect("no panic");
    });
}

#[test]
fn a_writer_that_is_dropped_is_the_end_of_the_input() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (command_request, canceller, writer) = streamed("wc -c");
        drop(writer);
        assert_eq!(session.attempt((command_request, canceller)).expect("it runs").stdout, "0\n");
        let (mut command_request, canceller, mut writer) = streamed("wc -c");
        command_request.stdin = vec![b'x'; 100_000];
        writer.write(&[b'x'; 5000]).expect("room");
        writer.close();
        assert_eq!(session.attempt((command_request, canceller)).expect("it runs").stdout, "105000\n");
    });
}

#[test]
fn an_input_writer_fails_after_every_end_of_the_command() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        // The command ends by itself, even if a job continues with the same input.
        for command in ["true", "sleep 30 < /dev/stdin &"] {
            let (command_request, canceller, mut writer) = streamed(command);
            session.attempt((command_request, canceller)).expect("it runs");
            // Wait: another test that starts a program has a copy of all descriptors for a moment.
            wait_until("the writer is told", || matches!(writer.try_write(b"x"), Err(InputError::Closed)));
        }
        // The command ends at its deadline or by its caller, while the writer blocks.
        let (mut command_request, canceller, writer) = streamed("sleep 30");
        command_request.timeout = Duration::from_millis(100);
        let writing = write_without_end(writer);
        let result = session.attempt((command_request, canceller)).expect("it runs");
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout));
        assert!(matches!(writing.join().expect("no panic"), InputError::Closed));
        let (command_request, canceller, writer) = streamed("sleep 30");
        let writing = write_without_end(writer);
        drop(canceller);
        let (_, held_canceller) = request("");
        let result = session.attempt((command_request, held_canceller)).expect("it runs");
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Cancelled));
        assert!(matches!(writing.join().expect("no panic"), InputError::Closed));
        // The command is refused.
        let (command_request, canceller, mut writer) = streamed("no\0command");
        assert!(session.attempt((command_request, canceller)).is_err());
        assert!(matches!(writer.write(b"x"), Err(InputError::Closed)));
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn an_input_serves_one_command() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let (command_request, _canceller, writer) = streamed("wc -c");
        drop(writer);
        for _ in 0..2 {
            let mut out = Vec::new();
            session
                .0
                .run(&command_request, &mut |chunk: OutputChunk<'_>| out.extend_from_slice(chunk.bytes))
                .expect("it runs");
            assert_eq!(out, b"0\n");
        }
    });
}
