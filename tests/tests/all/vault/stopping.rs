//! A copy whose reading or writing step is stopped leaves the destination unchanged, and no temporary file.

use std::{
    fs,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use portcullis_testing::{CallOutcome, Fixture, TEST_TIMEOUT, approving_caller};
use portcullis_tools::{Caller, audit};
use portcullis_types::{
    CancellationToken, MAX_TRANSFER_BYTES,
    ToolErrorKind::{Cancelled, Failed, ResourceLimit, Timeout, Unavailable},
};
use tokio::time::{interval, timeout};

use super::{Vault, call, caller_with_progress};

/// Timeouts of a copy, in milliseconds. It depends on the machine which of them stops the copy during its
/// transfer: on the start of both steps, the speed of writing, and the final sync to the disk.
const LIMITS_MS: [u64; 9] = [250, 180, 130, 90, 60, 40, 350, 500, 1_000];

/// Creates a fixture with a file of the largest permitted size in the vault, and an old file at the
/// destination.
async fn vault_with_large_file(fixture: Fixture) -> Vault {
    let vault = Vault::with_fixture(fixture).await;
    vault.put_sparse("large", MAX_TRANSFER_BYTES);
    vault.fixture.put("old", "old");
    vault
}

/// The part of a copy that the timeout applies to.
#[derive(Clone, Copy)]
enum LimitedPart {
    Turn,
    Tool(&'static str),
}

/// A copy that was stopped.
struct Stopped {
    vault: Vault,
    answer: CallOutcome,
    limit: Duration,
}

/// Copies the largest file with one timeout after the other, until a copy is stopped in the requested way. A
/// stopped copy must leave everything unchanged. Any other copy must be complete.
async fn copy_until_stopped(
    limited_part: LimitedPart,
    is_requested_stop: impl Fn(&Vault) -> bool,
) -> Stopped {
    // The first call of each step compiles its code, which would count towards the turn's time.
    let compiling = Vault::with_fixture(Fixture::new().with_shared_modules()).await;
    compiling.put_sparse("large", 1);
    let _copied = compiling.copy_large(&approving_caller()).await.text();
    drop(compiling);
    let mut outcomes_by_limit = Vec::new();
    for limit in LIMITS_MS.map(Duration::from_millis) {
        let fixture = match limited_part {
            LimitedPart::Turn => Fixture::new(),
            LimitedPart::Tool(entry) => super::fixture_with_lines(entry, &format!("timeout = \"{limit:?}\"")),
        };
        let vault = vault_with_large_file(fixture.with_shared_modules()).await;
        let mut caller = approving_caller();
        caller.turn_deadline = matches!(limited_part, LimitedPart::Turn).then(|| Instant::now() + limit);
        let answer = vault.copy_large(&caller).await;
        if answer.0.outcome.is_output() {
            assert_eq!(fs::metadata(vault.shared("old")).expect("the copy").len(), MAX_TRANSFER_BYTES);
            vault.assert_no_temporary_file();
        } else {
            vault.assert_unchanged();
            if is_requested_stop(&vault) {
                return Stopped { vault, answer, limit };
            }
        }
        let outcomes = vault.end_rows().into_iter().map(|row| (row.tool, row.outcome));
        outcomes_by_limit.push((limit, outcomes.collect::<Vec<_>>()));
    }
    panic!("no copy was stopped as it was asked for: {outcomes_by_limit:#?}");
}

impl Vault {
    async fn copy_large(&self, caller: &Caller) -> CallOutcome {
        let copied = self.registry.execute_with_policy(call("/vault/large", "/shared/old"), caller);
        CallOutcome(timeout(TEST_TIMEOUT, copied).await.expect("it ends"))
    }

    #[track_caller]
    fn assert_unchanged(&self) {
        assert_eq!(fs::read(self.shared("old")).expect("the file is readable"), b"old");
        self.assert_no_temporary_file();
        let open: Vec<_> = self.fixture.rows().into_iter().filter(|row| row.outcome.is_none()).collect();
        let ended = self.end_rows();
        assert!(open.iter().all(|row| ended.iter().any(|end| end.call_id == row.call_id)), "{open:#?}");
    }

    #[track_caller]
    fn outcome_of(&self, tool: &str) -> String {
        self.end_row_of(tool).outcome.expect("an end").as_str().to_owned()
    }

    /// Returns the outcomes of all calls of a tool, in order.
    fn outcomes_of(&self, tool: &str) -> Vec<&'static str> {
        self.end_rows_of(tool).iter().map(|row| row.outcome.expect("an end").as_str()).collect()
    }
}

#[tokio::test]
async fn a_copy_that_is_cancelled_leaves_nothing() {
    let vault = vault_with_large_file(Fixture::new()).await;
    let cancel = CancellationToken::new();
    let mut caller = caller_with_progress({
        let cancel = cancel.clone();
        move |_| cancel.cancel()
    });
    caller.cancel = cancel;
    let copied = vault.registry.execute_with_policy(call("/vault/large", "/shared/old"), &caller);
    let result = timeout(TEST_TIMEOUT, copied).await.expect("it ends");
    CallOutcome(result).assert_refused(Cancelled, "cancelled");
    vault.assert_unchanged();
    assert_eq!(vault.outcome_of("vault_copyto"), "cancelled");
    assert_eq!(vault.outcome_of("vault_copyto_read"), "cancelled");
    assert_eq!(vault.outcome_of("vault_copyto_write"), "failed", "it says itself that it got a part");
}

/// Returns whether the write step itself reported a partial transfer, and was not killed.
fn was_stopped_in_order(vault: &Vault) -> bool {
    vault.outcomes_of("vault_copyto_write") == ["failed"]
}

#[tokio::test]
async fn a_copy_whose_time_is_up_leaves_nothing_and_ends_in_time() {
    let copy = copy_until_stopped(LimitedPart::Tool("vault_copyto"), was_stopped_in_order).await;
    let took = copy.answer.0.duration;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let message = copy.answer.assert_refused(Timeout, "timeout");
    assert!(message.contains(&format!("{:?}", copy.limit)), "{message}");
}

#[tokio::test]
async fn a_copy_whose_turn_is_over_leaves_nothing() {
    let copy = copy_until_stopped(LimitedPart::Turn, was_stopped_in_order).await;
    copy.answer.assert_refused(Timeout, "timeout");
}

#[tokio::test]
async fn a_copy_that_its_caller_drops_still_ends_in_order() {
    let vault = vault_with_large_file(Fixture::new()).await;
    let progress = Arc::new(tokio::sync::Semaphore::new(0));
    let caller = caller_with_progress({
        let progress = Arc::clone(&progress);
        move |_| progress.add_permits(1)
    });
    tokio::select! {
        result = vault.registry.execute_with_policy(call("/vault/large", "/shared/old"), &caller) => {
            panic!("it ended by itself: {result:?}")
        }
        permit = progress.acquire() => permit.expect("open").forget(),
    }
    assert_eq!(vault.end_row_of("vault_copyto").code.as_deref(), Some("caller_gone"));
    let both_ended = async {
        let mut ticks = interval(Duration::from_millis(10));
        while vault.end_rows().len() < 3 {
            ticks.tick().await;
        }
    };
    timeout(TEST_TIMEOUT, both_ended).await.expect("the steps end");
    vault.assert_unchanged();
}

#[tokio::test]
async fn a_read_step_that_is_stopped_ends_the_write_step_in_order() {
    let read_is_stopped =
        |vault: &Vault| vault.outcomes_of("vault_copyto_read") == ["timeout"] && was_stopped_in_order(vault);
    let copy = copy_until_stopped(LimitedPart::Tool("vault_copyto_read"), read_is_stopped).await;
    copy.answer.assert_refused(Timeout, "timeout");
}

#[tokio::test]
async fn a_further_call_removes_the_leftovers_of_a_killed_write_step() {
    let write_is_killed = |vault: &Vault| {
        vault.outcomes_of("vault_copyto_read") == ["cancelled"]
            && vault.outcomes_of("vault_copyto_write") == ["timeout", "ok"]
    };
    let copy = copy_until_stopped(LimitedPart::Tool("vault_copyto_write"), write_is_killed).await;
    copy.answer.assert_refused(Timeout, "timeout");
    let write = copy.vault.end_rows_of("vault_copyto_write");
    assert_eq!(write[0].operation_id, write[1].operation_id);
}

#[tokio::test]
async fn a_write_step_that_fails_stops_the_read_step() {
    let vault = vault_with_large_file(Fixture::new()).await;
    fs::create_dir(vault.shared("folder")).expect("a folder");
    let answer = vault.copy("/vault/large", "/shared/folder").await;
    assert_eq!(answer.assert_refused(Failed, "failed"), "cannot write `/shared/folder`: it is a directory");
    vault.assert_unchanged();
    assert_eq!(vault.outcome_of("vault_copyto_read"), "cancelled");
    assert_eq!(
        vault.end_rows_of("vault_copyto_write").len(),
        1,
        "a step that says why has put its things in order"
    );
}

#[tokio::test]
async fn a_step_without_the_memory_that_it_needs_leaves_nothing() {
    for step in ["vault_copyto_read", "vault_copyto_write"] {
        let vault = vault_with_large_file(super::fixture_with_lines(step, "memory = \"64KiB\"")).await;
        vault.copy_large(&approving_caller()).await.assert_refused(ResourceLimit, "memory_limit");
        vault.assert_unchanged();
    }
}

#[tokio::test]
async fn a_file_truncated_during_the_read_gives_the_bytes_read() {
    let vault = Vault::new().await;
    let content = super::bytes(16 << 20);
    vault.put("file", &content);
    let path = super::vault_path(&vault.fixture, "file");
    let cut = Arc::new(OnceLock::new());
    let caller = caller_with_progress({
        let cut = Arc::clone(&cut);
        move |_| {
            // Truncate the file once, while it is read.
            cut.get_or_init(|| {
                fs::File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 20))
            });
        }
    });
    let result = vault.registry.execute_with_policy(call("/vault/file", "/shared/copy"), &caller).await;
    result.into_result().expect("what was there when it was read");
    cut.get().expect("told of progress").as_ref().expect("cut");
    let copy = fs::read(vault.shared("copy")).expect("copied");
    assert!(content.starts_with(&copy), "a copy of {} bytes is the beginning of the file", copy.len());
}

#[tokio::test]
async fn a_copy_whose_reading_cannot_be_recorded_is_not_made() {
    let vault = Vault::new().await;
    vault.put("file", super::bytes(16 << 20));
    vault.fixture.put("old", "old");
    let log = audit::log_path(&vault.fixture.state());
    let moved = Arc::new(OnceLock::new());
    let caller = caller_with_progress({
        let moved = Arc::clone(&moved);
        move |_| {
            moved.get_or_init(|| fs::rename(&log, log.with_extension("old")));
        }
    });
    let result = vault.registry.execute_with_policy(call("/vault/file", "/shared/old"), &caller).await;
    CallOutcome(result).assert_refused(Unavailable, "audit_unwritable");
    moved.get().expect("told of progress").as_ref().expect("moved");
    assert_eq!(fs::read(vault.shared("old")).expect("the file is readable"), b"old");
    vault.assert_no_temporary_file();
}
