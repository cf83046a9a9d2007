//! TOCTOU races: a second thread swaps files for links while calls run. No call ever leaves the mount,
//! whatever its result.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use serde_json::json;

use super::{FileSetup, IN_VAULT, OUTSIDE};

/// The number of rounds of calls that race with the swaps.
const ROUNDS: usize = 150;

/// Swaps the file, folder or link behind a name in a cycle until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    /// Makes each candidate under a temporary name, and then renames it to `name`.
    fn start(name: PathBuf, candidates: &'static [fn(&Path)]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let temporary = name.with_extension("next");
            for make in candidates.iter().cycle() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                make(&temporary);
                if fs::rename(&temporary, &name).is_err() {
                    // A rename cannot replace a file with a folder, nor a folder with a file, so remove the
                    // old object first.
                    let _ = fs::remove_dir_all(&name).or_else(|_| fs::remove_file(&name));
                    fs::rename(&temporary, &name)
                        .or_else(|_| fs::remove_dir_all(&temporary))
                        .or_else(|_| fs::remove_file(&temporary))
                        .expect("the entry can be replaced or removed");
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the swapping thread ended without a panic");
        }
    }
}

async fn race(setup: &FileSetup, path: &str) {
    for round in 0..ROUNDS {
        let (tool, arguments) = match round % 4 {
            0 | 1 => ("file_read", json!({"path": path})),
            2 => ("file_write", json!({"path": path, "content": "changed", "mode": "overwrite"})),
            _ => ("file_write", json!({"path": path, "content": "changed", "mode": "append"})),
        };
        let answer_text = setup.call(tool, arguments).await.0.model_text();
        for secret in [OUTSIDE, IN_VAULT, "root:x:"] {
            assert!(!answer_text.contains(secret), "{answer_text}");
        }
    }
    let read = |path: PathBuf| fs::read_to_string(path).expect("the file is readable");
    assert_eq!(read(setup.fixture.root().join("outside.txt")), OUTSIDE);
    assert_eq!(read(setup.fixture.workspace().join("vault/secret.txt")), IN_VAULT);
    assert_eq!(read(setup.fixture.workspace().join("sharedx/x.txt")), OUTSIDE);
    for folder in ["sharedx", "vault"] {
        let entries = fs::read_dir(setup.fixture.workspace().join(folder)).expect("readable").count();
        assert_eq!(entries, 1, "nothing was made in {folder}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_swapped_for_a_link_never_leads_out() {
    let setup = FileSetup::new().await;
    let swapper = Swapper::start(
        setup.fixture.shared("swap.txt"),
        &[
            |path| fs::write(path, "inside").expect("writable"),
            |path| symlink("../../outside.txt", path).expect("a link"),
            |path| symlink("../vault/secret.txt", path).expect("a link"),
            |path| symlink("/etc/passwd", path).expect("a link"),
        ],
    );
    race(&setup, "/shared/swap.txt").await;
    drop(swapper);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_swapped_for_a_link_never_leads_out() {
    let setup = FileSetup::new().await;
    let swapper = Swapper::start(
        setup.fixture.shared("swap"),
        &[
            |path| {
                fs::create_dir(path).expect("a folder");
                fs::write(path.join("x.txt"), "inside").expect("writable");
            },
            |path| symlink("../sharedx", path).expect("a link"),
            |path| symlink("../vault", path).expect("a link"),
        ],
    );
    race(&setup, "/shared/swap/x.txt").await;
    drop(swapper);
}
