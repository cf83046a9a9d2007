//! Loading: accepted texts, and the report of faults.

use std::time::Duration;

use portcullis_policy::{AuditSync, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_POLICY, ProfileName, RequiredLayer};
use portcullis_types::{Access, SafetyTier};

use crate::support::{BASE, load, tool, try_load};

/// The number of names in a list of the shipped `[protect]`.
fn shipped_count(key: &str) -> usize {
    let policy: toml::Table = DEFAULT_POLICY.parse().expect("TOML");
    policy["protect"][key].as_array().expect("a list").len()
}

#[track_caller]
fn check_faults(operator: &str, faults: &[&str]) {
    let error = try_load(operator, None).expect_err("is refused");
    assert_eq!(error.to_string().lines().collect::<Vec<_>>(), faults);
    assert_eq!(error.faults.len(), faults.len());
}

/// Checks for faults of `[tools.x]` in line 3.
#[track_caller]
fn check_tool(line: &str, fault: &str) {
    check_faults(&format!("version = 1\n[tools.x]\n{line}\n"), &[&format!("portcullis.toml:3:{fault}")]);
}

#[test]
fn the_shipped_policy_says_what_the_design_says() {
    let policy = load(DEFAULT_POLICY);
    let mounts: Vec<_> =
        policy.mounts().iter().map(|mount| (mount.name.as_str(), mount.folder.as_str())).collect();
    assert_eq!(mounts, [("shared", "shared"), ("tmp", "tmp"), ("vault", "vault")]);
    assert!(policy.requires(RequiredLayer::Landlock) && policy.requires(RequiredLayer::Seccomp));
    assert_eq!(policy.limits().concurrency, 10);
    assert_eq!(policy.limits().calls_per_minute, 600);
    assert_eq!(policy.limits().max_output_bytes.0, DEFAULT_MAX_OUTPUT_BYTES);
    assert_eq!(policy.limits().wasm_memory.0, 64 << 20);
    assert_eq!(policy.limits().max_timeout, Duration::from_secs(600));
    assert_eq!(policy.audit().sync, AuditSync::Interval);
    assert_eq!(policy.protected().patterns().count(), shipped_count("paths"));
    assert_eq!(policy.protected_kinds().patterns().count(), shipped_count("kinds"));
    for (name, tier, profile) in [
        ("file_read", SafetyTier::ReadOnly, "FileReadOnly"),
        ("file_list", SafetyTier::ReadOnly, "FileReadOnly"),
        ("file_search", SafetyTier::ReadOnly, "FileReadOnly"),
        ("file_write", SafetyTier::SideEffecting, "FileReadWrite"),
        ("vault_copyto", SafetyTier::SideEffecting, "Nothing"),
        ("vault_copyto_read", SafetyTier::ReadOnly, "VaultRead"),
        ("vault_copyto_write", SafetyTier::SideEffecting, "VaultWrite"),
        ("other", SafetyTier::ReadOnly, "WorkspaceRead"),
        ("other", SafetyTier::Privileged, "Nothing"),
    ] {
        let assignment = policy.assign(&tool(name, tier)).expect("enabled");
        assert_eq!(assignment.profile.as_str(), profile, "{name}");
    }
}

#[test]
fn shipped_profiles_and_tiers_keep_the_vault_apart() {
    let policy = load(DEFAULT_POLICY);
    for (name, mounts) in policy.profiles() {
        let vault = mounts.iter().find(|mount| mount.name.is_vault());
        let writable = mounts.iter().any(|mount| mount.access == Access::Write);
        assert!(vault.is_none() || !writable, "{name}");
    }
    for tier in SafetyTier::ALL {
        let assignment = policy.assign(&tool("unnamed", tier)).expect("enabled");
        assert!(!policy.mounts_of(&assignment.profile).iter().any(|mount| mount.name.is_vault()), "{tier}");
    }
}

#[test]
fn omitted_section_grants_nothing() {
    let policy = load("version = 1");
    assert!(policy.mounts().is_empty());
    assert!(policy.requires(RequiredLayer::Landlock) && policy.requires(RequiredLayer::Seccomp));
    assert_eq!(policy.protected(), load(DEFAULT_POLICY).protected());
    assert_eq!(policy.profiles().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [ProfileName::NOTHING]);
    for tier in SafetyTier::ALL {
        let assignment = policy.assign(&tool("t", tier)).expect("enabled");
        assert_eq!((assignment.profile.as_str(), assignment.approval.as_str()), ("Nothing", "ask"));
    }
    let waived = load("version = 1\nrequire = []\nprotect.paths = []\nprotect.except = ['.bashrc']");
    assert_eq!(waived.required_layers().count(), 0);
    assert_eq!(waived.protected().patterns().count(), shipped_count("paths") - 1);
}

#[test]
fn invalid_toml_is_reported_with_its_location() {
    check_faults("version = 1\n[mounts\n", &["portcullis.toml:2:8: unclosed table, expected `]`"]);
    check_faults(
        "version = 1\nversion = 1\n",
        &["portcullis.toml:2:1: the key `version` is written a second time; keep one of the two"],
    );
    check_faults(
        "version = 1\n[tools.x]\n[tools.x]\n",
        &[
            "portcullis.toml:3:8: the section `[tools.x]` is written a second time; move its keys to the one of line 2",
        ],
    );
}

#[test]
fn a_version_that_this_build_does_not_read_is_refused() {
    check_faults("", &["portcullis.toml:1:1: version: missing key; write `version = 1`"]);
    check_faults("version = 2", &["portcullis.toml:1:11: version: version 2; this build reads version 1"]);
    check_faults("version = '1'", &["portcullis.toml:1:11: version: expected a whole number, found string"]);
}

#[test]
fn unknown_keys_are_refused_at_every_level() {
    check_faults(
        "version = 1\nzones = {}\n[moutns]\n",
        &[
            "portcullis.toml:2:1: zones: unknown key; known are `version`, `require`, `home`, `project`, `mounts`, `profiles`, \
             `tiers`, `tools`, `protect`, `hide`, `sandbox`, `audit`, `modules`, `shell`, `egress`, `secrets`, `search`, `notify`, `limits`, `flow`",
            "portcullis.toml:3:2: moutns: unknown key; did you mean `mounts`?",
        ],
    );
    check_tool("profle = 'P'", "1: tools.x.profle: unknown key; did you mean `profile`?");
    for (text, key) in [
        ("[profiles.P]\nx = 1", "profiles.P.x"),
        ("[tiers.read_only]\nprofile = 'Nothing'\napproval = 'ask'\nx = 1", "tiers.read_only.x"),
        ("[protect]\npaths = []\nx = 1", "protect.x"),
        ("[sandbox.process]\nx = 1", "sandbox.process.x"),
        ("[sandbox.process.tools.t]\nx = 1", "sandbox.process.tools.t.x"),
        ("[audit]\nx = 1", "audit.x"),
        ("[limits]\nx = 1", "limits.x"),
    ] {
        let error = try_load(&format!("version = 1\n{text}"), None).expect_err("is refused");
        assert_eq!(error.faults.len(), 1, "{error}");
        assert_eq!(error.faults[0].key, key);
        assert!(error.faults[0].message.starts_with("unknown key; "), "{error}");
    }
}

#[test]
fn names_that_refer_to_nothing_are_refused() {
    check_faults(
        "version = 1\nrequire = ['landlok', 3]\n[mounts]\nshared = 's'\n[profiles.P]\n\
         mounts = { share = 'read', shared = 'red' }\n[tiers]\nlow = { profile = 'P', approval = 'ask' }\n\
         read_only = { profile = 'Q', approval = 'ask' }\n[sandbox.vm]\n",
        &[
            "portcullis.toml:2:12: require[0]: unknown layer `landlok`; did you mean `landlock`?",
            "portcullis.toml:2:23: require[1]: expected a string, found integer",
            "portcullis.toml:6:12: profiles.P.mounts.share: unknown mount; did you mean `shared`?",
            "portcullis.toml:6:37: profiles.P.mounts.shared: unknown access `red`; did you mean `read`?",
            "portcullis.toml:8:1: tiers.low: unknown tier `low`; known are `read_only`, `side_effecting`, \
             `privileged`",
            "portcullis.toml:9:25: tiers.read_only.profile: unknown profile; known are `Nothing`, `P`",
            "portcullis.toml:10:10: sandbox.vm: unknown sandbox tier `vm`; known are `process`, `container`, \
             `micro_vm`",
        ],
    );
    check_tool("profile = 'P'", "11: tools.x.profile: unknown profile; known are `Nothing`");
    check_tool("approval = 'alow'", "12: tools.x.approval: unknown approval `alow`; did you mean `allow`?");
}

#[test]
fn values_have_units_types_and_bounds() {
    check_tool(
        "timeout = 20",
        "11: tools.x.timeout: a duration has a unit: write \"20s\", \"20ms\" or \"20m\"",
    );
    check_tool("timeout = '0s'", "11: tools.x.timeout: 0s is out of bounds: 1ms to 1day are allowed");
    check_tool(
        "memory = '16'",
        "10: tools.x.memory: \"16\" is not a size: write a whole number and B, KiB, MiB or GiB, such as \"16KiB\"",
    );
    check_tool("memory = '1TiB'", "10: tools.x.memory: 1024GiB is out of bounds: 64KiB to 4GiB are allowed");
    check_tool("enabled = 'yes'", "11: tools.x.enabled: expected `true` or `false`, found string");
    check_tool(
        "max_output_bytes = 0",
        "20: tools.x.max_output_bytes: 0B is out of bounds: 1B to 64MiB are allowed",
    );
    check_faults(
        "version = 1\n[limits]\nconcurrency = 0\ncalls_per_minute = -1\nwasm_memory = 1\n\
         max_output_bytes = 99999999999999999999\nmax_timeout = '2 days'\n",
        &[
            "portcullis.toml:3:15: limits.concurrency: 0 is out of bounds: 1 to 1024 are allowed",
            "portcullis.toml:4:20: limits.calls_per_minute: -1 is out of bounds: 1 to 1000000 are allowed",
            "portcullis.toml:5:15: limits.wasm_memory: 1B is out of bounds: 64KiB to 4GiB are allowed",
            "portcullis.toml:6:20: limits.max_output_bytes: 99999999999999999999 is out of bounds: 1B to 64MiB \
             are allowed",
            "portcullis.toml:7:15: limits.max_timeout: 2days is out of bounds: 1ms to 1day are allowed",
        ],
    );
}

#[test]
fn mounts_are_disjoint_folders_of_the_workspace() {
    check_faults(
        "version = 1\n[mounts]\na = 'x'\nb = 'x/y'\nc = './X/'\nD = 'd'\ne = '../e'\nf = '/'\ng = '.'\nh = '/h'\ni = '/H/i'\n",
        &[
            "portcullis.toml:4:5: mounts.b: `x/y` overlaps `x` of mount `a`; mounts must be disjoint: name only the outer \
             folder, or two folders beside each other",
            "portcullis.toml:5:5: mounts.c: `X` overlaps `x` of mount `a`; mounts must be disjoint: name only the outer \
             folder, or two folders beside each other",
            "portcullis.toml:5:5: mounts.c: `X` overlaps `x/y` of mount `b`; mounts must be disjoint: name only the outer \
             folder, or two folders beside each other",
            "portcullis.toml:6:1: mounts.D: `D` is not a valid mount name: 1 to 64 characters of a-z, 0-9, \
             `_` and `-` are allowed",
            "portcullis.toml:7:5: mounts.e: `..` is not allowed in a mount's folder: write its absolute path",
            "portcullis.toml:8:5: mounts.f: a mount is a folder below `/`, not `/` itself",
            "portcullis.toml:9:5: mounts.g: a mount is a folder in the workspace, not the workspace itself; \
             `portcullis init` makes an existing folder a project",
            "portcullis.toml:11:5: mounts.i: `/H/i` overlaps `/h` of mount `h`; mounts must be disjoint: name only the outer \
             folder, or two folders beside each other",
        ],
    );
}

#[test]
fn a_home_is_a_mount_and_a_project_an_absolute_path() {
    check_faults(
        "version = 1\nhome = 'shard'\n[project]\npath = 'here'\nname = 'x'\n[mounts]\nshared = 's'\n",
        &[
            "portcullis.toml:2:8: home: unknown mount; did you mean `shared`?",
            "portcullis.toml:4:8: project.path: a project's folder is an absolute path",
            "portcullis.toml:5:1: project.name: unknown key; known are `path`",
        ],
    );
    let policy =
        load("version = 1\nhome = 'code'\n[project]\npath = '/src//p/'\n[mounts]\ncode = '/src/p'\n");
    assert_eq!((policy.home().as_str(), policy.project()), ("code", Some("/src/p")));
    assert_eq!(load("version = 1\n").home().as_str(), "shared");
}

#[test]
fn the_vault_is_alone_read_only_and_out_of_reach_of_tiers() {
    check_faults(
        "version = 1\n[mounts]\nvault = 'v'\ns = 's'\n[profiles.P]\nmounts = { vault = 'write' }\n[profiles.Q]\n\
         mounts = { vault = 'read', s = 'write' }\n[profiles.Nothing]\nmounts = { s = 'read' }\n[tiers]\n\
         read_only = { profile = 'P', approval = 'allow' }\n",
        &[
            "portcullis.toml:6:12: profiles.P.mounts.vault: the vault cannot be writable; write `vault = \"read\"`",
            "portcullis.toml:7:11: profiles.Q: a profile with the vault cannot have a writable mount; make `s` read-only, or use two profiles",
            "portcullis.toml:10:12: profiles.Nothing.mounts.s: the profile `Nothing` cannot have mounts; give \
             this profile another name",
            "portcullis.toml:12:25: tiers.read_only.profile: `P` has the vault, so it cannot be the profile of \
             a tier; name it in an entry `[tools.NAME]`",
        ],
    );
}

#[test]
fn an_operation_has_no_mounts_and_its_steps_share_none() {
    let with = |tools: &str| format!("{BASE}{tools}");
    let line = BASE.lines().count();
    let faults = |tools: &str, faults: &[(usize, &str)]| {
        let faults: Vec<_> =
            faults.iter().map(|(below, fault)| format!("portcullis.toml:{}:{fault}", line + below)).collect();
        check_faults(&with(tools), &faults.iter().map(String::as_str).collect::<Vec<_>>());
    };
    faults(
        "[tools.vault_copyto]\nprofile = 'R'\n",
        &[(
            2,
            "11: tools.vault_copyto.profile: `vault_copyto` has no mounts itself; write `profile = \"Nothing\"`, \
             and name the profiles of its steps `vault_copyto_read` and `vault_copyto_write`",
        )],
    );
    let share = "the steps of `vault_copyto` share no mount, and `vault_copyto_read` has `shared` too; name \
                 profiles such as `VaultRead` and `VaultWrite`";
    for (read, write) in [("R", "W"), ("W", "R"), ("R", "R")] {
        faults(
            &format!(
                "[tools]\nvault_copyto_write.profile = '{write}'\nvault_copyto_read.profile = '{read}'\n"
            ),
            &[(2, &format!("30: tools.vault_copyto_write.profile: {share}"))],
        );
    }
    // A step without an entry has no mounts, even if its tier's profile grants some.
    for entries in [
        "[tools]\nvault_copyto_read.profile = 'V'\nvault_copyto_write.profile = 'W'\nvault_copyto.profile = 'Nothing'",
        "[tools.vault_copyto_read]\nprofile = 'R'",
        "[tools.vault_copyto_write]\nprofile = 'R'\n[tools.vault_copyto]\napproval = 'ask'",
    ] {
        load(&with(entries));
    }
}

#[test]
fn untrusted_text_is_bounded_and_escaped_in_errors() {
    check_tool(
        "\"\\u001b[2J\" = 1",
        "1: tools.x.\"\\u{1b}[2J\": unknown key; known are `profile`, `approval`, `unasked`, \
         `timeout`, `memory`, `max_output_bytes`, `enabled`, `optional`",
    );
    let many: String = (0..2000).map(|number| format!("k{number} = 1\n")).collect();
    let error = try_load(BASE, Some(&many)).expect_err("is refused");
    assert_eq!((error.faults.len(), error.omitted), (50, 1950));
    assert!(error.to_string().ends_with("and 1950 more faults"));
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(try_load(BASE, Some(&deep)).is_err());
    let long = " ".repeat(64 * 1024 + 1);
    let error = try_load(BASE, Some(&long)).expect_err("is refused");
    assert_eq!(error.to_string(), "workspace.toml:1:1: the file has 65537 bytes; at most 65536 are allowed");
    let many: String = (0..1025).map(|number| format!("tools.t{number} = {{ enabled = false }}\n")).collect();
    let error = try_load(BASE, Some(&many)).expect_err("is refused");
    let message = error.to_string();
    assert!(message.ends_with("tools: 1025 entries; at most 1024 are allowed"), "{message}");
}

#[test]
fn faults_of_both_texts_are_reported_together() {
    let error = try_load("version = 1\nx = 1", Some("y = 1")).expect_err("is refused");
    let files: Vec<_> = error.faults.iter().map(|fault| (fault.file.as_str(), fault.key.as_str())).collect();
    assert_eq!(files, [("portcullis.toml", "x"), ("workspace.toml", "y")]);
}

#[test]
fn the_folder_of_modules_is_the_operators_to_name() {
    assert_eq!(load(BASE).modules_dir(), None);
    for dir in ["/opt/modules", "modules", "../modules"] {
        let policy = load(&format!("version = 1\n[modules]\ndir = \"{dir}\""));
        assert_eq!(policy.modules_dir(), Some(dir));
        assert_eq!(load(&policy.effective_toml()).digest(), policy.digest());
        assert_ne!(policy.digest(), load("version = 1").digest());
    }
    for (section, fault) in [
        ("modules = {}", "2:11: modules.dir: missing key"),
        (
            "modules.dir = \"\"",
            "2:15: modules.dir: a folder is missing; write its path, absolute or relative to this file",
        ),
        ("modules.dir = 3", "2:15: modules.dir: expected a string, found integer"),
        (
            "modules.dir = \"a\\u0000b\"",
            "2:15: modules.dir: a folder cannot have a NUL character in its name",
        ),
        ("modules = { dir = \"m\", allow = [\"x\"] }", "2:24: modules.allow: unknown key; known are `dir`"),
        ("modul.dir = \"m\"", "2:1: modul: unknown key; did you mean `modules`?"),
        (
            "sandbox.process.modules.dir = \"m\"",
            "2:17: sandbox.process.modules: unknown key; known are `require`, `profiles`, `tiers`, `tools`, `protect`, `hide`, `shell`, `egress`, `secrets`, `search`, `limits`, `flow`",
        ),
    ] {
        check_faults(&format!("version = 1\n{section}\n"), &[&format!("portcullis.toml:{fault}")]);
    }
    let error = try_load(BASE, Some("[modules]\ndir = \"shared\"")).expect_err("an overlay takes away");
    assert!(error.to_string().contains("modules: only the operator's policy may set this key"), "{error}");
}

#[test]
fn a_mount_is_a_folder_or_a_table_with_undo() {
    let policy = load(
        "version = 1\n[mounts]\na = 'x'\nb = { path = 'y', undo = true }\n[mounts.c]\npath = 'z'\nundo = false\n",
    );
    let mounts = policy.mounts().iter().map(|mount| (mount.name.as_str(), &*mount.folder, mount.has_undo));
    assert_eq!(mounts.collect::<Vec<_>>(), [("a", "x", false), ("b", "y", true), ("c", "z", false)]);
    assert!(
        policy.effective_toml().contains("\nb = { path = \"y\", undo = true }\n"),
        "{}",
        policy.effective_toml()
    );
    check_faults(
        "version = 1\n[mounts]\na = { undo = true }\nb = { path = 'y', undo = 'yes' }\nc = { path = 'z', und = true }\n\
         d = 7\nvault = { path = 'v', undo = true }\n",
        &[
            "portcullis.toml:3:5: mounts.a.path: missing key",
            "portcullis.toml:4:26: mounts.b.undo: expected `true` or `false`, found string",
            "portcullis.toml:5:19: mounts.c.und: unknown key; did you mean `undo`?",
            "portcullis.toml:6:5: mounts.d: expected a string, found integer",
            "portcullis.toml:7:30: mounts.vault.undo: no tool writes the vault, so no change of it can be undone; remove the key",
        ],
    );
}

#[test]
fn only_file_tools_have_paths_that_need_no_approval() {
    check_faults(
        "version = 1\n[tools.file_edit]\nunasked = { path = ['../x', 'src/**'] }\n[tools.file_read]\nunasked = 'src'\n\
         [tools.word_count]\nunasked = { path = 'src/**' }\n",
        &[
            "portcullis.toml:3:21: tools.file_edit.unasked.path[0]: a pattern has no `.` and no `..`",
            "portcullis.toml:5:11: tools.file_read.unasked: expected a table, found string",
            "portcullis.toml:7:11: tools.word_count.unasked: only file_delete, file_edit, file_list, file_read, \
             file_search, file_write can have paths that need no approval: other tools may touch what their arguments \
             do not name",
        ],
    );
}
