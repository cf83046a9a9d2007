//! Many concurrent clients that cancel, time out and disconnect. Each command has at most one effect and exactly one
//! row with one end, and nothing is left after the clients have disconnected. `PORTCULLIS_SOAK=full` runs the
//! long form: at least 800 sessions and 8,000 commands of 50 clients.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use portcullis_testing::{Fixture, approving_caller};
use portcullis_tools::{
    PolicyFiles, ToolRegistry,
    audit::{self, RowEvent},
    new_call,
    shell::{SHELL_EXEC, ShellSource},
};
use portcullis_types::SandboxTier;
use serde_json::json;

use super::backends::{RunningSidecar, SidecarResources, wait_until};

/// A random generator that gives the same numbers in every run (Knuth's MMIX constants).
struct SeededRandom(u64);

impl SeededRandom {
    /// Returns a random number of `0..sides`.
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("fits") % sides
    }
}

/// The permitted growth of the sidecar in each round. A leak of 3 KiB per command exceeds it.
const GROWTH_KIB: i64 = 256;

/// The sidecar's size is read after each round. The size of a window is the smallest size of these rounds.
const ROUNDS_OF_A_WINDOW: usize = 4;

/// With a leak, each window is larger than the previous window. Memory that the sidecar allocates once, or
/// because more clients happen to be concurrent, is no leak: then at least one of so many windows is not
/// larger.
const WINDOWS: usize = 6;

/// The number of clients, of each client's connections in a round, and of commands per connection.
struct Scale {
    clients: usize,
    connections: usize,
    commands: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_and_go_leave_one_effect_and_one_row() {
    let is_full = std::env::var_os("PORTCULLIS_SOAK").is_some_and(|form| form == "full");
    let scale = if is_full {
        Scale { clients: 50, connections: 1, commands: 10 }
    } else {
        Scale { clients: 16, connections: 1, commands: 6 }
    };
    let fixture = Arc::new(Fixture::new());
    let sidecar = Arc::new(RunningSidecar::start(&fixture));
    let mounts = mounts();
    let mut issued_commands = Vec::new();
    let mut windows: Vec<Vec<SidecarResources>> = Vec::new();
    let budget = GROWTH_KIB * i64::try_from(ROUNDS_OF_A_WINDOW).expect("few");
    let stopped_growing = loop {
        let mut window: Vec<SidecarResources> = Vec::new();
        for number in 0..ROUNDS_OF_A_WINDOW {
            let name = format!("w{}r{number}", windows.len());
            issued_commands.extend(round(&fixture, &sidecar, &scale, &name).await);
            // The descriptors of a session are closed after it ends.
            if let Some(first) = windows.first().map_or(window.first(), |window| window.first()) {
                wait_until(|| sidecar.resources().descriptors <= first.descriptors).await;
            }
            window.push(sidecar.resources());
        }
        windows.push(window);
        // The first two windows are the warm-up.
        let sizes: Vec<i64> = windows.iter().skip(2).map(|window| smallest_size(window)).collect();
        if sizes.windows(2).any(|pair| pair[1] - pair[0] <= budget) {
            break true;
        }
        if windows.len() == WINDOWS {
            break false;
        }
    };
    assert!(
        windows.iter().flatten().all(|resources| resources.children == 0),
        "sessions are left: {windows:?}"
    );
    assert!(stopped_growing, "the sidecar grows: {windows:?}");
    reconcile(&fixture, &issued_commands);
    assert_eq!(self::mounts(), mounts, "mounts are left");
    let leftover: Vec<PathBuf> = fs::read_dir(fixture.workspace().join("tmp"))
        .expect("readable")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert_eq!(leftover, Vec::<PathBuf>::new());
}

fn smallest_size(rounds: &[SidecarResources]) -> i64 {
    rounds.iter().map(|resources| resources.resident_kib.cast_signed()).min().expect("a round")
}

/// Runs one round: all clients, each with all its connections, until no session is left.
async fn round(
    fixture: &Arc<Fixture>,
    sidecar: &Arc<RunningSidecar>,
    scale: &Scale,
    round: &str,
) -> Vec<IssuedCommand> {
    let (connections, commands) = (scale.connections, scale.commands);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..scale.clients {
        let (fixture, sidecar) = (Arc::clone(fixture), Arc::clone(sidecar));
        let name = format!("{round}-c{client}");
        clients.spawn(async move {
            let mut random = SeededRandom(client as u64 + 1);
            let mut issued_commands = Vec::new();
            for number in 0..connections {
                let name = format!("{name}l{number}");
                issued_commands.extend(run_client(&fixture, &sidecar, &name, &mut random, commands).await);
            }
            issued_commands
        });
    }
    let issued_commands: Vec<IssuedCommand> = clients.join_all().await.into_iter().flatten().collect();
    assert_eq!(issued_commands.len(), scale.clients * connections * commands);
    sidecar.wait_until_idle().await;
    issued_commands
}

/// A command, and the answer that its client got.
struct IssuedCommand {
    id: String,
    call_id: String,
    state: PathBuf,
    /// Whether the client's result shows that the command ended by itself.
    ended: bool,
}

/// Runs one client from its first command to its disconnect.
async fn run_client(
    fixture: &Fixture,
    sidecar: &RunningSidecar,
    name: &str,
    random: &mut SeededRandom,
    commands: usize,
) -> Vec<IssuedCommand> {
    let state = fixture.root().join("states").join(name);
    let registry = registry(fixture, sidecar, &state);
    let mut issued_commands = Vec::new();
    for number in 0..commands {
        let id = format!("{name}n{number}");
        let body = BODIES[random.roll(BODIES.len())];
        let command = format!("echo {id} >> $PORTCULLIS_SHARED/effects; {body}");
        let call = new_call(SHELL_EXEC, json!({ "command": command }).to_string());
        let call_id = call.id.clone();
        let caller = approving_caller();
        let patience = Duration::from_millis(random.roll(40) as u64);
        let call_future = registry.execute_with_policy(call, &caller);
        let ended = match random.roll(10) {
            0 | 1 => {
                let cancel = async {
                    let nothing = std::future::pending::<()>();
                    let _ = tokio::time::timeout(patience, nothing).await;
                    caller.cancel.cancel();
                };
                tokio::join!(call_future, cancel).0.outcome.is_output()
            }
            // Drops the call without cancelling it.
            2 => tokio::time::timeout(patience, call_future)
                .await
                .is_ok_and(|result| result.outcome.is_output()),
            _ => call_future.await.outcome.is_output(),
        };
        issued_commands.push(IssuedCommand { id, call_id, state: state.clone(), ended });
    }
    issued_commands
}

/// The rest of a command, after its effect.
const BODIES: [&str; 8] = [
    "true",
    "exit 3",
    "sleep 0.02",
    "kill -9 $$",
    "(setsid sleep 30 >/dev/null 2>&1 &)",
    "head -c 100000 /dev/zero",
    "v=$RANDOM; cd /; false",
    "sleep 0.01 | cat",
];

/// Creates a client's registry: `shell_exec` and the native tools, with a separate log.
fn registry(fixture: &Fixture, sidecar: &RunningSidecar, state: &Path) -> ToolRegistry {
    fs::create_dir_all(state).expect("a folder");
    let policy = PolicyFiles::read(&fixture.root().join("policy.toml")).expect("readable");
    let shell = ShellSource::Socket { path: sidecar.socket(), token_file: sidecar.token() };
    ToolRegistry::builder()
        .policy(policy.load(SandboxTier::Process).expect("loads"))
        .state(state)
        .shell(shell)
        .workspace(fixture.workspace(), Vec::new())
        .build()
        .expect("builds")
}

/// Compares effects, answers and rows by the command's id.
fn reconcile(fixture: &Fixture, issued_commands: &[IssuedCommand]) {
    let effects = fs::read_to_string(fixture.shared("effects")).expect("effects");
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for line in effects.lines() {
        *counted.entry(line).or_default() += 1;
    }
    let mut rows: BTreeMap<(PathBuf, String), Vec<RowEvent>> = BTreeMap::new();
    let states: std::collections::BTreeSet<&PathBuf> =
        issued_commands.iter().map(|command| &command.state).collect();
    for state in states {
        for row in audit::rows(&audit::log_path(state)) {
            let row = row.expect("a readable row");
            rows.entry((state.clone(), row.call_id.to_string())).or_default().push(row.event);
        }
    }
    for IssuedCommand { id, call_id, state, ended } in issued_commands {
        let effects = counted.get(id.as_str()).copied().unwrap_or_default();
        assert!(effects <= 1, "{id} had {effects} effects");
        if *ended {
            assert_eq!(effects, 1, "{id} was said to have run");
        }
        let events = rows.get(&(state.clone(), call_id.clone())).map(Vec::as_slice).unwrap_or_default();
        let ends = events.iter().filter(|event| **event == RowEvent::End).count();
        let begins = events.iter().filter(|event| **event == RowEvent::Begin).count();
        assert_eq!(ends, 1, "{id} has {events:?}");
        assert!(begins == 1 || (begins == 0 && effects == 0), "{id} has {events:?} and {effects} effects");
    }
    assert!(issued_commands.iter().any(|command| command.ended), "nothing ran at all");
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").expect("readable").lines().count()
}
