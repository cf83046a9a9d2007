//! What is left where a copy is stopped, on whichever side: the destination as it was, and nothing temporary.

use std::{
    fs,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use portcullis_tests::{Answer, World};
use portcullis_tools::audit;
use portcullis_types::{
    CancellationToken, MAX_TRANSFER_BYTES,
    ToolErrorKind::{Cancelled, Failed, ResourceLimit, Timeout, Unavailable},
};
use tokio::time::{interval, timeout};

use super::{Vault, call, told};

/// What a test waits for at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shorter than what the largest copy takes anywhere, longer than what starting both steps takes.
const SHORT: &str = "timeout = \"250ms\"";

/// A file that is as large as may be in the vault, and an old one where it shall be copied to.
async fn large(world: World) -> Vault {
    let vault = Vault::of(world).await;
    vault.put_sparse("large", MAX_TRANSFER_BYTES);
    vault.world.put("old", "old");
    vault
}

impl Vault {
    async fn copy_large(&self) -> Answer {
        let copied = timeout(PATIENCE, self.copy("/vault/large", "/shared/old")).await;
        copied.expect("it ends")
    }

    #[track_caller]
    fn is_as_it_was(&self) {
        assert_eq!(fs::read(self.shared("old")).expect("there"), b"old");
        self.has_nothing_temporary();
        let open: Vec<_> = self.world.rows().into_iter().filter(|row| row.outcome.is_none()).collect();
        let ended = self.ends();
        assert!(open.iter().all(|row| ended.iter().any(|end| end.call_id == row.call_id)), "{open:#?}");
    }

    #[track_caller]
    fn outcome_of(&self, tool: &str) -> String {
        self.end_of(tool).outcome.expect("an end").as_str().to_owned()
    }
}

#[tokio::test]
async fn a_copy_that_is_cancelled_leaves_nothing() {
    let vault = large(World::new()).await;
    let cancel = CancellationToken::new();
    let mut caller = told({
        let cancel = cancel.clone();
        move |_| cancel.cancel()
    });
    caller.cancel = cancel;
    let copied = vault.registry.execute_with_policy(call("/vault/large", "/shared/old"), &caller);
    let result = timeout(PATIENCE, copied).await.expect("it ends");
    Answer(result).refused(Cancelled, "cancelled");
    vault.is_as_it_was();
    assert_eq!(vault.outcome_of("vault_copyto"), "cancelled");
    assert_eq!(vault.outcome_of("vault_copyto_read"), "cancelled");
    assert_eq!(vault.outcome_of("vault_copyto_write"), "failed", "it says itself that it got a part");
}

#[tokio::test]
async fn a_copy_whose_time_is_up_leaves_nothing_and_ends_in_time() {
    let vault = large(saying_short("vault_copyto")).await;
    let started = Instant::now();
    let said = vault.copy_large().await.refused(Timeout, "timeout");
    assert!(said.contains("250ms"), "{said}");
    assert!(started.elapsed() < Duration::from_secs(5));
    vault.is_as_it_was();
    assert_eq!(vault.outcome_of("vault_copyto_write"), "failed", "it was not killed");
}

#[tokio::test]
async fn a_copy_whose_turn_is_over_leaves_nothing() {
    let vault = large(World::new()).await;
    let mut caller = told(|_| {});
    caller.turn_deadline = Some(Instant::now() + Duration::from_millis(250));
    let result = vault.registry.execute_with_policy(call("/vault/large", "/shared/old"), &caller).await;
    Answer(result).refused(Timeout, "timeout");
    vault.is_as_it_was();
}

#[tokio::test]
async fn a_copy_that_its_caller_drops_still_ends_in_order() {
    let vault = large(World::new()).await;
    let progress = Arc::new(tokio::sync::Semaphore::new(0));
    let caller = told({
        let progress = Arc::clone(&progress);
        move |_| progress.add_permits(1)
    });
    tokio::select! {
        result = vault.registry.execute_with_policy(call("/vault/large", "/shared/old"), &caller) => {
            panic!("it ended by itself: {result:?}")
        }
        permit = progress.acquire() => permit.expect("open").forget(),
    }
    assert_eq!(vault.end_of("vault_copyto").code.as_deref(), Some("caller_gone"));
    let both_ended = async {
        let mut ticks = interval(Duration::from_millis(10));
        while vault.ends().len() < 3 {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, both_ended).await.expect("the steps end");
    vault.is_as_it_was();
}

#[tokio::test]
async fn a_read_step_that_is_stopped_ends_the_write_step_in_order() {
    let vault = large(saying_short("vault_copyto_read")).await;
    vault.copy_large().await.refused(Timeout, "timeout");
    vault.is_as_it_was();
    assert_eq!(vault.outcome_of("vault_copyto_read"), "timeout");
    assert_eq!(vault.outcome_of("vault_copyto_write"), "failed");
}

#[tokio::test]
async fn what_a_write_step_leaves_that_is_killed_is_removed_by_a_further_call() {
    let vault = large(saying_short("vault_copyto_write")).await;
    vault.copy_large().await.refused(Timeout, "timeout");
    vault.is_as_it_was();
    assert_eq!(vault.outcome_of("vault_copyto_read"), "cancelled");
    let write: Vec<_> = vault.ends().into_iter().filter(|row| &*row.tool == "vault_copyto_write").collect();
    let outcomes: Vec<_> = write.iter().map(|row| row.outcome.expect("an end").as_str()).collect();
    assert_eq!(outcomes, ["timeout", "ok"], "{write:#?}");
    assert_eq!(write[0].operation_id, write[1].operation_id);
}

#[tokio::test]
async fn a_write_step_that_fails_stops_the_read_step() {
    let vault = large(World::new()).await;
    fs::create_dir(vault.shared("folder")).expect("a folder");
    let started = Instant::now();
    let answer = vault.copy("/vault/large", "/shared/folder").await;
    assert_eq!(answer.refused(Failed, "failed"), "cannot write `/shared/folder`: it is a directory");
    assert!(started.elapsed() < Duration::from_secs(5), "it was not read to its end");
    vault.is_as_it_was();
    assert_eq!(vault.outcome_of("vault_copyto_read"), "cancelled");
    let write: Vec<_> = vault.ends().into_iter().filter(|row| &*row.tool == "vault_copyto_write").collect();
    assert_eq!(write.len(), 1, "a step that says why has put its things in order");
}

#[tokio::test]
async fn a_step_without_the_memory_that_it_needs_leaves_nothing() {
    for step in ["vault_copyto_read", "vault_copyto_write"] {
        let vault = large(super::saying(step, "memory = \"64KiB\"")).await;
        vault.copy_large().await.refused(ResourceLimit, "memory_limit");
        vault.is_as_it_was();
    }
}

#[tokio::test]
async fn a_file_that_is_cut_while_it_is_read_gives_what_was_there() {
    let vault = Vault::new().await;
    let content = super::bytes(16 << 20);
    vault.put("file", &content);
    let path = super::in_vault(&vault.world, "file");
    let cut = Arc::new(OnceLock::new());
    let caller = told({
        let cut = Arc::clone(&cut);
        move |_| {
            // Once: the other bytes of the file are gone while it is read.
            cut.get_or_init(|| {
                fs::File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 20))
            });
        }
    });
    let result = vault.registry.execute_with_policy(call("/vault/file", "/shared/copy"), &caller).await;
    result.outcome.expect("what was there when it was read");
    cut.get().expect("told of progress").as_ref().expect("cut");
    let copy = fs::read(vault.shared("copy")).expect("copied");
    assert!(content.starts_with(&copy), "a copy of {} bytes is the beginning of the file", copy.len());
}

#[tokio::test]
async fn a_copy_whose_reading_cannot_be_recorded_is_not_made() {
    let vault = Vault::new().await;
    vault.put("file", super::bytes(16 << 20));
    vault.world.put("old", "old");
    let log = audit::log_path(&vault.world.state());
    let moved = Arc::new(OnceLock::new());
    let caller = told({
        let moved = Arc::clone(&moved);
        move |_| {
            moved.get_or_init(|| fs::rename(&log, log.with_extension("old")));
        }
    });
    let result = vault.registry.execute_with_policy(call("/vault/file", "/shared/old"), &caller).await;
    Answer(result).refused(Unavailable, "audit_unwritable");
    moved.get().expect("told of progress").as_ref().expect("moved");
    assert_eq!(fs::read(vault.shared("old")).expect("there"), b"old");
    vault.has_nothing_temporary();
}

fn saying_short(entry: &str) -> World {
    super::saying(entry, SHORT)
}
