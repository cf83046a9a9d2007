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

use super::{Vault, assert_content, bytes, call, caller_with_progress, vault_path};

#[tokio::test]
async fn any_bytes_of_any_length_arrive_as_they_are() {
    let vault = Vault::new().await;
    let chunk = MAX_CHUNK_BYTES;
    for (length, formatted_length) in [
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
        assert_eq!(
            answer.text(),
            format!("copied {formatted_length} bytes from /vault/file to /shared/copy")
        );
        assert_eq!(answer.0.details, json!({"bytes": length}));
        assert_content(&vault.shared("copy"), &content);
        assert_content(&vault_path(&vault.fixture, "file"), &content);
        vault.assert_no_temporary_file();
    }
}

#[tokio::test]
async fn a_large_file_is_never_in_memory_as_a_whole() {
    let vault = Vault::new().await;
    let content = bytes(64 << 20);
    vault.put("large", &content);
    vault.assert_copied("/vault/large", "/tmp/large").await;
    assert_content(&vault.fixture.workspace().join("tmp/large"), &content);
    for step in ["vault_copyto_read", "vault_copyto_write"] {
        let peak = vault.end_row_of(step).peak_memory.expect("a guest's");
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
    assert_content(&vault.shared("frames"), content.as_bytes());
}

#[tokio::test]
async fn a_copy_makes_parents_and_keeps_a_replaced_files_permissions() {
    let vault = Vault::new().await;
    vault.assert_copied("/vault/key", "/shared/a/b/key").await;
    assert_content(&vault.shared("a/b/key"), b"secret");
    vault.fixture.put("run.sh", "old");
    fs::set_permissions(vault.shared("run.sh"), fs::Permissions::from_mode(0o750)).expect("a mode");
    vault.assert_copied("/vault/key", "run.sh").await;
    assert_content(&vault.shared("run.sh"), b"secret");
    let mode = fs::metadata(vault.shared("run.sh")).expect("the path exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    // A link within the vault is followed.
    symlink("key", vault_path(&vault.fixture, "link")).expect("a link");
    vault.assert_copied("/vault/link", "linked").await;
    assert_content(&vault.shared("linked"), b"secret");
    vault.assert_no_temporary_file();
}

#[tokio::test]
async fn a_reader_sees_the_old_file_or_the_new_one_and_never_a_part() {
    let vault = Vault::new().await;
    let (first, second) = (vec![b'a'; 3 << 20], vec![b'b'; 2 << 20]);
    vault.put("one", &first);
    vault.put("other", &second);
    vault.assert_copied("/vault/one", "file").await;
    let (is_over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let reader = {
        let (path, is_over, reads) = (vault.shared("file"), Arc::clone(&is_over), Arc::clone(&reads));
        let (first, second) = (first.clone(), second.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let content = fs::read(&path).expect("always there");
                assert!(content == first || content == second, "a part of {} bytes", content.len());
                reads.fetch_add(1, Ordering::AcqRel);
            }
        })
    };
    // Repeat the copies until some reads have interleaved with them.
    let is_read = || reads.load(Ordering::Acquire) >= 10 || reader.is_finished();
    for _ in (0..).take_while(|round| *round < 10 || !is_read()) {
        vault.assert_copied("/vault/other", "file").await;
        vault.assert_copied("/vault/one", "file").await;
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
        async move { vault.assert_copied("/vault/file", &format!("/shared/{number}")).await }
    });
    join_all(copies).await;
    for number in 0..12 {
        assert_content(&vault.shared(&number.to_string()), &content);
    }
    vault.assert_no_temporary_file();
}

#[tokio::test]
async fn progress_of_a_copy_is_reported() {
    let vault = Vault::new().await;
    vault.put("file", bytes(16 << 20));
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let caller = caller_with_progress(move |text| sink.lock().expect("not poisoned").push(text));
    let result = vault.registry.execute_with_policy(call("/vault/file", "copy"), &caller).await;
    result.into_result().expect("copied");
    let reports = reports.lock().expect("not poisoned");
    assert!(reports.iter().any(|text| text == "50 % of 16777216 bytes"), "{reports:?}");
    assert!(reports.len() <= 20, "{reports:?}");
}
