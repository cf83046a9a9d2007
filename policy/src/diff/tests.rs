//! Tests of the comparison: each key's direction, its mirror image, and overlays, which never widen.

use portcullis_types::SandboxTier;
use proptest::prelude::*;

use super::*;
use crate::{DEFAULT_POLICY, LoadOptions, PolicySource};

fn load(text: &str, overlay: Option<&str>) -> WorkspaceSecurityPolicy {
    WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: "policy", text },
        overlay: overlay.map(|text| PolicySource { name: "overlay", text }),
        sandbox_tier: SandboxTier::Process,
    })
    .unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The shipped policy with a part replaced.
fn edited(from: &str, to: &str) -> String {
    assert!(DEFAULT_POLICY.contains(from), "{from}");
    DEFAULT_POLICY.replacen(from, to, 1)
}

/// The shipped policy with a key of a section set to a value in TOML.
fn with_key(key: &str, value: &str) -> String {
    let mut policy: toml::Table = DEFAULT_POLICY.parse().expect("TOML");
    let mut value: toml::Table = format!("value = {value}").parse().expect("TOML");
    let (section, key) = key.split_once('.').expect("a section and a key");
    let section = policy[section].as_table_mut().expect("a section");
    section.insert(key.to_owned(), value.remove("value").expect("a value"));
    toml::to_string(&policy).expect("TOML")
}

fn diff(old: &str, new: &str) -> PolicyDiff {
    PolicyDiff::between(&load(old, None), &load(new, None), &[])
}

/// Each change of the shipped policy, with the subject and the direction of one difference that it makes.
const CHANGES: &[(&str, &str, &str, Direction)] = &[
    (
        "[profiles.WorkspaceRead]\nmounts = { shared = \"read\", tmp = \"read\" }",
        "[profiles.WorkspaceRead]\nmounts = { shared = \"read\" }",
        "",
        Direction::Narrower,
    ),
    (
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }",
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\" }",
        "file_read",
        Direction::Narrower,
    ),
    (
        "side_effecting = { profile = \"FileReadWrite\", approval = \"allow\" }",
        "side_effecting = { profile = \"FileReadWrite\", approval = \"ask\" }",
        "file_write",
        Direction::Narrower,
    ),
    ("hosts = [\"https://*\"]", "hosts = [\"https://*.example\"]", "web_fetch_request", Direction::Narrower),
    (
        "methods = [\"GET\", \"HEAD\"]",
        "methods = [\"GET\", \"HEAD\", \"POST\"]",
        "web_fetch_request",
        Direction::Wider,
    ),
    ("sync = \"interval\"", "sync = \"always\"", "audit_sync", Direction::Narrower),
    ("concurrency = 10", "concurrency = 11", "limits.concurrency", Direction::Wider),
    (
        "kinds = [\n    \"Makefile\", \"GNUmakefile\", \"justfile\",",
        "except = [\"justfile\"]\nkinds = [\n    \"Makefile\", \"GNUmakefile\",",
        "kinds",
        Direction::Wider,
    ),
    ("then = [\"network\"]", "then = [\"network\", \"shell\"]", "flow", Direction::Narrower),
    ("[limits]", "[hide]\npaths = [\"*.pem\"]\n[limits]", "hide", Direction::Narrower),
    ("[limits]", "[modules]\ndir = \"modules\"\n[limits]", "modules_dir", Direction::Wider),
    (
        "[tools.file_read] ",
        "[tools.file_write]\nenabled = false\n[tools.file_read] ",
        "file_write",
        Direction::Narrower,
    ),
    (
        "[tools.file_read] ",
        "[tools.file_write]\nunasked = { path = \"src/**\" }\n[tools.file_read] ",
        "file_write",
        Direction::Wider,
    ),
    (
        "[tools.file_read] ",
        "[tools.mine]\nprofile = \"FileReadWrite\"\napproval = \"allow\"\noptional = true\n[tools.file_read] ",
        "mine",
        Direction::Wider,
    ),
    (
        "[limits]",
        "[secrets.a]\nfrom = \"env:A\"\nhosts = [\"https://a.example\"]\nheader = \"X-A\"\ntools = [\"web_fetch\"]\n[limits]",
        "secrets",
        Direction::Wider,
    ),
];

/// The same for changes of one key: the key, its new value, the subject and the direction.
const KEY_CHANGES: &[(&str, &str, &str, Direction)] = &[
    ("shell.posture", "\"strong\"", "shell.posture", Direction::Narrower),
    ("shell.posture", "\"minimal\"", "shell.posture", Direction::Wider),
    ("shell.processes", "300", "shell.processes", Direction::Wider),
    ("shell.environment", "[\"TOKEN\"]", "shell.environment", Direction::Wider),
    ("shell.deny", "[\"sudo\"]", "shell.commands.deny", Direction::Narrower),
    ("shell.allow", "[\"git\"]", "shell.commands.allow", Direction::Narrower),
    ("shell.operators", "[\"&&\"]", "shell.commands.operators", Direction::Narrower),
    ("shell.unasked", "[\"ls\"]", "shell.commands.unasked", Direction::Wider),
    ("shell.read", "[\"/opt/node\"]", "shell.toolchain.read", Direction::Wider),
    ("shell.enabled", "false", "shell", Direction::Narrower),
    ("egress.allow_private", "[\"127.0.0.1:8080\"]", "egress.allow_private", Direction::Wider),
    ("egress.max_redirects", "6", "egress.max_redirects", Direction::Wider),
    ("egress.robots", "\"ignore\"", "egress.robots", Direction::Wider),
    ("mounts.tmp", "\"other\"", "mounts.tmp", Direction::Changed),
];

/// The shipped policies that result from all changes, each with the subject and the direction of a difference.
fn changed_policies() -> impl Iterator<Item = (String, &'static str, Direction)> {
    let edits = CHANGES.iter().map(|(from, to, subject, direction)| (edited(from, to), *subject, *direction));
    let keys = KEY_CHANGES
        .iter()
        .map(|(key, value, subject, direction)| (with_key(key, value), *subject, *direction));
    edits.chain(keys)
}

fn mirrored(direction: Direction) -> Direction {
    match direction {
        Direction::Wider => Direction::Narrower,
        Direction::Changed => Direction::Changed,
        Direction::Narrower => Direction::Wider,
    }
}

#[test]
fn each_change_has_its_direction_and_its_mirror_image() {
    for (policy, subject, direction) in changed_policies() {
        for (old, new, direction) in [
            (DEFAULT_POLICY, policy.as_str(), direction),
            (policy.as_str(), DEFAULT_POLICY, mirrored(direction)),
        ] {
            let diff = diff(old, new);
            let has =
                |change: &EffectChange| change.subject.starts_with(subject) && change.direction == direction;
            let is_seen =
                diff.changes.iter().any(has) || (subject.is_empty() && !diff.without_effect.is_empty());
            assert!(is_seen, "{subject} {direction:?}: {diff:#?}");
            if direction != Direction::Narrower && !subject.is_empty() {
                assert!(diff.is_wider(), "{subject}");
            }
        }
    }
}

#[test]
fn the_same_meaning_has_no_difference() {
    let comments = DEFAULT_POLICY.replace('#', "# another comment:");
    assert_eq!(diff(DEFAULT_POLICY, &comments), PolicyDiff::default());
    let toml = load(DEFAULT_POLICY, None).effective_toml();
    assert_eq!(diff(DEFAULT_POLICY, &toml), PolicyDiff::default());
}

#[test]
fn every_difference_of_two_policies_is_seen() {
    for (new, subject, _) in changed_policies() {
        let (old, new) = (load(DEFAULT_POLICY, None), load(&new, None));
        if old.digest() != new.digest() {
            let diff = PolicyDiff::between(&old, &new, &[]);
            assert!(!diff.changes.is_empty() || !diff.without_effect.is_empty(), "{subject}");
        }
    }
}

/// Lines of an overlay, each in its section.
const OVERLAY_LINES: &[(&str, &str)] = &[
    ("profiles.FileReadOnly", "mounts = { vault = \"none\" }"),
    ("profiles.FileReadWrite", "mounts = { shared = \"read\" }"),
    ("profiles.Web", "hosts = [\"https://*.example\"]"),
    ("tiers", "side_effecting = { approval = \"ask\" }"),
    ("tools.file_write", "enabled = false"),
    ("tools.file_edit", "approval = \"deny\""),
    ("shell", "posture = \"strong\""),
    ("protect", "paths = [\"secret\"]"),
    ("hide", "paths = [\"*.key\"]"),
    ("limits", "concurrency = 2"),
    ("egress", "max_redirects = 1"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_overlay_never_widens(chosen in prop::collection::btree_set(0..OVERLAY_LINES.len(), 0..8)) {
        let lines = chosen.iter().map(|index| OVERLAY_LINES[*index]);
        let overlay: String = lines.map(|(section, line)| format!("[{section}]\n{line}\n")).collect();
        let overlay = format!("version = 1\n{overlay}");
        let diff = PolicyDiff::between(&load(DEFAULT_POLICY, None), &load(DEFAULT_POLICY, Some(&overlay)), &[]);
        prop_assert!(!diff.is_wider(), "{}\n{:#?}", overlay, diff);
        prop_assert_eq!(diff.changes.is_empty(), chosen.is_empty());
    }
}
