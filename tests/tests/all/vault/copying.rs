//! The copied content, and the replacement of the destination.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use portcullis_types::MAX_CHUNK_BYTES;
use serde_json::json;

use super::{Vault, bytes, call, caller_with_progress, in_vault, same};

#[tokio::test]
async fn any_bytes_of_any_length_arrive_as_they_are() {
    let vault = Vault::new().await;
    let chunk = MAX_CHUNK_BYTES;
    for (length, shown) in [
        (0, "0"),
        (1, "1"),
        (1234, "1,234"),
        (chunk - 1, "524,287"),
        (chunk, "524,288"),
        (chunk + 1, "524,289"),
        (3 * chunk + 7, "1,572,871"),
        (24 << 20, "25,165,824"),
    ] {
        let content = bytes(length);
        vault.put("file", &content);
        let answer = vault.copy("/vault/file", "/shared/copy").await;
        assert_eq!(answer.text(), format!("copied {shown} bytes from /vault/file to /shared/copy"));
        assert_eq!(answer.0.details, json!({"bytes": length}));
        same(&vault.shared("copy"), &content);
        same(&in_vault(&vault.world, "file"), &content);
        vault.has_nothing_temporary();
    }
}

#[tokio::test]
async fn a_large_file_is_never_in_memory_as_a_whole() {
    let vault = Vault::new().await;
    let content = bytes(64 << 20);
    vault.put("large", &content);
    vault.copied("/vault/large", "/tmp/large").await;
    same(&vault.world.workspace().join("tmp/large"), &content);
    for step in ["vault_copyto_read", "vault_copyto_write"] {
        let peak = vault.end_of(step).peak_memory.expect("a guest's");
        assert!(peak < 8 << 20, "{step}: {peak} bytes");
    }
}

#[tokio::test]
async fn text_that_looks_like_frames_is_only_bytes() {
    let vault = Vault::new().await;
    let content = "{\"ok\":\"done\"}\n{\"end\":0}\n{\"chunk\":3}\n";
    vault.put("frames", content);
    assert_eq!(
        vault.copy("/vault/frames", "frames").await.text(),
        format!("copied {} bytes from /vault/frames to /shared/frames", content.len())
    );
    same(&vault.shared("frames"), content.as_bytes());
}

#[tokio::test]
async fn a_copy_makes_parents_and_keeps_a_replaced_files_permissions() {
    let vault = Vault::new().await;
    vault.copied("/vault/key", "/shared/a/b/key").await;
    same(&vault.shared("a/b/key"), b"secret");
    vault.world.put("run.sh", "old");
    fs::set_permissions(vault.shared("run.sh"), fs::Permissions::from_mode(0o750)).expect("a mode");
    vault.copied("/vault/key", "run.sh").await;
    same(&vault.shared("run.sh"), b"secret");
    let mode = fs::metadata(vault.shared("run.sh")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    // A link within the vault is followed.
    symlink("key", in_vault(&vault.world, "link")).expect("a link");
    vault.copied("/vault/link", "linked").await;
    same(&vault.shared("linked"), b"secret");
    vault.has_nothing_temporary();
}

#[tokio::test]
async fn a_reader_sees_the_old_file_or_the_new_one_and_never_a_part() {
    let vault = Vault::new().await;
    let (one, other) = (vec![b'a'; 3 << 20], vec![b'b'; 2 << 20]);
    vault.put("one", &one);
    vault.put("other", &other);
    vault.copied("/vault/one", "file").await;
    let (is_over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let reader = {
        let (path, is_over, reads) = (vault.shared("file"), Arc::clone(&is_over), Arc::clone(&reads));
        let (one, other) = (one.clone(), other.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let found = fs::read(&path).expect("always there");
                assert!(found == one || found == other, "a part of {} bytes", found.len());
                reads.fetch_add(1, Ordering::AcqRel);
            }
        })
    };
    // As many rounds as it takes until reads fall between the copies.
    let is_read = || reads.load(Ordering::Acquire) >= 10 || reader.is_finished();
    for _ in (0..).take_while(|round| *round < 10 || !is_read()) {
        vault.copied("/vault/other", "file").await;
        vault.copied("/vault/one", "file").await;
    }
    is_over.store(true, Ordering::Release);
    reader.join().expect("never a part");
}

#[tokio::test]
async fn more_copies_than_slots_all_succeed() {
    let vault = Vault::new().await;
    let content = bytes(5 << 20);
    vault.put("file", &content);
    let copies = (0..12).map(|number| {
        let vault = &vault;
        async move { vault.copied("/vault/file", &format!("/shared/{number}")).await }
    });
    join_all(copies).await;
    for number in 0..12 {
        same(&vault.shared(&number.to_string()), &content);
    }
    vault.has_nothing_temporary();
}

#[tokio::test]
async fn progress_of_a_copy_is_reported() {
    let vault = Vault::new().await;
    vault.put("file", bytes(16 << 20));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let caller = caller_with_progress(move |text| sink.lock().expect("not poisoned").push(text));
    let result = vault.registry.execute_with_policy(call("/vault/file", "copy"), &caller).await;
    result.outcome.expect("copied");
    let heard = heard.lock().expect("not poisoned");
    assert!(heard.iter().any(|text| text == "50 % of 16777216 bytes"), "{heard:?}");
    assert!(heard.len() <= 20, "{heard:?}");
}
