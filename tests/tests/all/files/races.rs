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

use super::{IN_VAULT, OUTSIDE, Place};

/// The number of rounds of calls that race with the swaps.
const ROUNDS: usize = 150;

/// Swaps the object behind a name in a cycle until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    /// Makes each candidate under another name and then renames it to `name`.
    fn start(name: PathBuf, candidates: &'static [fn(&Path)]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let beside = name.with_extension("next");
            for make in candidates.iter().cycle() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                make(&beside);
                if fs::rename(&beside, &name).is_err() {
                    // A rename cannot replace a file by a folder, nor a folder by a file: the old object is
                    // removed first.
                    let _ = fs::remove_dir_all(&name).or_else(|_| fs::remove_file(&name));
                    fs::rename(&beside, &name)
                        .or_else(|_| fs::remove_dir_all(&beside))
                        .or_else(|_| fs::remove_file(&beside))
                        .expect("somebody's own");
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
            assert!(ended.is_ok() || thread::panicking(), "the second party went on to the end");
        }
    }
}

async fn race(place: &Place, path: &str) {
    for round in 0..ROUNDS {
        let (tool, arguments) = match round % 4 {
            0 | 1 => ("file_read", json!({"path": path})),
            2 => ("file_write", json!({"path": path, "content": "changed", "mode": "overwrite"})),
            _ => ("file_write", json!({"path": path, "content": "changed", "mode": "append"})),
        };
        let said = place.call(tool, arguments).await.0.model_text();
        for secret in [OUTSIDE, IN_VAULT, "root:x:"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let read = |path: PathBuf| fs::read_to_string(path).expect("there");
    assert_eq!(read(place.world.root().join("outside.txt")), OUTSIDE);
    assert_eq!(read(place.world.workspace().join("vault/secret.txt")), IN_VAULT);
    assert_eq!(read(place.world.workspace().join("sharedx/x.txt")), OUTSIDE);
    for folder in ["sharedx", "vault"] {
        let entries = fs::read_dir(place.world.workspace().join(folder)).expect("readable").count();
        assert_eq!(entries, 1, "nothing was made in {folder}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_swapped_for_a_link_never_leads_out() {
    let place = Place::new().await;
    let swapper = Swapper::start(
        place.world.shared("swap.txt"),
        &[
            |at| fs::write(at, "inside").expect("writable"),
            |at| symlink("../../outside.txt", at).expect("a link"),
            |at| symlink("../vault/secret.txt", at).expect("a link"),
            |at| symlink("/etc/passwd", at).expect("a link"),
        ],
    );
    race(&place, "/shared/swap.txt").await;
    drop(swapper);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_swapped_for_a_link_never_leads_out() {
    let place = Place::new().await;
    let swapper = Swapper::start(
        place.world.shared("swap"),
        &[
            |at| {
                fs::create_dir(at).expect("a folder");
                fs::write(at.join("x.txt"), "inside").expect("writable");
            },
            |at| symlink("../sharedx", at).expect("a link"),
            |at| symlink("../vault", at).expect("a link"),
        ],
    );
    race(&place, "/shared/swap/x.txt").await;
    drop(swapper);
}
