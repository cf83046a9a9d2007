//! Bundles through the program and through Python, without Portcullis.

use std::{
    fs,
    io::{Cursor, Read as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use portcullis_testing::{Fixture, binary};
use serde_json::{Value, json};

/// A log with two segments. One of its calls was refused.
struct Bundled {
    fixture: Fixture,
    outside: tempfile::TempDir,
}

impl Bundled {
    fn new() -> Self {
        let bundled = Self { fixture: Fixture::new(), outside: tempfile::tempdir().expect("a folder") };
        bundled.fixture.put("a.txt", "a\n");
        bundled.call("/shared/a.txt");
        bundled.run(&["call", "file_write", r#"{"path": "/vault/x", "content": "y"}"#]);
        assert_eq!(bundled.run(&["audit", "seal"]).status.code(), Some(0));
        let note = bundled.fixture.state().join("audit.segments/000001-1-6.note");
        fs::copy(note, bundled.path("kept.note")).expect("copied");
        bundled.call("/shared/a.txt");
        bundled.call("/vault/y");
        bundled
    }

    fn path(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    fn run(&self, args: &[&str]) -> Output {
        Command::new(binary())
            .args(args)
            .args(self.fixture.options())
            .stdin(Stdio::null())
            .output()
            .expect("runs")
    }

    fn call(&self, path: &str) {
        self.run(&["call", "file_read", &json!({ "path": path }).to_string()]);
    }

    /// Creates a bundle, and returns its path.
    fn bundle(&self, name: &str, args: &[&str]) -> PathBuf {
        let out = self.path(name);
        let text = out.to_string_lossy().into_owned();
        let output = self.run(&[&["audit", "bundle", "--out", &text], args].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        out
    }

    fn verify(&self, bundle: &Path, args: &[&str]) -> (bool, String) {
        let bundle = bundle.to_string_lossy().into_owned();
        let output = self.run(&[&["audit", "verify", "--bundle", &bundle], args].concat());
        let shown =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), shown)
    }
}

/// Returns the files of a tar archive.
fn files(bundle: &Path) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(fs::File::open(bundle).expect("opens"));
    let entries = archive.entries().expect("entries");
    entries
        .map(|entry| {
            let mut entry = entry.expect("an entry");
            let name = entry.path().expect("a path").to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("reads");
            (name, content)
        })
        .collect()
}

fn write(files: &[(String, Vec<u8>)], out: &Path) {
    let mut archive = tar::Builder::new(fs::File::create(out).expect("the file can be made"));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, Cursor::new(content)).expect("appends");
    }
    archive.finish().expect("finishes");
}

/// Runs the program of a bundle with isolated Python, without the packages of this machine.
#[expect(clippy::disallowed_methods, reason = "the reader of a bundle has Python and nothing of ours")]
fn python(bundle: &Path, args: &[&str]) -> (bool, String) {
    let program = files(bundle).into_iter().find(|(name, _)| name == "verify.py").expect("a program").1;
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("verify.py");
    fs::write(&script, program).expect("writes");
    let output = Command::new("python3")
        .args(["-I", "-S"])
        .arg(&script)
        .arg(bundle)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .output()
        .expect("Python runs");
    let shown =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), shown)
}

#[expect(clippy::disallowed_methods, reason = "Python, which is not ours")]
fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(has || !portcullis_testing::kernel_is_required(), "Python is required here");
    has
}

#[test]
fn a_bundle_proves_its_rows_to_the_program_and_to_python_alone() {
    let log = Bundled::new();
    let anchor = log.path("kept.note").to_string_lossy().into_owned();
    let all = log.bundle("all.tar", &[]);
    let denied = log.bundle("denied.tar", &["--decision", "deny", "--anchor", &anchor]);
    let late = log.bundle("late.tar", &["--path", "/vault/y", "--anchor", &anchor]);
    for (bundle, rows) in
        [(&all, "rows 1 to 13, 13 disclosed"), (&denied, "rows 5 to "), (&late, "rows 12 to ")]
    {
        for args in [&[][..], &["--anchor", &anchor]] {
            let (proven, shown) = log.verify(bundle, args);
            assert!(proven && shown.contains(rows), "{shown}");
            if has_python() {
                let (proven, shown) = python(bundle, args);
                assert!(proven && shown.contains(rows), "{shown}");
            }
        }
    }
    let names: Vec<String> = files(&all).into_iter().map(|(name, _)| name).collect();
    for prefix in ["bundle.json", "verify.py", "notes/", "policies/", "rows.txt"] {
        assert!(names.iter().any(|name| name.starts_with(prefix)), "{names:?}");
    }
    // The bundle has only the hash of a row that does not match the filters.
    let rows = files(&late).into_iter().find(|(name, _)| name == "rows.txt").expect("rows").1;
    assert!(!String::from_utf8_lossy(&rows).contains("a.txt"), "not disclosed");
    let json = log.run(&["audit", "verify", "--json", "--bundle", &all.to_string_lossy()]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["proven"], &json["last_seq"]), (&json!(true), &json!(13)));
}

#[test]
fn every_change_of_a_bundle_is_reported_by_both() {
    let log = Bundled::new();
    let anchor = log.path("kept.note").to_string_lossy().into_owned();
    let other = Bundled::new();
    let original = files(&log.bundle("b.tar", &["--path", "/vault/y", "--anchor", &anchor]));
    let foreign = files(&other.bundle("b.tar", &["--path", "/vault/y"]));
    let edit = |name: &str, edit: &dyn Fn(&str) -> String| {
        let mut changed = original.clone();
        let mut edits = 0;
        for (file, content) in &mut changed {
            if file.starts_with(name) {
                let text = edit(&String::from_utf8_lossy(content));
                edits += usize::from(text.as_bytes() != content.as_slice());
                *content = text.into_bytes();
            }
        }
        assert!(edits > 0, "{name} is changed");
        changed
    };
    let foreign_rows = foreign.iter().find(|(name, _)| name == "rows.txt").expect("rows").1.clone();
    let cases = [
        ("a row", edit("rows.txt", &|text| text.replace("/vault/y", "/vault/z"))),
        ("a hash", edit("rows.txt", &|text| format!("-{}{}", "0".repeat(64), &text[65..]))),
        ("a row left out", edit("rows.txt", &|text| text.split_inclusive('\n').skip(1).collect())),
        (
            "the last row",
            edit("rows.txt", &|text| {
                let lines: Vec<&str> = text.split_inclusive('\n').collect();
                lines[..lines.len() - 1].concat()
            }),
        ),
        ("the order", edit("rows.txt", &|text| text.split_inclusive('\n').rev().collect())),
        ("rows of another log", edit("rows.txt", &|_| String::from_utf8_lossy(&foreign_rows).into_owned())),
        ("a checkpoint", edit("notes/", &|text| text.replace("\n13\n", "\n14\n").replace("\n6\n", "\n5\n"))),
        ("no checkpoint", original.iter().filter(|(name, _)| !name.starts_with("notes/")).cloned().collect()),
        ("a policy", edit("policies/", &|text| format!("{text} "))),
        (
            "the tree before",
            edit("bundle.json", &|text| {
                let mut descriptor: Value = serde_json::from_str(text).expect("JSON");
                descriptor["left"][0] = json!("0".repeat(64));
                descriptor.to_string()
            }),
        ),
        (
            "the proof",
            edit("bundle.json", &|text| {
                let mut descriptor: Value = serde_json::from_str(text).expect("JSON");
                descriptor["consistency"][0]["hashes"][0] = json!("0".repeat(64));
                descriptor.to_string()
            }),
        ),
        (
            "no proof",
            edit("bundle.json", &|text| {
                let mut descriptor: Value = serde_json::from_str(text).expect("JSON");
                descriptor["consistency"] = json!([]);
                descriptor.to_string()
            }),
        ),
    ];
    for (name, changed) in cases {
        let bundle = log.path("changed.tar");
        write(&changed, &bundle);
        let (proven, shown) = log.verify(&bundle, &[]);
        assert!(!proven, "{name}: {shown}");
        if has_python() {
            let (proven, shown) = python(&bundle, &[]);
            assert!(!proven, "{name}: {shown}");
        }
    }
    // Another log's bundle verifies under its own key, and not under the key of this log.
    let key = fs::read_to_string(log.fixture.state().join("audit.key.pub")).expect("reads");
    let bundle = log.path("foreign.tar");
    write(&foreign, &bundle);
    assert!(log.verify(&bundle, &[]).0);
    let (proven, shown) = log.verify(&bundle, &["--key", key.trim()]);
    assert!(!proven && shown.contains("it is not signed with this log's key"), "{shown}");
    assert!(!log.verify(&bundle, &["--anchor", &anchor]).0);
    if has_python() {
        assert!(!python(&bundle, &["--key", key.trim()]).0);
        assert!(!python(&bundle, &["--anchor", &anchor]).0);
    }
}

#[test]
fn wrong_requests_and_files_are_reported_and_leave_nothing() {
    let log = Bundled::new();
    let out = log.path("b.tar").to_string_lossy().into_owned();
    let none = log.run(&["audit", "bundle", "--out", &out, "--agent", "nobody-here"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    assert!(!log.path("b.tar").exists());
    log.bundle("b.tar", &[]);
    let again = log.run(&["audit", "bundle", "--out", &out]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    for content in [&b""[..], b"\xff\xfe", &[0; 4096], b"{\"format\":1}"] {
        let file = log.path("garbage.tar");
        fs::write(&file, content).expect("writes");
        let (proven, shown) = log.verify(&file, &[]);
        assert!(!proven && shown.contains("bundle"), "{shown}");
    }
    // The log is truncated after its checkpoint was made, so no bundle is written.
    let path = log.fixture.state().join("audit.jsonl");
    let text = fs::read_to_string(&path).expect("reads");
    fs::write(&path, text.split_inclusive('\n').take(2).collect::<String>()).expect("writes");
    let cut = log.run(&["audit", "bundle", "--out", &log.path("cut.tar").to_string_lossy()]);
    assert_eq!(cut.status.code(), Some(1), "{cut:?}");
    assert!(!log.path("cut.tar").exists());
}
