//! Background jobs: they outlive their command, are read, and die with the session.

use std::time::Duration;

use portcullis_shell_daemon::ShellError;

use crate::fixture::{Fixture, marker, processes_with, request, wait_until};

#[test]
fn a_job_that_holds_the_output_does_not_hold_the_answer() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("holds");
        let result = session.run(&format!("bash -c 'exec -a {marker} sleep 30' & echo answer"));
        assert_eq!(result.stdout, "answer\n");
        assert!(result.end.jobs_left && result.end.duration < Duration::from_secs(5), "{result:?}");
        assert_eq!(session.output("echo next"), "next\n");
        wait_until("the job is there", || !processes_with(&marker).is_empty());
        session.0.end().unwrap();
        assert_eq!(processes_with(&marker), Vec::<String>::new());
    });
}

#[test]
fn late_job_output_is_read_and_its_end_kept() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        // The job begins when the file exists: after the answer.
        let result = session.run(
        "(until [ -e go ]; do sleep 0.01; done; head -c 3000000 /dev/zero; echo the end; echo x > ended) & echo answer",
    );
        assert_eq!((result.stdout.as_str(), result.end.jobs_left), ("answer\n", true));
        session.output("touch go");
        wait_until("the job was never blocked", || fixture.path("shared/ended").exists());
        wait_until("its output is kept", || session.0.background_output(0).bytes.ends_with(b"the end\n"));
        let output = session.0.background_output(0);
        assert_eq!((output.bytes.len(), output.end), (64 << 10, 3_000_008), "and bounded");
        assert_eq!(output.dropped_bytes, 3_000_008 - (64 << 10), "and counted");
    });
}

#[test]
fn a_later_command_reaches_the_job() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("reached");
        session.run(&format!("bash -c 'exec -a {marker} sleep 30' & job=$!"));
        session.output("kill $job");
        wait_until("it died", || processes_with(&marker).is_empty());
    });
}

#[test]
fn jobs_are_counted() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        for _ in 0..16 {
            session.run("sleep 30 & echo $!");
        }
        let refused = session.attempt(request("true"));
        assert!(matches!(refused, Err(ShellError::TooManyBackgroundCommands { count: 16 })), "{refused:?}");
        session.0.end().unwrap();
    });
}
