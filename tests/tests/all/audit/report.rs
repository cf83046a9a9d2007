//! `portcullis audit report` and `mounts --html`: pages of real logs.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
};

use portcullis_testing::Fixture;
use portcullis_tools::audit;

use crate::modules::{portcullis, stderr, stdout};

/// Creates a fixture with a read, a write, and a refused write into the vault. The refused file's name is
/// HTML markup.
fn with_calls() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    for (words, code) in [
        (&["call", "file_read", r#"{"path":"a.txt"}"#, "--run", "one"][..], 0),
        (&["call", "file_write", r#"{"path":"/tmp/b","content":"b"}"#, "--run", "two"], 0),
        (&["call", "file_write", r#"{"path":"/vault/<script>x</script>","content":"c"}"#, "--run", "two"], 3),
    ] {
        assert_eq!(portcullis(&fixture, words).status.code(), Some(code), "{words:?}");
    }
    fixture
}

/// Creates a page, asserts the exit code, and returns the page's file and text.
#[track_caller]
fn page(fixture: &Fixture, words: &[&str], code: i32) -> (PathBuf, String) {
    let count = fs::read_dir(fixture.root()).expect("readable").count();
    let file = fixture.root().join(format!("page-{count}.html"));
    let output =
        portcullis(fixture, &[words, &["--html", file.to_str().expect("the path is UTF-8")]].concat());
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
    let text = fs::read_to_string(&file).expect("a page");
    (file, text)
}

#[test]
fn the_report_shows_granted_used_and_tried() {
    let fixture = with_calls();
    let (file, page) = page(&fixture, &["audit", "report"], 0);
    assert_eq!(file.metadata().expect("the file has metadata").permissions().mode() & 0o777, 0o600);
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    assert!(page.contains("content=\"default-src 'none'; style-src 'sha256-"), "{page}");
    assert!(!page.contains("<script") && !page.contains(" style=") && !page.contains(" src="), "{page}");
    for shown in [
        "✓ The chain is intact",
        "! Not anchored",
        "/vault/&lt;script&gt;x&lt;/script&gt;",
        "mount_not_granted",
        "✗ 1 refused",
        "<div class=\"grant used\"><strong>read</strong><span>used 1 ×</span></div>",
        "<div class=\"grant used\"><strong>write</strong><span>used 1 ×</span></div>",
        "<div class=\"grant unused\"><strong>write</strong><span>never used</span></div>",
        "profiles.VaultRead.mounts.vault",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let verified = stdout(&portcullis(&fixture, &["audit", "verify"]));
    let (_, head) = verified.trim().rsplit_once(' ').expect("a head");
    assert!(page.contains(head), "{head}");
}

#[test]
fn filters_choose_the_rows_that_count() {
    let fixture = with_calls();
    let (_, page) = page(&fixture, &["audit", "report", "--tool", "file_read", "--since", "1h"], 0);
    assert!(page.contains("No call was denied."), "{page}");
    assert!(
        page.contains("<bdi>--tool file_read</bdi>") && page.contains("! Filters leave calls out"),
        "{page}"
    );
    let words = ["audit", "report", "--html", "x.html", "--since", "soon"];
    assert_eq!(portcullis(&fixture, &words).status.code(), Some(2));
    assert_eq!(portcullis(&fixture, &["audit", "report"]).status.code(), Some(2), "a file is needed");
}

#[test]
fn a_page_replaces_no_file() {
    let fixture = with_calls();
    let taken = fixture.root().join("taken.html");
    fs::write(&taken, "mine").expect("written");
    let link = fixture.root().join("link.html");
    symlink(fixture.root().join("elsewhere.html"), &link).expect("linked");
    for file in [&taken, &link] {
        for words in [&["audit", "report"][..], &["mounts"]] {
            let output = portcullis(
                &fixture,
                &[words, &["--html", file.to_str().expect("the path is UTF-8")]].concat(),
            );
            assert_eq!(output.status.code(), Some(1), "{words:?}");
            assert!(stderr(&output).contains("cannot write the page `"), "{}", stderr(&output));
        }
    }
    assert_eq!(fs::read_to_string(&taken).expect("readable"), "mine");
    assert!(!fixture.root().join("elsewhere.html").exists());
}

#[test]
fn a_head_that_was_kept_elsewhere_shows_missing_rows() {
    let fixture = with_calls();
    let log = audit::log_path(&fixture.state());
    let whole = fs::read_to_string(&log).expect("readable");
    let verified = stdout(&portcullis(&fixture, &["audit", "verify"]));
    let head = verified.lines().next().and_then(|line| line.rsplit_once(' ')).expect("a head").1.to_owned();
    assert!(page(&fixture, &["audit", "report", "--head", &head], 0).1.contains("✓ Anchored up to row "));
    let (kept, _) = whole.trim_end().rsplit_once('\n').expect("two rows");
    fs::write(&log, format!("{kept}\n")).expect("written");
    let (_, cut) = page(&fixture, &["audit", "report", "--head", &head], 1);
    assert!(cut.contains("✗ Rows are missing") && cut.contains("✓ The chain is intact"), "{cut}");
    fs::write(&log, whole.replacen("a.txt", "b.txt", 1)).expect("written");
    let (_, altered) = page(&fixture, &["audit", "report", "--head", &head], 1);
    assert!(altered.contains("✗ The chain is broken") && altered.contains("✗ Rows are missing"), "{altered}");
    fs::write(&log, format!("no row\n{whole}")).expect("written");
    assert!(page(&fixture, &["audit", "report"], 1).1.contains("Lines that are not rows: 1."));
    fs::remove_file(&log).expect("removed");
    let file = fixture.root().join("none.html");
    let output =
        portcullis(&fixture, &["audit", "report", "--html", file.to_str().expect("the path is UTF-8")]);
    assert!(stderr(&output).contains("there is no audit log at "), "{}", stderr(&output));
    assert!(!file.exists() && output.status.code() == Some(1));
}

#[test]
fn the_map_is_a_page_too() {
    let fixture = with_calls();
    let (_, page) = page(&fixture, &["mounts"], 0);
    assert!(page.contains("<h1>Map of mounts</h1>") && page.contains("✗ 1 refused"), "{page}");
    assert!(page.contains("profiles.FileReadOnly.mounts.vault") && !page.contains("<script"), "{page}");
    let words = ["mounts", "--html", "x.html", "--reach", "vault"];
    assert_eq!(portcullis(&fixture, &words).status.code(), Some(2));
}
