//! Many concurrent clients that cancel, time out and disconnect: each command has at most one effect and
//! exactly one row with one end, and nothing is left when they are gone. `PORTCULLIS_SOAK=full` runs the long
//! form: 800 sessions and 8,000 commands of 50 clients.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use portcullis_testing::{World, approving};
use portcullis_tools::{
    PolicyFiles, ToolRegistry,
    audit::{self, Event},
    new_call,
    shell::{SHELL_EXEC, ShellSource},
};
use portcullis_types::SandboxTier;
use serde_json::json;

use super::backends::{Held, Running, until};

/// A generator with the same throws in every run (Knuth's MMIX constants).
struct Dice(u64);

impl Dice {
    /// One of `0..sides`.
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("fits") % sides
    }
}

/// A leak of 3 KiB a command makes the sidecar larger by more than this in each round.
const GROWTH_KIB: i64 = 256;

/// After each round the sidecar's size is read; the growth from round to round shows a leak.
const ROUNDS: usize = 8;

/// The number of clients, of each client's connections in a round, and of commands per connection.
struct Scale {
    clients: usize,
    lives: usize,
    commands: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_and_go_leave_one_effect_and_one_row() {
    let is_full = std::env::var_os("PORTCULLIS_SOAK").is_some_and(|form| form == "full");
    let scale = if is_full {
        Scale { clients: 50, lives: 2, commands: 10 }
    } else {
        Scale { clients: 16, lives: 1, commands: 6 }
    };
    let world = Arc::new(World::new());
    let sidecar = Arc::new(Running::start(&world));
    let mounts = mounts();
    let mut given = round(&world, &sidecar, &scale, "r0").await;
    let mut held = vec![sidecar.held()];
    for number in 1..ROUNDS {
        given.extend(round(&world, &sidecar, &scale, &format!("r{number}")).await);
        // The descriptors of a session are closed after it ends.
        until(|| sidecar.held().descriptors <= held[0].descriptors).await;
        held.push(sidecar.held());
    }
    assert!(held.iter().all(|held| held.children == 0), "sessions are left: {held:?}");
    // A round in which more clients meet than before takes some MiB more, for a while. A leak adds up in every round, and
    // so lifts the smallest size too. The first round is left out: memory that it takes for good is no leak.
    let smallest = |rounds: &[Held]| rounds.iter().map(|held| held.resident_kib).min().expect("a round");
    let growth = smallest(&held[ROUNDS - 3..]).cast_signed() - smallest(&held[1..4]).cast_signed();
    let rounds_between = i64::try_from(ROUNDS - 4).expect("few");
    assert!(growth <= GROWTH_KIB * rounds_between, "the sidecar grows: {held:?}");
    reconcile(&world, &given);
    assert_eq!(self::mounts(), mounts, "mounts are left");
    let leftover: Vec<PathBuf> =
        fs::read_dir(world.workspace().join("tmp")).expect("readable").flatten().map(|e| e.path()).collect();
    assert_eq!(leftover, Vec::<PathBuf>::new());
}

/// One round: all clients, each with all connections of a round, until no session is left.
async fn round(world: &Arc<World>, sidecar: &Arc<Running>, scale: &Scale, round: &str) -> Vec<Given> {
    let (lives, commands) = (scale.lives, scale.commands);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..scale.clients {
        let (world, sidecar) = (Arc::clone(world), Arc::clone(sidecar));
        let name = format!("{round}-c{client}");
        clients.spawn(async move {
            let mut dice = Dice(client as u64 + 1);
            let mut given = Vec::new();
            for number in 0..lives {
                let name = format!("{name}l{number}");
                given.extend(life(&world, &sidecar, &name, &mut dice, commands).await);
            }
            given
        });
    }
    let given: Vec<Given> = clients.join_all().await.into_iter().flatten().collect();
    assert_eq!(given.len(), scale.clients * lives * commands);
    sidecar.settled().await;
    given
}

/// A command, and the answer that its client got.
struct Given {
    id: String,
    call_id: String,
    state: PathBuf,
    /// Whether the client's result says that the command ended by itself.
    ended: bool,
}

/// One client from its first command to its disconnect.
async fn life(world: &World, sidecar: &Running, name: &str, dice: &mut Dice, commands: usize) -> Vec<Given> {
    let state = world.root().join("states").join(name);
    let registry = registry(world, sidecar, &state);
    let mut given = Vec::new();
    for number in 0..commands {
        let id = format!("{name}n{number}");
        let body = BODIES[dice.throw(BODIES.len())];
        let command = format!("echo {id} >> $PORTCULLIS_SHARED/effects; {body}");
        let call = new_call(SHELL_EXEC, json!({ "command": command }).to_string());
        let call_id = call.id.clone();
        let caller = approving();
        let patience = Duration::from_millis(dice.throw(40) as u64);
        let ran = registry.execute_with_policy(call, &caller);
        let ended = match dice.throw(10) {
            0 | 1 => {
                let cancel = async {
                    let nothing = std::future::pending::<()>();
                    let _ = tokio::time::timeout(patience, nothing).await;
                    caller.cancel.cancel();
                };
                tokio::join!(ran, cancel).0.outcome.is_ok()
            }
            // Drops the call without cancelling it.
            2 => tokio::time::timeout(patience, ran).await.is_ok_and(|result| result.outcome.is_ok()),
            _ => ran.await.outcome.is_ok(),
        };
        given.push(Given { id, call_id, state: state.clone(), ended });
    }
    given
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

/// A client's registry: `shell_exec` and the native tools, with a separate log.
fn registry(world: &World, sidecar: &Running, state: &Path) -> ToolRegistry {
    fs::create_dir_all(state).expect("a folder");
    let policy = PolicyFiles::read(&world.root().join("policy.toml")).expect("readable");
    let place = ShellSource::Socket { path: sidecar.socket(), token_file: sidecar.token() };
    ToolRegistry::builder()
        .policy(policy.load(SandboxTier::Process).expect("loads"))
        .state(state)
        .shell(place)
        .workspace(world.workspace(), Vec::new())
        .build()
        .expect("builds")
}

/// Compares effects, answers and rows by the command's id.
fn reconcile(world: &World, given: &[Given]) {
    let effects = fs::read_to_string(world.shared("effects")).expect("effects");
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for line in effects.lines() {
        *counted.entry(line).or_default() += 1;
    }
    let mut rows: BTreeMap<(PathBuf, String), Vec<Event>> = BTreeMap::new();
    let states: std::collections::BTreeSet<&PathBuf> = given.iter().map(|given| &given.state).collect();
    for state in states {
        for row in audit::rows(&audit::log_path(state)) {
            let row = row.expect("a readable row");
            rows.entry((state.clone(), row.call_id.to_string())).or_default().push(row.event);
        }
    }
    for Given { id, call_id, state, ended } in given {
        let effects = counted.get(id.as_str()).copied().unwrap_or_default();
        assert!(effects <= 1, "{id} had {effects} effects");
        if *ended {
            assert_eq!(effects, 1, "{id} was said to have run");
        }
        let events = rows.get(&(state.clone(), call_id.clone())).map(Vec::as_slice).unwrap_or_default();
        let ends = events.iter().filter(|event| **event == Event::End).count();
        let begins = events.iter().filter(|event| **event == Event::Begin).count();
        assert_eq!(ends, 1, "{id} has {events:?}");
        assert!(begins == 1 || (begins == 0 && effects == 0), "{id} has {events:?} and {effects} effects");
    }
    assert!(given.iter().any(|given| given.ended), "nothing ran at all");
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").expect("readable").lines().count()
}
