//! Commands that use memory, processes and threads in ways that a limit on one process does not detect, each with a
//! bystander that must not suffer.
//!
//! Every bomb ends by itself at a size that the machine can bear, so that a failing test does not take the machine
//! down.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]
#![expect(clippy::print_stdout, reason = "tests say what they measured")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use portcullis_confine::GroupLimits;
use portcullis_shell_daemon::{Completion, Ending, Interruption, PostureChoice, ShellSession};
use portcullis_types::ShellPosture;

use crate::fixture::{
    CommandResult, Fixture, Session, marker, processes_with, request, request_with_timeout, wait_until,
};

/// A command's memory limit in these tests, and the most memory that a bomb uses.
const MEMORY_LIMIT: u64 = 128 << 20;
const BOMB_BYTES: u64 = 640 << 20;

/// A command's process limit in these tests, and the number of times that a bomb doubles.
const PROCESS_LIMIT: usize = 40;
const DOUBLINGS: u32 = 8;

#[test]
fn memory_counts_however_it_is_held() {
    for_each_posture(|fixture| {
        for (way, bomb) in memory_bombs() {
            let result = with_bystander(way, || attempt(&mut bounded(fixture), &bomb));
            println!("{way}: {} MiB at most in one process", result.end.peak_memory_bytes >> 20);
            // Under a seccomp filter, memory files cannot be made in the first place.
            let is_refused = result.stdout == "refused" && way.contains("file in memory");
            let is_killed = result.end.completion == Completion::Interrupted(Interruption::Memory);
            // An ordinary user's sidecar cannot see this memory, and therefore kills the command.
            let is_hidden = result.end.completion == Completion::Interrupted(Interruption::MemoryUncountable)
                && way.contains("shows nobody");
            assert!(is_killed || is_refused || is_hidden, "{way}: {result:?}");
            assert!(
                !is_killed || result.end.peak_memory_bytes > MEMORY_LIMIT,
                "the peak is what broke the limit: {result:?}"
            );
        }
    });
}

/// Until the new program runs, both processes share one address space.
#[test]
fn memory_that_a_program_lends_to_one_it_starts_counts_once() {
    let script = "python3 -c 'import subprocess\nhave = bytearray(90 << 20)\nfor i in range(200): subprocess.run([\"true\"])\nprint(len(have) >> 20)'";
    for_each_posture(|fixture| {
        let mut session = bounded(fixture);
        if session.run("python3 -c 0").end.ending != Ending::Code(0) {
            println!("skipped: there is no python3, which starts programs by vfork");
            return;
        }
        let result = attempt(&mut session, script);
        assert_eq!(
            (result.end.completion, result.stdout.as_str()),
            (Completion::Finished, "90\n"),
            "{result:?}"
        );
    });
}

/// A perl script with functions:
///
/// - `fill ADDRESS, SIZE` reads zeros into memory.
/// - `take SIZE, HOW, FILE` maps memory and fills it.
/// - `slide SIZE, WINDOW, CODE` fills memory and runs the code for each window. Except during a new mapping,
///   only one window is mapped.
fn perl(script: &str) -> String {
    let slide = format!(
        "sub slide {{ my ($n, $w, $do) = @_; my $a = syscall({mmap}, 0, $n, 3, {SHARED}, -1, 0); \
         syscall({munmap}, $a + $w, $n - $w); \
         for (my $o = $w; $o < $n; $o += $w) {{ fill($a, $w); $do->(); \
         $a = syscall({mremap}, $a, $w, 2 * $w, 1); syscall({munmap}, $a, $w); $a += $w }} fill($a, $w) }}",
        mmap = libc::SYS_mmap,
        munmap = libc::SYS_munmap,
        mremap = libc::SYS_mremap,
    );
    format!(
        "perl -e '$| = 1; sub fill {{ my ($a, $n) = @_; open(my $z, \"<\", \"/dev/zero\"); \
         for (my $o = 0; $o < $n; $o += 1 << 20) {{ syscall({read}, fileno($z), $a + $o, 1 << 20); }} }} \
         sub take {{ my ($n, $how, $f) = @_; my $a = syscall({mmap}, 0, $n, 3, $how, $f, 0); fill($a, $n); $a }} \
         {slide} {script}'",
        read = libc::SYS_read,
        mmap = libc::SYS_mmap,
    )
}

const SHARED: libc::c_int = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn memory_bombs() -> Vec<(&'static str, String)> {
    let file = format!(
        "$name = \"x\"; $f = syscall({}, $name, 0); if ($f < 0) {{ print \"refused\"; exit }} open(F, \"+>&=\", $f); ",
        libc::SYS_memfd_create
    );
    let script = |script: &str| perl(&format!("{script} print \"took it\"; sleep 20"));
    vec![
        ("a shared mapping", script(&format!("take({BOMB_BYTES}, {SHARED}, -1);"))),
        (
            "shared mappings whose pages are in nobody's table",
            script(&format!(
                "for (1..20) {{ $a = take({BOMB_BYTES} / 20, {SHARED}, -1); syscall({}, $a, {BOMB_BYTES} / 20, 4); }}",
                libc::SYS_madvise
            )),
        ),
        (
            "a shared mapping that a child inherits",
            script(&format!("take({BOMB_BYTES}, {SHARED}, -1); if (fork) {{ exit }}")),
        ),
        (
            "a file in memory that is mapped",
            script(&format!(
                "{file}truncate(F, {BOMB_BYTES}); take({BOMB_BYTES}, {}, $f); close F;",
                libc::MAP_SHARED
            )),
        ),
        (
            "a file in memory that is written",
            script(&format!(
                "{file}$x = \"x\" x (1 << 20); for (1..{}) {{ syswrite(F, $x) }}",
                BOMB_BYTES >> 20
            )),
        ),
        (
            "a shared mapping of which a window slides",
            script(&format!("slide({BOMB_BYTES}, 16 << 20, sub {{ }});")),
        ),
        (
            "a shared mapping of which each process has a slice",
            script(&format!("slide({BOMB_BYTES}, 32 << 20, sub {{ if (!fork) {{ sleep 20; exit }} }});")),
        ),
        (
            "a window of a process that shows nobody its memory",
            script(&format!(
                "syscall({}, {}, 0); slide({BOMB_BYTES}, 16 << 20, sub {{ }});",
                libc::SYS_prctl,
                libc::PR_SET_DUMPABLE
            )),
        ),
        (
            "a file in memory of a process that shows nobody its descriptors",
            script(&format!(
                "syscall({}, {}, 0); {file}$x = \"x\" x (1 << 20); for (1..{}) {{ syswrite(F, $x) }}",
                libc::SYS_prctl,
                libc::PR_SET_DUMPABLE,
                BOMB_BYTES >> 20
            )),
        ),
        (
            "a file in memory that one thread has alone",
            script(&format!(
                "use threads; threads->create(sub {{ syscall({}, {}); \
                 {file}$x = \"x\" x (1 << 20); for (1..{}) {{ syswrite(F, $x) }} sleep 20 }})->join;",
                libc::SYS_unshare,
                libc::CLONE_FILES,
                BOMB_BYTES >> 20
            )),
        ),
        (
            "a window beside processes that take long to be looked at",
            script(&format!(
                "$a = syscall({mmap}, 0, 60000 * 4096, 0, {PRIVATE}, -1, 0); \
                 for (1..29000) {{ syscall({mprotect}, $a + 8192 * $_, 4096, 3) }} \
                 for (1..2) {{ if (!fork) {{ sleep 20; exit }} }} slide({BOMB_BYTES}, 16 << 20, sub {{ }});",
                mmap = libc::SYS_mmap,
                mprotect = libc::SYS_mprotect,
            )),
        ),
        (
            "private memory that each process hands to the next and ends",
            script(&format!(
                "for (1..4) {{ if (!fork) {{ take(50 << 20, {PRIVATE}, -1); for (1..5000) {{ exit if fork }} exit }} }} \
                 sleep 20;"
            )),
        ),
        (
            "private memory of processes whose first thread has ended",
            script(&format!(
                "use threads; sub lose {{ threads->create(sub {{ take(40 << 20, {PRIVATE}, -1); sleep 20 }}); \
                 syscall({exit}, 0) }} for (1..10) {{ if (!fork) {{ lose() }} }} lose();",
                exit = libc::SYS_exit,
            )),
        ),
        (
            "private memory of many processes",
            script(&format!(
                "for (1..10) {{ if (!fork) {{ take(30 << 20, {PRIVATE}, -1); sleep 20; exit }} }} sleep 20;"
            )),
        ),
    ]
}

/// If a sample starts with a process of very many mappings, the other processes may have ended before it reaches
/// them.
#[test]
fn shared_memory_that_is_handed_on_all_the_time_counts() {
    let slow = format!(
        "if (!fork) {{ $a = syscall({mmap}, 0, 60000 * 4096, 0, {PRIVATE}, -1, 0); \
         for (1..7000) {{ syscall({mprotect}, $a + 8192 * $_, 4096, 3) }} sleep 20; exit }} sleep 1;",
        mmap = libc::SYS_mmap,
        mprotect = libc::SYS_mprotect,
    );
    // The pages are not in the process's page table, so the kernel's counters of the process do not include them.
    let hand_on = format!(
        "for (1..20) {{ $a = take({BOMB_BYTES} / 20, {SHARED}, -1); syscall({madvise}, $a, {BOMB_BYTES} / 20, 4); \
         for (1..100) {{ syscall({exit}, 0) if fork }} }}",
        madvise = libc::SYS_madvise,
        exit = libc::SYS_exit_group,
    );
    for_each_posture(|fixture| {
        let made = fixture.path("shared/all");
        let bomb = perl(&format!("{slow} {hand_on} open(F, \">\", \"all\"); sleep 20"));
        let result =
            attempt(&mut bounded(fixture), &format!("{bomb}; until [ -e all ]; do sleep 0.05; done"));
        // Ended processes count until they are reaped, and that takes longer on a busy machine.
        let is_killed = [Interruption::Memory, Interruption::Processes]
            .iter()
            .any(|limit| result.end.completion == Completion::Interrupted(*limit));
        assert!(is_killed, "{result:?}");
        assert!(!made.exists(), "it had five times its limit before it was found");
    });
}

/// Programs that keep secrets hide their memory in this way.
#[test]
fn a_program_with_hidden_unshared_memory_is_not_killed() {
    let script = format!("syscall({}, {}, 0); sleep 1; print \"on\"", libc::SYS_prctl, libc::PR_SET_DUMPABLE);
    for_each_posture(|fixture| {
        let mut session = bounded(fixture);
        // Retry, because other programs' shared memory may grow in the meantime, which the sidecar cannot
        // distinguish from the command's.
        let goes_on = (0..20).any(|_| {
            let result = attempt(&mut session, &perl(&script));
            let is_hidden = result.end.completion == Completion::Interrupted(Interruption::MemoryUncountable);
            assert!(is_hidden || result.stdout == "on", "{result:?}");
            !is_hidden
        });
        assert!(goes_on);
    });
}

#[test]
fn pages_that_fork_doubles_count_once() {
    for_each_posture(|fixture| {
        // Six times the limit, if each process were counted by itself.
        let script = perl(&format!(
            "take(90 << 20, {PRIVATE}, -1); for (1..8) {{ if (!fork) {{ sleep 1; exit }} }} 1 while wait > 0"
        ));
        let result = attempt(&mut bounded(fixture), &script);
        assert_eq!(
            (result.end.completion, result.end.ending),
            (Completion::Finished, Ending::Code(0)),
            "{result:?}"
        );
    });
}

#[test]
fn memory_of_a_job_counts_after_its_command() {
    for_each_posture(|fixture| {
        let mut session = bounded(fixture);
        let marker = marker("job-memory");
        let job = perl(&format!(
            "$0 = \"{marker}\"; open(F, \">\", \"begun\"); take({BOMB_BYTES}, {SHARED}, -1); sleep 30"
        ));
        let result =
            attempt(&mut session, &format!("(until [ -e go ]; do sleep 0.01; done; {job}) & echo answer"));
        assert_eq!((result.end.completion, result.end.jobs_left), (Completion::Finished, true));
        assert_eq!(session.output("touch go; echo on"), "on\n");
        wait_until("it has begun and is killed", || {
            fixture.path("shared/begun").exists() && processes_with(&marker).is_empty()
        });
        wait_until("the reason is told with what the jobs wrote", || {
            let background = session.0.background_output(0);
            let text = String::from_utf8_lossy(&background.bytes).into_owned();
            background.killed == [Interruption::Memory] && text.contains("[background jobs were killed: ")
        });
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn the_commands_of_a_session_have_a_bound_together() {
    for_each_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.limits.memory_bytes = MEMORY_LIMIT;
        spec.group = Some(GroupLimits { memory_bytes: 2 * MEMORY_LIMIT, processes: 200, cpu_percent: None });
        let mut session = Session(ShellSession::start(&spec).unwrap());
        let marker = marker("together");
        for number in 0..4 {
            // Each job stays below the limit of one command.
            let job = perl(&format!(
                "$0 = \"{marker} {number}\"; take(100 << 20, {PRIVATE}, -1); open(F, \">\", \"{number}\"); sleep 30"
            ));
            attempt(&mut session, &format!("{job} & echo answer"));
        }
        wait_until("two of them at most are left", || {
            let begun = (0..4).filter(|number| fixture.path(&format!("shared/{number}")).exists()).count();
            begun >= 2 && processes_with(&marker).len() == 2
        });
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn a_bomb_of_processes_is_killed_beside_a_bystander() {
    for_each_posture(|fixture| {
        let bomb = format!("perl -e 'alarm 20; for (1..{DOUBLINGS}) {{ fork }} 1 while 1'");
        let result = with_bystander("processes", || attempt(&mut bounded(fixture), &bomb));
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Processes), "{result:?}");
    });
}

/// A command that may become a bomb leaves the processors to other programs.
#[test]
fn a_command_close_to_its_limit_of_processes_yields_to_others() {
    for_each_posture(|fixture| {
        // The shell gets a low priority as well, and so do its later children.
        let many = "for i in {1..30}; do sleep 30 & done; \
                    until [[ $(nice) == 19 ]]; do sleep 0.05; done; kill $(jobs -p)";
        let result = attempt(&mut bounded(fixture), many);
        assert_eq!(result.end.completion, Completion::Finished, "{result:?}");
    });
}

/// A zombie takes a process number and an entry in the kernel's list until its parent reaps it.
#[test]
fn processes_that_ended_and_are_not_buried_count() {
    for_each_posture(|fixture| {
        let bomb = "perl -e 'for (1..400) { $p = fork; last if !defined $p; exit if !$p } sleep 20'";
        let result = attempt(&mut bounded(fixture), bomb);
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Processes), "{result:?}");
        // Processes that run one after the other are not a bomb: the shell reaps each.
        let many = "for i in {1..200}; do (true); done";
        assert_eq!(attempt(&mut bounded(fixture), many).end.completion, Completion::Finished);
    });
}

/// A timer in each process sends it SIGCONT every millisecond.
#[test]
fn a_bomb_that_continues_itself_is_killed() {
    let timer = format!(
        "sub t {{ my $e = pack(\"QiiQQQQQQ\", 0, {cont}, 0, 0, 0, 0, 0, 0, 0); my $id = pack(\"Q\", 0); \
         syscall({create}, 1, $e, $id); \
         my $t = pack(\"qqqq\", 0, 1000000, 0, 1000000); syscall({set}, unpack(\"i\", $id), 0, $t, 0) }} ",
        cont = libc::SIGCONT,
        create = libc::SYS_timer_create,
        set = libc::SYS_timer_settime,
    );
    for_each_posture(|fixture| {
        let bomb = format!("perl -e '{timer} alarm 20; for (1..{DOUBLINGS}) {{ fork; t() }} 1 while 1'");
        let mut session = bounded(fixture);
        let result = with_bystander("processes that go on", || attempt(&mut session, &bomb));
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Processes), "{result:?}");
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn a_bomb_of_threads_is_killed_beside_a_bystander() {
    for_each_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.limits.memory_bytes = 4 << 30;
        let mut session = Session(ShellSession::start(&spec).unwrap());
        let bomb = "perl -Mthreads=stack_size,65536 -e 'for (1..400) { threads->create(sub { sleep 20 }) || last } sleep 20'";
        let result = with_bystander("threads", || attempt(&mut session, bomb));
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Processes), "{result:?}");
        // As many threads as the limit allows are not a bomb.
        let few = "perl -Mthreads=stack_size,65536 -e 'threads->create(sub { sleep 1 }) for 1..60; $_->join for threads->list'";
        assert_eq!(attempt(&mut session, few).end.completion, Completion::Finished);
    });
}

/// A process whose first thread has ended looks like a zombie.
#[test]
fn a_process_whose_first_thread_has_ended_is_killed_too() {
    for_each_posture(|fixture| {
        let mut session = bounded(fixture);
        let marker = marker("headless");
        let script = format!(
            "perl -Mthreads -e '$0 = \"{marker}\"; threads->create(sub {{ sleep 600 }}); syscall({}, 0)'",
            libc::SYS_exit
        );
        let result = session.attempt(request_with_timeout(&script, Duration::from_secs(2))).unwrap();
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout), "{result:?}");
        // A process whose first thread has ended no longer has a command line, but has a status.
        let is_survivor = |folder: fs::DirEntry| {
            let text =
                fs::read_to_string(folder.path().join("task").join("..").join("status")).unwrap_or_default();
            text.starts_with(&format!("Name:\t{}", &marker[..15]))
        };
        // A killed process stays in the list until its parent has waited for it.
        wait_until("no process is left", || !fs::read_dir("/proc").unwrap().flatten().any(is_survivor));
    });
}

#[test]
fn the_kernel_bounds_the_processes_of_a_sessions_own_user() {
    let Some(fixture) = Fixture::strong() else { return };
    let mut spec = fixture.spec();
    spec.limits.processes = Some(64);
    let mut session = Session(ShellSession::start(&spec).unwrap());
    let limits =
        session.0.posture().layers().iter().find(|report| report.layer == portcullis_confine::Layer::Limits);
    let has_evidence =
        limits.unwrap().evidence.iter().any(|evidence| evidence.probe.contains("start a process"));
    assert!(has_evidence, "{limits:?}");
    let script = "perl -e 'for (1..100) { $p = fork; if (!defined $p) { print \"$_ \", $!+0; kill(9, @p); exit } \
                  if (!$p) { sleep 20; exit } push @p, $p } print \"none\"; kill(9, @p)'";
    // The children are killed here, because they may not be reaped yet when the shell ends.
    let stdout = session.run(script).stdout;
    let (number, errno) = stdout.split_once(' ').unwrap_or_else(|| panic!("{stdout}"));
    assert!(number.parse::<u64>().unwrap() < 64, "{stdout}");
    assert_eq!(errno, libc::EAGAIN.to_string());
    assert_eq!(session.output("echo on"), "on\n");
}

/// Runs a test in each posture that works on this machine, including `none`.
fn for_each_posture(test: impl Fn(&Fixture)) {
    Fixture::for_each_posture(&test);
    println!("in the posture none");
    test(&Fixture::make(PostureChoice::Exactly(ShellPosture::None)));
}

fn bounded(fixture: &Fixture) -> Session {
    let mut spec = fixture.spec();
    spec.limits.memory_bytes = MEMORY_LIMIT;
    Session(ShellSession::start(&spec).unwrap())
}

#[track_caller]
fn attempt(session: &mut Session, script: &str) -> CommandResult {
    let (mut command_request, canceller) = request(script);
    command_request.max_processes = PROCESS_LIMIT;
    command_request.timeout = Duration::from_secs(15);
    session.attempt((command_request, canceller)).unwrap_or_else(|error| panic!("{script}: {error:?}"))
}

/// Runs something beside a bystander: a thread that starts threads, allocates memory and writes a file all the time.
/// The bystander must never be refused. Its waiting times are printed but not checked, because the machine
/// may be busy.
fn with_bystander<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let bystander = Bystander::start();
    let result = run();
    let (longest, rounds) = bystander.end();
    println!("{what}: the bystander waited {longest:?} at most, in {rounds} rounds");
    result
}

struct Bystander {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Duration, u32)>,
}

impl Bystander {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&is_over);
        let folder = tempfile::tempdir().unwrap();
        let thread = thread::spawn(move || {
            let (mut longest, mut rounds) = (Duration::ZERO, 0);
            while !stop_flag.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let started = thread::Builder::new().spawn(|| ()).expect("a thread is started");
                started.join().unwrap();
                longest = longest.max(begun.elapsed());
                if rounds % 10 == 0 {
                    assert_eq!(
                        vec![1_u8; 64 << 20]
                            .iter()
                            .step_by(4096)
                            .map(|byte| usize::from(*byte))
                            .sum::<usize>(),
                        16384
                    );
                }
                fs::write(folder.path().join("file"), "text").expect("a file is written");
                rounds += 1;
                thread::park_timeout(Duration::from_millis(10));
            }
            (longest, rounds)
        });
        Self { is_over, thread }
    }

    fn end(self) -> (Duration, u32) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it was refused nothing")
    }
}
