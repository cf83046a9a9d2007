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
    column::{Column, TrialSetup, is_killed},
};
use crate::{
    fixture::processes_with,
    server::sidecar::{CommandResult, wait_until_async},
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

/// Tries every case in every column of a posture, and reports all differences together.
async fn check(posture: ShellPosture) {
    let mut differences = Vec::new();
    for column in Column::for_posture(posture) {
        let Some(mut setup) = TrialSetup::new(column, "matrix").await else { return };
        for case in all() {
            for attack in case.attacks {
                let expected = case.fate(column);
                if let Err(difference) = try_attack(&mut setup, &case, attack, expected).await {
                    differences.push(format!(
                        "{column:?}: {}: {attack}: {expected:?} expected, {difference}",
                        case.about
                    ));
                }
            }
        }
        if matches!(posture, ShellPosture::Strong | ShellPosture::Contained) {
            assert_untouched(&setup);
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Makes one attack. The error describes a difference from the expected fate.
async fn try_attack(setup: &mut TrialSetup, case: &Case, attack: &str, expected: Fate) -> Result<(), String> {
    let script = setup.script(attack);
    let timeout = if expected == Fate::Late { SHORT_MS } else { LONG_MS };
    let swapper = attack.contains("@swapped@").then(|| Swapper::start(setup, expected));
    let result = setup.attempt(&script, timeout).await;
    drop(swapper);
    let actual = fate(&result);
    let heard_listeners = setup.listeners.heard();
    let mark = setup.mark.clone();
    wait_until_async("nothing of it is left", || processes_with(&mark).is_empty()).await;
    if expected == Fate::Refused && result.stdout.contains("vault/secret") {
        return Err(format!("something was read: {result:?}"));
    }
    if case.witness == Witness::Listener && (heard_listeners > 0) != (expected == Fate::Open) {
        return Err(format!("{heard_listeners} listeners heard something: {result:?}"));
    }
    if case.witness == Witness::ScriptIfSupported && actual == Fate::Refused && expected == Fate::Open {
        let kernel = result.stderr;
        println!("no control on this machine: {}: {attack}: {kernel}", case.about);
        return Ok(());
    }
    if actual == expected { Ok(()) } else { Err(format!("{actual:?}: {result:?}")) }
}

fn fate(result: &CommandResult) -> Fate {
    if result.exited.interruption == "timeout" {
        Fate::Late
    } else if is_killed(&result.exited) {
        Fate::Killed
    } else if result.exited.ending != Some(Ending::Code(0)) {
        Fate::Refused
    } else if result.exited.protected_paths.is_empty() {
        Fate::Open
    } else {
        Fate::Told
    }
}

/// Asserts that files that commands must not write are unchanged.
#[track_caller]
fn assert_untouched(setup: &TrialSetup) {
    for (file, text) in
        [("vault/secret", "vault/secret"), ("read/file", "read/file"), ("read/other", "old\n")]
    {
        assert_eq!(std::fs::read_to_string(setup.fixture.path(file)).unwrap(), text);
    }
    for (folder, expected) in [("vault", 3), ("read", 2)] {
        assert_eq!(std::fs::read_dir(setup.fixture.path(folder)).unwrap().count(), expected, "{folder}");
    }
}

/// Makes a name lead to a harmless file and to the secret in turn. If the secret must stay out of reach, the command
/// gets a stop sign after enough tries. Otherwise the command continues until it has read the secret.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    enough: PathBuf,
}

impl Swapper {
    fn start(setup: &TrialSetup, expected: Fate) -> Self {
        let path = |name: &str| setup.fixture.path(name);
        let (link, next, enough) = (path("shared/swapped"), path("shared/next"), path("shared/enough"));
        let targets = [PathBuf::from("plain-text"), path("vault/secret")];
        let stop = Arc::new(AtomicBool::new(false));
        let (stop_flag, enough_file) = (Arc::clone(&stop), enough.clone());
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stop_flag.load(Ordering::Relaxed) {
                for target in &targets {
                    std::os::unix::fs::symlink(target, &next).unwrap();
                    std::fs::rename(&next, &link).unwrap();
                    std::thread::yield_now();
                }
                swaps += 1;
                if swaps == MAX_SWAPS && expected == Fate::Refused {
                    std::fs::write(&enough_file, "").unwrap();
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

/// The timeout of attacks that do not end by themselves, in milliseconds.
const SHORT_MS: u64 = 250;

/// The timeout of all other attacks, in milliseconds. They need a fraction of it.
const LONG_MS: u64 = 30_000;

/// The number of swaps. The command reads about as often.
const MAX_SWAPS: usize = 5000;
