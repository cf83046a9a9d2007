//! Files through the core tools: which paths they reach, and the state after a refusal.

mod escapes;
mod links;
mod protected;
mod races;
mod special;

use std::{collections::BTreeMap, fs, os::unix::fs::symlink};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::ToolRegistry;
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use crate::support::snapshot;

/// Text outside every mount, which no answer may contain.
const OUTSIDE: &str = "a secret outside the mounts";

/// Text in the vault.
const IN_VAULT: &str = "a secret of the vault";

/// A fixture with secrets and many paths that try to reach them, and its registry.
pub(crate) struct FileSetup {
    pub(crate) fixture: Fixture,
    pub(crate) registry: ToolRegistry,
}

impl FileSetup {
    pub(crate) async fn new() -> Self {
        Self::with_fixture(Fixture::new()).await
    }

    pub(crate) async fn with_fixture(fixture: Fixture) -> Self {
        fixture.put("notes.txt", "inside\n");
        fixture.put("d/inner.txt", "deeper\n");
        fs::write(fixture.workspace().join("vault/secret.txt"), IN_VAULT).expect("writable");
        fs::create_dir(fixture.workspace().join("sharedx")).expect("a folder");
        fs::write(fixture.workspace().join("sharedx/x.txt"), OUTSIDE).expect("writable");
        fs::write(fixture.root().join("outside.txt"), OUTSIDE).expect("writable");
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
            symlink(target, fixture.shared(name)).expect("a link");
        }
        let notes_path = fixture.shared("notes.txt");
        symlink(notes_path, fixture.shared("absolute_inside")).expect("a link");
        let registry = fixture.registry().await;
        Self { fixture, registry }
    }

    /// Snapshots everything except the policy file and the state folder, which each call changes.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, String> {
        let mut entries = snapshot(self.fixture.root());
        entries.retain(|path, _| !path.starts_with("state") && path != "policy.toml");
        entries
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallOutcome {
        CallOutcome::run(&self.registry, tool, arguments).await
    }

    /// Asserts that a call is refused with this error, leaves no trace except its row, and reveals nothing about the
    /// host.
    pub(crate) async fn assert_refused(
        &self,
        tool: &str,
        arguments: Value,
        kind: ToolErrorKind,
        code: &str,
    ) -> String {
        let before = self.snapshot();
        let rows = self.fixture.rows().len();
        let answer = self.call(tool, arguments.clone()).await;
        let excerpt = format!("{tool} {}", arguments.to_string().chars().take(200).collect::<String>());
        let Some(error) = answer.0.outcome.error() else {
            panic!("{excerpt}: expected {code}, got {:?}", answer.0.outcome)
        };
        assert_eq!((error.kind(), error.code()), (kind, code), "{excerpt}: {error}");
        assert_eq!(self.snapshot(), before, "{excerpt} changed something");

        let own_text = arguments.to_string();
        let reported_text = format!("{} {:?} {}", error, error.hint(), answer.0.details);
        // The answer may repeat the caller's own text.
        for secret in
            [self.fixture.root().to_str().expect("UTF-8"), OUTSIDE, IN_VAULT, "root:x:", "/proc/self/fd/"]
        {
            assert!(
                own_text.contains(secret) || !reported_text.contains(secret),
                "{excerpt} told `{secret}`: {reported_text}"
            );
        }
        if kind == ToolErrorKind::Denied {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{excerpt} has no hint: {error}");
        }
        let rows = &self.fixture.rows()[rows..];
        let end_rows: Vec<_> = rows.iter().filter(|row| row.outcome.is_some()).collect();
        assert_eq!(end_rows.len(), 1, "{excerpt}: {rows:#?}");
        assert_eq!(end_rows[0].code.as_deref(), Some(code), "{excerpt}");
        error.to_string()
    }
}

/// Returns the arguments of a write that would have a visible effect.
pub(crate) fn writing(path: &str, mode: &str) -> Value {
    json!({"path": path, "content": "changed by the tool", "mode": mode})
}
