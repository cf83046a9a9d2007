//! 44 common mistakes in policy files, each through the program: its message, its position, and its hint.
//! Correct lines, and mistakes that no program can detect, have no finding.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use portcullis_tools::policy::shipped_tools;
use serde_json::Value;

/// The policy that the mistakes are made in; it has no findings. Its last line is line 18.
const GOOD: &str = "version = 1
[mounts]
shared = \"shared\"
tmp = \"tmp\"
vault = \"vault\"
[profiles.R]
mounts = { shared = \"read\", tmp = \"read\" }
[profiles.W]
mounts = { shared = \"write\", tmp = \"write\" }
[tiers]
read_only = { profile = \"R\", approval = \"allow\" }
side_effecting = { profile = \"W\", approval = \"allow\" }
privileged = { profile = \"W\", approval = \"ask\" }
[tools.vault_copyto_read]
profile = \"V\"
approval = \"ask\"
[profiles.V]
mounts = { vault = \"read\" }
";

/// A way to make the mistake.
enum Made {
    /// Lines after the good ones; the first is line 19.
    Add(&'static str),
    /// A text of the file, and its replacement.
    Edit(&'static str, &'static str),
    /// A whole file.
    Whole(&'static [u8]),
    /// An overlay.
    Overlay(&'static str),
    /// The folder of the mount `tmp` is a link.
    Link,
    /// The folder of the mount `tmp` is missing.
    NoFolder,
}

use Made::{Add, Edit, Link, NoFolder, Overlay, Whole};

/// A description of a mistake, the way to make it, and its findings: `LINE:COLUMN: LEVEL CODE KEY: MESSAGE`.
type Case = (&'static str, Made, &'static [&'static str]);

/// The hint of each code in the cases.
const HINTS: &[(&str, &str)] = &[
    ("P00", "write the line as the message says; `portcullis policy default` prints a policy that loads"),
    ("P01", "write the tool's own name, as `portcullis tools` lists it"),
    ("P04", "remove the line, or use the name where you meant it"),
    ("P05", "use one name, or names that differ in letters"),
    ("P06", "remove the rule from `allow`, or write a narrower rule in `deny`"),
    ("P07", "give the tool a profile with `read`, such as `mounts = { shared = \"read\" }`"),
    ("P09", "make the folder, or correct its path in `[mounts]`"),
    ("P15", "remove the line, or write a stricter value"),
];

const CASES: &[Case] = &[
    (
        "a key typo",
        Add("[tools.file_read]\nprofil = \"R\""),
        &["20:1: error P00 tools.file_read.profil: unknown key; did you mean `profile`?"],
    ),
    (
        "an unknown profile",
        Add("[tools.file_read]\nprofile = \"RR\""),
        &["20:11: error P00 tools.file_read.profile: unknown profile; known are `Nothing`, `R`, `V`, `W`"],
    ),
    (
        "an unknown mount in a profile",
        Edit("tmp = \"read\" }", "tmpp = \"read\" }"),
        &["7:29: error P00 profiles.R.mounts.tmpp: unknown mount; did you mean `tmp`?"],
    ),
    (
        "an approval typo",
        Edit("approval = \"ask\"\n[profiles.V]", "approval = \"aks\"\n[profiles.V]"),
        &["16:12: error P00 tools.vault_copyto_read.approval: unknown approval `aks`; did you mean `ask`?"],
    ),
    (
        "`rw` as access",
        Edit("shared = \"write\"", "shared = \"rw\""),
        &["9:21: error P00 profiles.W.mounts.shared: unknown access `rw`; known are `read`, `write`"],
    ),
    (
        "`64M` as size",
        Add("[limits]\nwasm_memory = \"64M\""),
        &[
            "20:15: error P00 limits.wasm_memory: \"64M\" is not a size: write a whole number and B, KiB, MiB or GiB, such as \"16KiB\"",
        ],
    ),
    (
        "a bare number as duration",
        Add("[tools.file_read]\ntimeout = 30"),
        &[
            "20:11: error P00 tools.file_read.timeout: a duration has a unit: write \"30s\", \"30ms\" or \"30m\"",
        ],
    ),
    (
        "`\"false\"` as a truth value",
        Add("[tools.file_read]\nenabled = \"false\""),
        &["20:11: error P00 tools.file_read.enabled: expected `true` or `false`, found string"],
    ),
    ("no version", Edit("version = 1\n", ""), &["1:1: error P00 version: missing key; write `version = 1`"]),
    (
        "mounts that overlap",
        Edit("tmp = \"tmp\"", "tmp = \"shared/tmp\""),
        &[
            "4:7: error P00 mounts.tmp: `shared/tmp` overlaps `shared` of mount `shared`; mounts must be disjoint: name only the outer folder, or two folders beside each other",
        ],
    ),
    (
        "mounts that overlap by case",
        Edit("tmp = \"tmp\"", "tmp = \"Shared\""),
        &[
            "4:7: error P00 mounts.tmp: `Shared` overlaps `shared` of mount `shared`; mounts must be disjoint: name only the outer folder, or two folders beside each other",
        ],
    ),
    (
        "a writable vault",
        Edit("vault = \"read\"", "vault = \"write\""),
        &["18:12: error P00 profiles.V.mounts.vault: the vault cannot be writable; write `vault = \"read\"`"],
    ),
    (
        "the vault beside a writable mount",
        Edit("vault = \"read\"", "vault = \"read\", tmp = \"write\""),
        &[
            "17:11: error P00 profiles.V: a profile with the vault cannot have a writable mount; make `tmp` read-only, or use two profiles",
        ],
    ),
    (
        "the vault in the shell",
        Add("[shell]\nmounts = { vault = \"read\" }"),
        &["20:12: error P00 shell.mounts.vault: no shell ever has the vault; leave it out"],
    ),
    (
        "a tier with the vault",
        Edit("read_only = { profile = \"R\"", "read_only = { profile = \"V\""),
        &[
            "11:25: error P00 tiers.read_only.profile: `V` has the vault, so it cannot be the profile of a tier; name it in an entry `[tools.NAME]`",
        ],
    ),
    (
        "two steps that share a mount",
        Add("[tools.vault_copyto_write]\nprofile = \"V\""),
        &[
            "20:11: error P00 tools.vault_copyto_write.profile: the steps of `vault_copyto` share no mount, and `vault_copyto_read` has `vault` too; name profiles such as `VaultRead` and `VaultWrite`",
        ],
    ),
    (
        "an absolute folder",
        Edit("tmp = \"tmp\"", "tmp = \"/srv/no-such-folder\""),
        &[
            "4:1: error P00 mounts.tmp: `/srv/no-such-folder` does not exist, and only a folder below the workspace is made by a start; make it, or correct the path",
        ],
    ),
    (
        "`..` in a folder",
        Edit("tmp = \"tmp\"", "tmp = \"../tmp\""),
        &["4:7: error P00 mounts.tmp: `..` is not allowed in a mount's folder: write its absolute path"],
    ),
    (
        "`.` as folder",
        Edit("tmp = \"tmp\"", "tmp = \".\""),
        &[
            "4:7: error P00 mounts.tmp: a mount is a folder in the workspace, not the workspace itself; `portcullis init` makes an existing folder a project",
        ],
    ),
    (
        "`/` as folder",
        Edit("tmp = \"tmp\"", "tmp = \"/\""),
        &["4:7: error P00 mounts.tmp: a mount is a folder below `/`, not `/` itself"],
    ),
    (
        "a link as mount",
        Link,
        &[
            "4:1: error P00 mounts.tmp: a mount cannot be opened: cannot open mount `tmp` at `tmp` below the workspace (a mount must be a real folder, not a link): Too many levels of symbolic links (os error 40)",
        ],
    ),
    (
        "two profiles of one name",
        Add("[profiles.R]\nmounts = { tmp = \"read\" }"),
        &[
            "19:11: error P00: the section `[profiles.R]` is written a second time; move its keys to the one of line 6",
        ],
    ),
    (
        "two mounts of one name",
        Edit("tmp = \"tmp\"", "tmp = \"tmp\"\nshared = \"other\""),
        &["5:1: error P00: the key `shared` is written a second time; keep one of the two"],
    ),
    (
        "an unclosed brace",
        Edit("tmp = \"read\" }", "tmp = \"read\""),
        &["7:10: error P00: `{` is not closed; a `}` is missing"],
    ),
    (
        "a UTF-16 file",
        Whole(b"\xff\xfev\0e\0r\0s\0i\0o\0n\0 \0=\0 \x001\0"),
        &["error: cannot read the policy file `/policy.toml`\n  caused by: it is UTF-16; save it as UTF-8"],
    ),
    (
        "a JSON file",
        Whole(b"{ \"version\": 1, \"mounts\": { \"shared\": \"shared\" } }"),
        &["1:1: error P00: this looks like JSON; a policy is TOML and begins with `version = 1`"],
    ),
    (
        "a wildcard in `protect`",
        Add("[protect]\npaths = [\"*.sh\"]"),
        &[
            "20:10: error P00 protect.paths[0]: wildcards are not supported: a protected path is matched name by name, at any depth",
        ],
    ),
    (
        "an absolute path in `protect`",
        Add("[protect]\npaths = [\"/etc\"]"),
        &[
            "20:10: error P00 protect.paths[0]: a protected path holds at any depth of any mount: write it without the leading `/`",
        ],
    ),
    (
        "an overlay that widens a mount",
        Overlay("[profiles.R.mounts]\nshared = \"write\""),
        &[
            "2:10: error P00 profiles.R.mounts.shared: `write` would widen the operator's `read`; this section may only reduce",
        ],
    ),
    (
        "an overlay that widens an approval",
        Overlay("[tools.vault_copyto_read]\napproval = \"allow\""),
        &[
            "2:12: error P00 tools.vault_copyto_read.approval: `allow` would widen the operator's `ask`; this section may only reduce",
        ],
    ),
    (
        "an overlay that enables a tool",
        Overlay("[tools.file_read]\nenabled = true"),
        &["2:11: error P00 tools.file_read.enabled: only the operator's policy may enable a tool"],
    ),
    (
        "an overlay with `[mounts]`",
        Overlay("[mounts]\nx = \"x\""),
        &[
            "1:2: error P00 mounts: only the operator's policy may set this key; a workspace's policy may only reduce",
        ],
    ),
    (
        "an overlay with an unknown profile",
        Overlay("[profiles.Q.mounts]\nshared = \"read\""),
        &["1:11: error P00 profiles.Q: unknown profile; known are `Nothing`, `R`, `V`, `W`"],
    ),
    (
        "an overlay with a timeout above the tool's own",
        Overlay("[tools.file_read]\ntimeout = \"1m\""),
        &[
            "2:1: warning P15 tools.file_read.timeout: this takes nothing away: `file_read` declares {file_read}",
        ],
    ),
    (
        "a tool name typo",
        Add("[tools.file_wirte]\napproval = \"deny\""),
        &[
            "19:8: error P01 tools.file_wirte: no tool has this name: did you mean `file_write`? (write `optional = true` in an entry whose tool is not always here)",
        ],
    ),
    (
        "a tool name typo in an overlay",
        Overlay("[tools.shell_exce]\napproval = \"deny\""),
        &[
            "1:8: error P01 tools.shell_exce: no tool has this name: did you mean `shell_exec`? (write `optional = true` in an entry whose tool is not always here)",
        ],
    ),
    // `paths` adds to the shipped names, so the defaults still apply.
    ("`[protect]` with names of its own", Add("[protect]\npaths = [\"secrets\"]"), &[]),
    // The program knows which of its own tools only read. It cannot know this of other tools.
    (
        "write where read was meant",
        Edit(
            "mounts = { shared = \"read\", tmp = \"read\" }",
            "mounts = { shared = \"write\", tmp = \"read\" }",
        ),
        &[
            "11:15: warning P07 tiers.read_only.profile: `file_list`, `file_read`, `file_search` declare to only read, and this profile may write",
        ],
    ),
    (
        "a missing folder",
        NoFolder,
        &["4:1: note P09 mounts.tmp: `tmp` does not exist; the first start makes it"],
    ),
    (
        "profiles that differ in case only",
        Add("[profiles.r]\nmounts = { shared = \"write\" }"),
        &["19:11: error P05 profiles.r: `r` and `R` differ in case only; use another name"],
    ),
    (
        "a profile that nothing uses",
        Add("[profiles.Spare]\nmounts = { tmp = \"read\" }"),
        &["19:11: warning P04 profiles.Spare: no tier and no tool has this profile"],
    ),
    (
        "a mount that nothing uses",
        Edit("vault = \"vault\"", "vault = \"vault\"\nattic = \"attic\""),
        &["6:9: warning P04 mounts.attic: no profile and no shell has this mount"],
    ),
    (
        "`allow` that `deny` covers",
        Add("[shell]\nmounts = { shared = \"read\" }\nallow = [\"git push\"]\ndeny = [\"git\"]"),
        &["19:1: warning P06 shell.allow: `git push` allows nothing: `git` in `deny` covers it"],
    ),
    ("`5 sec` as duration", Add("[tools.file_read]\ntimeout = \"5 sec\""), &[]),
];

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn lint(folder: &Path, made: &Made) -> Output {
    let workspace = folder.join("workspace");
    for mount in ["shared", "tmp", "vault", "attic"] {
        fs::create_dir_all(workspace.join(mount)).expect("a folder");
    }
    let policy = match made {
        Add(lines) => format!("{GOOD}{lines}\n").into_bytes(),
        Edit(from, to) => {
            assert!(GOOD.contains(from), "{from}");
            GOOD.replacen(from, to, 1).into_bytes()
        }
        Whole(bytes) => bytes.to_vec(),
        Overlay(text) => {
            fs::write(workspace.join("portcullis.toml"), text).expect("written");
            GOOD.as_bytes().to_vec()
        }
        Link | NoFolder => {
            fs::remove_dir(workspace.join("tmp")).expect("removed");
            if matches!(made, Link) {
                symlink("attic", workspace.join("tmp")).expect("linked");
            }
            GOOD.as_bytes().to_vec()
        }
    };
    let file = folder.join("policy.toml");
    fs::write(&file, policy).expect("written");
    let [workspace, state, file] = [workspace, folder.join("state"), file].map(|path| path.into_os_string());
    Command::new(portcullis_testing::binary())
        .args(["policy", "lint", "--json", "--workspace"])
        .args([workspace, "--state".into(), state, "--policy".into(), file])
        .output()
        .expect("starts")
}

/// Returns the findings in the form of the table, after a check of their hints. If the output is not a list
/// of findings, returns the program's error.
fn findings(folder: &Path, output: &Output) -> Vec<String> {
    let Ok(found) = serde_json::from_slice::<Vec<Value>>(&output.stdout) else {
        let error = String::from_utf8_lossy(&output.stderr);
        return vec![error.trim_end().replace(&*folder.to_string_lossy(), "")];
    };
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut told = Vec::new();
    for finding in &found {
        let (code, key) = (text(&finding["code"]), text(&finding["key"]));
        let hint = HINTS.iter().find(|(of, _)| *of == code).map(|(_, hint)| *hint);
        assert_eq!(hint, Some(&*text(&finding["hint"])), "{code}");
        let key = if key.is_empty() { key } else { format!(" {key}") };
        let (location, level, message) =
            (&finding["place"], text(&finding["level"]), text(&finding["message"]));
        told.push(format!("{}:{}: {level} {code}{key}: {message}", location["line"], location["column"]));
    }
    told
}

/// Returns the timeout that a shipped tool declares, in the syntax of a policy.
fn declared_timeout(name: &str) -> String {
    let tool = shipped_tools().find(|tool| tool.name.as_str() == name).expect("a shipped tool");
    format!("{}s", tool.declared_timeout.expect("declares a time").as_secs())
}

#[test]
fn each_of_44_mistakes_is_told_with_its_message_place_and_hint() {
    assert_eq!(CASES.len(), 44);
    let mut wrong = String::new();
    for (words, made, expected) in CASES {
        let folder = tempfile::tempdir().expect("a folder");
        let output = lint(folder.path(), made);
        let told = findings(folder.path(), &output);
        let expected: Vec<String> =
            expected.iter().map(|text| text.replace("{file_read}", &declared_timeout("file_read"))).collect();
        if told != expected {
            wrong.push_str(&format!("{words} ({:?}):\n{told:#?}\n", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
