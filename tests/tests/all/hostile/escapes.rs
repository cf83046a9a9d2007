//! Escapes from a mount, tried by guests that declare no path to the policy.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use portcullis_testing::Fixture;
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Trial, entry, snapshot::Snapshot};

/// A trial with secrets: `vault/secret` and a folder outside the workspace. `shared` has links to both, and
/// other escapes.
struct Scene {
    trial: Trial,
    outside: TempDir,
}

impl Scene {
    async fn new(guest: &'static str, profile: &str) -> Self {
        let fixture = Fixture::new()
            .with_policy_edit("calls_per_minute = 600", "calls_per_minute = 100000")
            .with_policy(&entry(guest, profile, "15s"));
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("secret"), "OUTSIDE").expect("written");
        fs::create_dir(outside.path().join("empty")).expect("the folder can be made");
        fs::write(fixture.workspace().join("vault/secret"), "OUTSIDE").expect("written");
        fs::write(fixture.workspace().join("tmp/other"), "inside").expect("written");
        fixture.put("file", "inside");
        fixture.put("folder/file", "inside");
        let link = |target: PathBuf, name: &str| symlink(target, fixture.shared(name)).expect("linked");
        link("/etc/passwd".into(), "passwd");
        link(outside.path().to_owned(), "out");
        link(outside.path().join("secret"), "out_secret");
        link("../vault".into(), "vault");
        link("../tmp".into(), "tmp");
        link("passwd".into(), "chain1");
        link("chain1".into(), "chain2");
        link("folder/../../vault/secret".into(), "climbing");
        link(outside.path().join("not_there"), "dangling_out");
        link("/proc/self/root".into(), "root");
        link("/proc/self/fd".into(), "descriptors");
        link("/proc/self/cwd".into(), "cwd");
        let trial = Trial::in_fixture(fixture, guest).await;
        Self { trial, outside }
    }

    fn snapshots(&self) -> [Snapshot; 2] {
        [Snapshot::take(&self.trial.fixture.workspace()), Snapshot::take(self.outside.path())]
    }

    /// Asserts that the attempt is denied and changes nothing.
    async fn check(&self, arguments: &Value) {
        let before = self.snapshots();
        let answer = self.trial.call(arguments.clone()).await;
        let Some(error) = answer.0.outcome.error() else { panic!("{arguments}: {}", answer.text()) };
        assert_eq!(
            (error.kind(), error.code()),
            (ToolErrorKind::Denied, "path_escapes_mount"),
            "{arguments}"
        );
        let outside = self.outside.path().display().to_string();
        let workspace = self.trial.fixture.workspace().display().to_string();
        let names_the_host = error.to_string().contains(&workspace);
        assert!(!names_the_host, "{error}");
        assert!(arguments.to_string().contains(&outside) || !error.to_string().contains(&outside), "{error}");
        for (before, now) in before.iter().zip(&self.snapshots()) {
            before.assert_unchanged(now, &arguments.to_string());
        }
        let row = self.trial.row();
        assert_eq!(row.decision.map(|decision| decision.as_str()), Some("deny"), "{row:#?}");
    }

    /// Asserts that the attempt fails with any error, without the secret and without an effect.
    async fn check_fails(&self, arguments: &Value) {
        let before = self.snapshots();
        let answer = self.trial.call(arguments.clone()).await;
        if let Some(output) = answer.0.outcome.output() {
            let text = output.joined_text();
            assert!(text.starts_with("err"), "{arguments}: {text}");
        }
        for (before, now) in before.iter().zip(&self.snapshots()) {
            before.assert_unchanged(now, &arguments.to_string());
        }
    }
}

/// Returns escaping paths, relative to a descriptor of `shared`.
fn escape_paths(scene: &Scene) -> Vec<String> {
    let outside = scene.outside.path().display().to_string();
    let mut paths: Vec<String> = [
        "../vault/secret",
        "../../workspace/vault/secret",
        "folder/../../vault/secret",
        "./.././vault/./secret",
        "..//vault//secret",
        "folder/../folder/../../vault/secret",
        "/etc/passwd",
        "//etc/passwd",
        "/shared/../vault/secret",
        "/proc/self/root/etc/passwd",
        "/proc/self/fd/3",
        "/proc/self/fd/3/secret",
        "/proc/self/environ",
        "passwd",
        "chain2",
        "out/secret",
        "out_secret",
        "vault/secret",
        "tmp/other",
        "climbing",
        "root/etc/passwd",
        "descriptors/3",
        "cwd/Cargo.toml",
    ]
    .map(str::to_owned)
    .into();
    paths.push(format!("{outside}/secret"));
    paths.push(format!("{}etc/passwd", "../".repeat(40)));
    paths
}

#[tokio::test]
async fn no_path_leads_out_to_a_file() {
    let scene = Scene::new("raw_path", "FileReadWrite").await;
    for path in escape_paths(&scene) {
        for op in ["read", "open", "write", "truncate", "stat", "touch", "touch_open"] {
            scene.check(&json!({"op": op, "path": path})).await;
        }
    }
}

#[tokio::test]
async fn no_path_leads_out_for_reading_only_either() {
    let scene = Scene::new("raw_path", "WorkspaceRead").await;
    for path in escape_paths(&scene) {
        for op in ["read", "open", "write", "truncate", "stat"] {
            scene.check(&json!({"op": op, "path": path})).await;
        }
    }
}

#[tokio::test]
async fn the_names_of_a_standard_library_lead_out_no_more() {
    let scene = Scene::new("probe_path", "FileReadWrite").await;
    for path in ["/shared/../vault/secret", "/shared/out/secret", "/shared/passwd", "/tmp/../vault/secret"] {
        for op in ["read", "write", "append", "truncate", "stat", "list", "touch"] {
            scene.check(&json!({"op": op, "path": path})).await;
        }
    }
    // These attempts never reach the host: the guest's libc finds no preopen for them.
    for path in ["/etc/passwd", "/vault/secret", "/proc/self/environ", "/sharedx/file", "/"] {
        for op in ["read", "write", "stat", "list"] {
            scene.check_fails(&json!({"op": op, "path": path})).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_made_removed_or_moved_outside() {
    let scene = Scene::new("raw_path", "FileReadWrite").await;
    for path in ["../new", "../vault/new", "/new", "//tmp/new", "out/new", "vault/new", "folder/../../new"] {
        scene.check(&json!({"op": "create", "path": path})).await;
        scene.check(&json!({"op": "mkdir", "path": path})).await;
        scene.check(&json!({"op": "rename", "path": "file", "to": path})).await;
        scene.check(&json!({"op": "rename", "path": "folder", "to": path})).await;
        scene.check(&json!({"op": "link", "path": "file", "to": path})).await;
        scene.check(&json!({"op": "symlink", "path": "file", "to": path})).await;
    }
    for path in ["../vault/secret", "out/secret", "vault/secret"] {
        scene.check(&json!({"op": "remove", "path": path})).await;
        scene.check(&json!({"op": "rename", "path": path, "to": "stolen"})).await;
        scene.check(&json!({"op": "link", "path": path, "to": "stolen"})).await;
        scene.check(&json!({"op": "readlink", "path": path})).await;
        scene.check(&json!({"op": "lstat", "path": path})).await;
    }
    for path in ["../vault", "out/empty", "..", "../.."] {
        scene.check(&json!({"op": "rmdir", "path": path})).await;
        scene.check(&json!({"op": "rename", "path": path, "to": "stolen"})).await;
    }
    scene.check(&json!({"op": "touch", "path": "out/secret"})).await;
    // Nothing is created through a dangling link.
    scene.check(&json!({"op": "write", "path": "dangling_out"})).await;
    scene.check(&json!({"op": "create", "path": "dangling_out/new"})).await;
    scene.check_fails(&json!({"op": "create", "path": "dangling_out"})).await;
    // A guest cannot remove the root of a mount.
    for path in [".", "", "./", "folder/.."] {
        scene.check_fails(&json!({"op": "rmdir", "path": path})).await;
        scene.check_fails(&json!({"op": "rename", "path": path, "to": "moved"})).await;
    }
}

#[tokio::test]
async fn a_new_link_leads_nowhere_outside() {
    let scene = Scene::new("raw_path", "FileReadWrite").await;
    let outside = scene.outside.path().display().to_string();
    for target in ["/etc/passwd", "/", "//x", "..", "../vault", "folder/../../vault", "./../x", &outside] {
        scene.check(&json!({"op": "symlink", "path": target, "to": "new"})).await;
    }
    scene.check(&json!({"op": "symlink", "path": "../../x", "to": "folder/new"})).await;
    let within = scene.trial.call(json!({"op": "symlink", "path": "../file", "to": "folder/new"})).await;
    assert_eq!(within.text(), "ok ");
    let through = scene.trial.call(json!({"op": "read", "path": "folder/new"})).await;
    assert_eq!(through.text(), "ok inside");
}

#[tokio::test]
async fn a_descriptor_of_one_mount_does_not_reach_the_other() {
    let scene = Scene::new("raw_path", "FileReadWrite").await;
    for path in ["../shared/file", "../vault/secret", "/shared/file"] {
        scene.check(&json!({"op": "read", "fd": 4, "path": path})).await;
    }
    for fd in [0, 1, 2, 5, 6, 10, 64, u32::MAX] {
        scene.check_fails(&json!({"op": "read", "fd": fd, "path": "file"})).await;
        scene.check_fails(&json!({"op": "create", "fd": fd, "path": "new"})).await;
    }
}

#[tokio::test]
async fn a_read_only_mount_stays_as_it_is() {
    let scene = Scene::new("raw_path", "WorkspaceRead").await;
    for op in ["write", "truncate", "touch", "touch_open", "remove"] {
        scene.check_fails(&json!({"op": op, "path": "file"})).await;
    }
    for (op, path, to) in [
        ("create", "new", ""),
        ("mkdir", "new", ""),
        ("rmdir", "folder", ""),
        ("rename", "file", "new"),
        ("link", "file", "new"),
        ("symlink", "file", "new"),
    ] {
        scene.check_fails(&json!({"op": op, "path": path, "to": to})).await;
        scene.check_fails(&json!({"op": op, "path": path, "to": to, "to_fd": 4})).await;
    }
}

#[tokio::test]
async fn odd_paths_are_refused_without_harm() {
    let scene = Scene::new("raw_path", "FileReadWrite").await;
    let deep = "a/".repeat(2500);
    let long = "a".repeat(5000);
    for path in
        ["fi\0le", "", &long, &deep, "file/", "file/.", "folder/file/x", "nowhere/x", "\u{202e}", "a\nb"]
    {
        for op in ["read", "write", "stat", "remove"] {
            scene.check_fails(&json!({"op": op, "path": path})).await;
        }
    }
}
