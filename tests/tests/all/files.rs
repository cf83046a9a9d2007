//! Files through the core tools: the reach of a path, and the state after a refusal.

mod escapes;
mod links;
mod protected;
mod races;
mod special;

use std::{collections::BTreeMap, fs, os::unix::fs::symlink};

use portcullis_testing::{CallOutcome, World};
use portcullis_tools::ToolRegistry;
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use crate::support::snapshot;

/// A text outside every mount, which no answer may contain.
const OUTSIDE: &str = "a secret outside the mounts";

/// A text in the vault.
const IN_VAULT: &str = "a secret of the vault";

/// A world with secrets and many paths that try to reach them, and its registry.
pub(crate) struct Place {
    pub(crate) world: World,
    pub(crate) registry: ToolRegistry,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::of(World::new()).await
    }

    pub(crate) async fn of(world: World) -> Self {
        world.put("notes.txt", "inside\n");
        world.put("d/inner.txt", "deeper\n");
        fs::write(world.workspace().join("vault/secret.txt"), IN_VAULT).expect("writable");
        fs::create_dir(world.workspace().join("sharedx")).expect("a folder");
        fs::write(world.workspace().join("sharedx/x.txt"), OUTSIDE).expect("writable");
        fs::write(world.root().join("outside.txt"), OUTSIDE).expect("writable");
        for (name, target) in [
            ("passwd", "/etc/passwd"),
            ("up", "../../outside.txt"),
            ("to_vault", "../vault/secret.txt"),
            ("vault_folder", "../vault"),
            ("beside", "../sharedx"),
            ("chain", "chain_2"),
            ("chain_2", "d/chain_3"),
            ("d/chain_3", "/etc/passwd"),
            ("dangling_out", "/etc/portcullis/not-there"),
            ("dangling_up", "../../not-there"),
            ("dangling_in", "not-there"),
            ("loop", "loop"),
            ("proc", "/proc/self/root"),
            ("descriptor", "/proc/self/fd"),
            ("folder", "d"),
            ("same", "notes.txt"),
            ("null", "/dev/null"),
        ] {
            symlink(target, world.shared(name)).expect("a link");
        }
        let own_path = world.shared("notes.txt");
        symlink(own_path, world.shared("absolute_inside")).expect("a link");
        let registry = world.registry().await;
        Self { world, registry }
    }

    /// Everything but the state folder, which each call changes, and the policy file.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, String> {
        let mut all = snapshot(self.world.root());
        all.retain(|path, _| !path.starts_with("state") && path != "policy.toml");
        all
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallOutcome {
        CallOutcome::of(&self.registry, tool, arguments).await
    }

    /// Asserts that a call is refused with this error, leaves no trace but its row, and tells nothing of the
    /// host.
    pub(crate) async fn refused(
        &self,
        tool: &str,
        arguments: Value,
        kind: ToolErrorKind,
        code: &str,
    ) -> String {
        let before = self.snapshot();
        let rows = self.world.rows().len();
        let answer = self.call(tool, arguments.clone()).await;
        let shown = format!("{tool} {}", arguments.to_string().chars().take(200).collect::<String>());
        let Err(error) = &answer.0.outcome else {
            panic!("{shown}: expected {code}, got {:?}", answer.0.outcome)
        };
        assert_eq!((error.kind(), error.code()), (kind, code), "{shown}: {error}");
        assert_eq!(self.snapshot(), before, "{shown} changed something");

        let own = arguments.to_string();
        let said = format!("{} {:?} {}", error, error.hint(), answer.0.details);
        // The answer may repeat the caller's own words.
        for secret in
            [self.world.root().to_str().expect("UTF-8"), OUTSIDE, IN_VAULT, "root:x:", "/proc/self/fd/"]
        {
            assert!(own.contains(secret) || !said.contains(secret), "{shown} told `{secret}`: {said}");
        }
        if kind == ToolErrorKind::Denied {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{shown} has no hint: {error}");
        }
        let rows = &self.world.rows()[rows..];
        let ends: Vec<_> = rows.iter().filter(|row| row.outcome.is_some()).collect();
        assert_eq!(ends.len(), 1, "{shown}: {rows:#?}");
        assert_eq!(ends[0].code.as_deref(), Some(code), "{shown}");
        error.to_string()
    }
}

/// The arguments of a write whose effect would be seen.
pub(crate) fn writing(path: &str, mode: &str) -> Value {
    json!({"path": path, "content": "changed by the tool", "mode": mode})
}
