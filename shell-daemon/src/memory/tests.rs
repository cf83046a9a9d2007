//! The memory count of processes that end, share memory, or have many mappings.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::tree::{Process, ProcessTable};

#[expect(clippy::disallowed_methods, reason = "the tests need processes to sample")]
fn start(script: &str) -> Child {
    Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap()
}

/// Whether this machine has a perl that accepts the option.
#[expect(clippy::disallowed_methods, reason = "the tests need processes to sample")]
fn has_perl(option: &str) -> bool {
    let is_there =
        Command::new("perl").args([option, "-e", "1"]).status().is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: there is no perl with {option}");
    }
    is_there
}

/// The entries of `child` and the processes below it, as soon as there are `count` of them.
fn entries(child: &Child, count: usize) -> Vec<ProcessEntry> {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let own_pid = rustix::process::getpid();
    let deadline = Instant::now() + std::time::Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "there are never {count} processes");
        let root = Process::child_of(own_pid, pid).expect("it runs");
        let mut descendants =
            ProcessTable::read().unwrap().descendants_of(Process::current().unwrap()).living_processes;
        descendants.retain(|entry| entry.process == root || entry.parent() == pid.as_raw_pid());
        if descendants.len() == count {
            return descendants;
        }
        std::thread::yield_now();
    }
}

/// Kills a child and waits for its end without reaping it. The child stays a zombie without memory.
fn kill_unreaped(child: &mut Child, entry: &ProcessEntry) {
    child.kill().unwrap();
    rustix::process::waitid(
        rustix::process::WaitId::Pid(entry.process.pid),
        rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
    )
    .unwrap();
}

fn used(entries: &[ProcessEntry], limit: u64, sampled_while: SampledWhile) -> MemoryUse {
    MemoryMeter::new(DescriptorSearch::Needed).unwrap().measure_used(
        entries,
        limit,
        sampled_while,
        &mut MappedExtents::default(),
    )
}

#[test]
fn a_sample_that_lost_too_much_memory_is_discarded() {
    let mut child = start("read line");
    let listed = entries(&child, 1);
    assert_eq!(used(&listed, 1 << 40, SampledWhile::Running).partial_sample, None, "the control");
    kill_unreaped(&mut child, &listed[0]);
    for _ in ["dead", "buried"] {
        assert_eq!(used(&listed, 1 << 40, SampledWhile::Running), MemoryUse::default());
        let close = listed[0].virtual_bytes - 1;
        assert_eq!(
            used(&listed, close, SampledWhile::Running),
            MemoryUse { partial_sample: Some(PartialSample::Lost), ..MemoryUse::default() }
        );
        assert_eq!(used(&listed, close, SampledWhile::Stopped), MemoryUse::default(), "nothing goes on");
        let _ = child.wait();
    }
}

/// The kernel shows an ended process's mappings as an empty list, whether the process was listed with memory or not.
#[test]
fn mappings_of_a_process_that_gave_its_memory_back_are_unknown() {
    let mut child = start("read line");
    let listed = entries(&child, 1);
    let mut extents = MappedExtents::default();
    let mut shared = SharedMemory::new(&[], &mut extents, u64::MAX);
    assert!(shared.add_mappings(&listed[0]).is_ok_and(|mappings| mappings > 0), "the control");
    assert!(listed[0].has_memory());
    kill_unreaped(&mut child, &listed[0]);
    for _ in ["dead", "buried"] {
        assert!(matches!(shared.add_mappings(&listed[0]), Err(UnreadMappings::Failed(_))));
        assert!(!listed[0].has_memory());
        let _ = child.wait();
    }
}

/// A write to such a page gives each process a separate one, and adds nothing to the rest of the count.
#[test]
fn pages_that_fork_doubles_are_part_of_the_private_ones() {
    if !has_perl("-w") {
        return;
    }
    let mut child = start("exec perl -e '$n = 40 << 20; $x = \"x\" x $n; fork; <STDIN>'");
    let listed = entries(&child, 2);
    let limit = 60 << 20;
    let usage = used(&listed, limit, SampledWhile::Running);
    assert!(usage.bytes < limit, "{usage:?}");
    assert!(
        MemoryMeter::private(&listed, u64::MAX).bytes + usage.shared_and_kernel_bytes > limit,
        "{usage:?}"
    );
    assert!(MemoryMeter::private(&listed, limit).bytes < limit, "each page once");
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// This also works without root: `cargo test` may run as a user that may not read everything.
#[test]
fn a_process_whose_first_thread_has_ended_hides_nothing() {
    let script = format!(
        "exec perl -Mthreads -e 'threads->create(sub {{ <STDIN> }}); syscall({}, 0)'",
        libc::SYS_exit
    );
    if !has_perl("-Mthreads") {
        return;
    }
    let mut child = start(&script);
    let listed = loop {
        let listed = entries(&child, 1);
        if listed[0].is_headless {
            break listed;
        }
    };
    let mut extents = MappedExtents::default();
    let mut shared = SharedMemory::new(&[], &mut extents, u64::MAX);
    shared.add_descriptors(&listed[0]).expect("all of it is shown");
    assert!(shared.add_mappings(&listed[0]).expect("all of it is shown") > 0);
    assert!(!used(&listed, 1 << 40, SampledWhile::Running).has_unreadable);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_look_at_what_runs_reads_no_more_mappings_than_it_may() {
    let mut child = start("read line");
    let listed = entries(&child, 1);
    let meter = MemoryMeter::new(DescriptorSearch::Needed).unwrap();
    let sample = |max_mappings| {
        let mut extents = MappedExtents::default();
        meter.sample(
            &listed,
            1 << 40,
            SampledWhile::Running,
            &mut SharedMemory::new(&meter.devices, &mut extents, max_mappings),
        )
    };
    assert_eq!(sample(3).partial_sample, Some(PartialSample::TooMany));
    assert_eq!(sample(MAX_MAPPINGS_PER_SAMPLE).partial_sample, None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn possible_copy_of_the_parents_memory_is_doubtful() {
    // A subshell runs the program of its parent, with a copy of its memory.
    let mut child = start("(read line; :); :");
    let mut listed = entries(&child, 2);
    // The parent or the copy may have grown since the fork: make the sizes equal again.
    listed[1].virtual_bytes = listed[0].virtual_bytes;
    let memories = || listed.iter().map(|entry| (*entry, ProcessMemory::read(entry).unwrap())).collect();
    let counts = |answer: Option<bool>| {
        let (separate, doubtful) = split_shared_address_spaces(memories(), |_, _| answer);
        (separate.len(), doubtful.len())
    };
    assert_eq!((counts(Some(true)), counts(Some(false)), counts(None)), ((1, 0), (2, 0), (1, 1)));
    let (separate, _) = split_shared_address_spaces(memories(), share_memory);
    assert_eq!(separate.len(), 2, "it is a copy");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn memory_that_may_be_counted_twice_is_believed_when_it_lasts() {
    let used = |bytes, doubtful| MemoryUse { bytes, doubtful, ..MemoryUse::default() };
    let mut doubt = None;
    let begun = Instant::now();
    assert_eq!(used(70, 60).counted_bytes(100, &mut doubt, begun), 70);
    assert_eq!(used(70, 60).counted_bytes(100, &mut doubt, begun + EXCESS_GRACE / 2), 70);
    // The new program runs, which ends the doubt.
    assert_eq!(used(80, 0).counted_bytes(100, &mut doubt, begun + EXCESS_GRACE / 2), 80);
    let later = begun + EXCESS_GRACE;
    assert_eq!(used(70, 60).counted_bytes(100, &mut doubt, later), 70);
    assert_eq!(used(70, 60).counted_bytes(100, &mut doubt, later + EXCESS_GRACE), 130);
    // The excess is more than a double count can explain.
    assert_eq!(used(70, 140).counted_bytes(100, &mut None, begun), 210);
}

#[test]
fn only_a_missing_file_means_no_shared_memory() {
    let read = |text: &str| parse_shared_bytes(Ok(text.to_owned()));
    assert_eq!(read("Shmem:  4 kB\nSwapTotal: 3 kB\nSwapFree: 1 kB\n"), Some(6 << 10));
    assert_eq!(parse_shared_bytes(Err(io::ErrorKind::NotFound.into())), Some(0));
    let no_descriptor = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
    assert_eq!(parse_shared_bytes(Err(no_descriptor)), None);
}
