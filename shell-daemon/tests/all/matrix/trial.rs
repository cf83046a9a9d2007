//! Every case in every column.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use portcullis_shell_protocol::exited::Ending;
use portcullis_types::ShellPosture;

use super::{
    case::{Case, Fate, Witness, all},
    column::{Column, Place, is_killed},
};
use crate::{
    server::sidecar::{Ran, soon},
    world::processes_with,
};

#[tokio::test]
async fn strong_stops_what_the_table_says() {
    check(ShellPosture::Strong).await;
}

#[tokio::test]
async fn contained_stops_what_the_table_says_on_host_and_in_container() {
    check(ShellPosture::Contained).await;
}

#[tokio::test]
async fn minimal_leaves_open_what_the_table_says() {
    check(ShellPosture::Minimal).await;
}

#[tokio::test]
async fn posture_none_leaves_open_what_the_table_says() {
    check(ShellPosture::None).await;
}

/// Tries every case in every column of a posture, and reports all differences at once.
async fn check(posture: ShellPosture) {
    let mut otherwise = Vec::new();
    for column in Column::of(posture) {
        let Some(mut place) = Place::new(column, "matrix").await else { return };
        for case in all() {
            for attack in case.attacks {
                let expected = case.fate(column);
                if let Err(seen) = meet(&mut place, &case, attack, expected).await {
                    otherwise
                        .push(format!("{column:?}: {}: {attack}: {expected:?} expected, {seen}", case.about));
                }
            }
        }
        if matches!(posture, ShellPosture::Strong | ShellPosture::Contained) {
            assert_untouched(&place);
        }
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
}

/// Makes one attack; an error tells what differed from the expected fate.
async fn meet(place: &mut Place, case: &Case, attack: &str, expected: Fate) -> Result<(), String> {
    let script = place.script(attack);
    let timeout = if expected == Fate::Late { SHORT_MS } else { LONG_MS };
    let swaps = attack.contains("@swapped@").then(|| Swapper::start(place, expected));
    let ran = place.attempt(&script, timeout).await;
    drop(swaps);
    let seen = fate(&ran);
    let heard = place.listeners.heard();
    let mark = place.mark.clone();
    soon("nothing of it is left", || processes_with(&mark).is_empty()).await;
    if expected == Fate::Refused && ran.stdout.contains("vault/secret") {
        return Err(format!("something was read: {ran:?}"));
    }
    if case.witness == Witness::Listener && (heard > 0) != (expected == Fate::Open) {
        return Err(format!("{heard} listeners heard something: {ran:?}"));
    }
    if case.witness == Witness::ScriptIfSupported && seen == Fate::Refused && expected == Fate::Open {
        let kernel = ran.stderr;
        println!("no control on this machine: {}: {attack}: {kernel}", case.about);
        return Ok(());
    }
    if seen == expected { Ok(()) } else { Err(format!("{seen:?}: {ran:?}")) }
}

fn fate(ran: &Ran) -> Fate {
    if ran.exited.interruption == "timeout" {
        Fate::Late
    } else if is_killed(&ran.exited) {
        Fate::Killed
    } else if ran.exited.ending != Some(Ending::Code(0)) {
        Fate::Refused
    } else if ran.exited.protected_paths.is_empty() {
        Fate::Open
    } else {
        Fate::Told
    }
}

/// Files that no command could write are unchanged.
#[track_caller]
fn assert_untouched(place: &Place) {
    for (file, text) in
        [("vault/secret", "vault/secret"), ("read/file", "read/file"), ("read/other", "old\n")]
    {
        assert_eq!(std::fs::read_to_string(place.world.path(file)).unwrap(), text);
    }
    for (folder, expected) in [("vault", 3), ("read", 2)] {
        assert_eq!(std::fs::read_dir(place.world.path(folder)).unwrap().count(), expected, "{folder}");
    }
}

/// Makes a name lead to a harmless file and to the secret by turns. If the secret must stay out of reach, the
/// command gets a stop sign after enough tries; otherwise it goes on until it has read the secret.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    enough: PathBuf,
}

impl Swapper {
    fn start(place: &Place, expected: Fate) -> Self {
        let path = |name: &str| place.world.path(name);
        let (link, next, enough) = (path("shared/swapped"), path("shared/next"), path("shared/enough"));
        let targets = [PathBuf::from("plain-text"), path("vault/secret")];
        let stop = Arc::new(AtomicBool::new(false));
        let (is_over, end) = (Arc::clone(&stop), enough.clone());
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !is_over.load(Ordering::Relaxed) {
                for target in &targets {
                    std::os::unix::fs::symlink(target, &next).unwrap();
                    std::fs::rename(&next, &link).unwrap();
                    std::thread::yield_now();
                }
                swaps += 1;
                if swaps == ENOUGH && expected == Fate::Refused {
                    std::fs::write(&end, "").unwrap();
                }
            }
        });
        Self { stop, thread: Some(thread), enough }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let _ = std::fs::remove_file(&self.enough);
    }
}

/// For attacks that do not end by themselves.
const SHORT_MS: u64 = 250;

/// For all other attacks, which need a fraction of it.
const LONG_MS: u64 = 30_000;

/// Rounds of swaps; the command reads about as often.
const ENOUGH: usize = 5000;
