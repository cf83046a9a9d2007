//! Paths that escape a mount or are invalid.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

use portcullis_testing::Fixture;
use portcullis_types::ToolErrorKind::{self, Denied, Failed, InvalidArguments, NotFound};
use serde_json::json;

use super::{FileSetup, IN_VAULT, writing};

/// Paths, each with the kind and code by which both reading and writing tools refuse it.
type Refusals = &'static [(&'static str, ToolErrorKind, &'static str)];

const ESCAPES_BY_LINK: Refusals = &[
    ("/shared/passwd", Denied, "link_escapes_mount"),
    ("/shared/up", Denied, "link_escapes_mount"),
    ("/shared/to_vault", Denied, "link_escapes_mount"),
    ("/shared/vault_folder/secret.txt", Denied, "link_escapes_mount"),
    ("/shared/vault_folder/new/er/file.txt", Denied, "link_escapes_mount"),
    ("/shared/beside/x.txt", Denied, "link_escapes_mount"),
    ("/shared/beside/new.txt", Denied, "link_escapes_mount"),
    ("/shared/chain", Denied, "link_escapes_mount"),
    ("/shared/d/../chain", Denied, "link_escapes_mount"),
    ("/shared/folder/chain_3", Denied, "link_escapes_mount"),
    ("/shared/dangling_out", Denied, "link_escapes_mount"),
    ("/shared/dangling_up", Denied, "link_escapes_mount"),
    ("/shared/dangling_up/below", Denied, "link_escapes_mount"),
    ("/shared/proc/etc/passwd", Denied, "link_escapes_mount"),
    ("/shared/descriptor/3", Denied, "link_escapes_mount"),
    ("/shared/null", Denied, "link_escapes_mount"),
    // An absolute link is an escape, wherever it leads: the host's root is not the guest's root.
    ("/shared/absolute_inside", Denied, "link_escapes_mount"),
];

const ESCAPES_BY_NAME: Refusals = &[
    ("/shared/../vault/secret.txt", Denied, "path_escapes_mount"),
    ("../vault/secret.txt", Denied, "path_escapes_mount"),
    ("/shared/d/../../vault/secret.txt", Denied, "path_escapes_mount"),
    ("/shared//./..//../outside.txt", Denied, "path_escapes_mount"),
    ("/shared/..", Denied, "path_escapes_mount"),
    ("..", Denied, "path_escapes_mount"),
    ("/../etc/passwd", Denied, "path_escapes_mount"),
    ("/shared/../shared/notes.txt", Denied, "path_escapes_mount"),
    ("/etc/passwd", Denied, "unknown_mount"),
    ("//etc//passwd", Denied, "unknown_mount"),
    ("/./etc/./passwd/", Denied, "unknown_mount"),
    ("/", Denied, "unknown_mount"),
    ("/proc/self/root/etc/passwd", Denied, "unknown_mount"),
    ("/proc/self/fd/3", Denied, "unknown_mount"),
    ("/proc/1/root/etc/passwd", Denied, "unknown_mount"),
    ("/dev/zero", Denied, "unknown_mount"),
    ("/sharedx/x.txt", Denied, "unknown_mount"),
    ("/share", Denied, "unknown_mount"),
    ("/SHARED/notes.txt", Denied, "unknown_mount"),
    ("/shared\u{200b}/notes.txt", Denied, "unknown_mount"),
    ("/\u{ff53}hared/notes.txt", Denied, "unknown_mount"),
    ("", InvalidArguments, "invalid_arguments"),
    ("/shared/notes.txt\0", InvalidArguments, "invalid_arguments"),
    ("/shared/\0/../../etc/passwd", InvalidArguments, "invalid_arguments"),
];

async fn check(setup: &FileSetup, table: Refusals) {
    for (path, kind, code) in table {
        setup.assert_refused("file_read", json!({"path": path}), *kind, code).await;
        setup.assert_refused("file_list", json!({"path": path}), *kind, code).await;
        for mode in ["create", "overwrite", "append"] {
            setup.assert_refused("file_write", writing(path, mode), *kind, code).await;
        }
    }
}

#[tokio::test]
async fn links_out_of_the_mount_are_refused_and_change_nothing() {
    check(&FileSetup::new().await, ESCAPES_BY_LINK).await;
}

#[tokio::test]
async fn names_out_of_the_mounts_are_refused_and_change_nothing() {
    check(&FileSetup::new().await, ESCAPES_BY_NAME).await;
}

#[tokio::test]
async fn a_host_path_does_not_reach_a_file_in_a_mount() {
    let setup = FileSetup::new().await;
    let host = setup.fixture.shared("notes.txt");
    let host = host.to_str().expect("UTF-8");
    // The path's first folder may be the name of a mount, such as `/tmp`. Then the path is valid, and is a
    // path in that mount.
    let answer = setup.call("file_read", json!({"path": host})).await;
    assert!(matches!(answer.error().kind(), Denied | NotFound), "{:?}", answer.error());
    for mode in ["create", "overwrite", "append"] {
        setup.call("file_write", writing(host, mode)).await;
    }
    assert_eq!(fs::read_to_string(host).expect("the file is readable"), "inside\n");
    let through_proc = format!("/proc/self/root{host}");
    setup.assert_refused("file_read", json!({"path": through_proc}), Denied, "unknown_mount").await;
    setup.assert_refused("file_write", writing(&through_proc, "overwrite"), Denied, "unknown_mount").await;
}

#[tokio::test]
async fn links_that_stay_within_the_mount_are_followed_for_reading() {
    let setup = FileSetup::new().await;
    for (path, text) in [
        ("/shared/same", "inside\n"),
        ("/shared/folder/inner.txt", "deeper\n"),
        ("/shared/folder/../notes.txt", "inside\n"),
        ("/shared/d/..//./notes.txt/", "inside\n"),
        ("//shared//.//notes.txt", "inside\n"),
        ("notes.txt", "inside\n"),
        ("./d/inner.txt/.", "deeper\n"),
    ] {
        assert_eq!(setup.call("file_read", json!({"path": path})).await.text(), text, "{path}");
    }
}

#[tokio::test]
async fn a_link_is_never_replaced_and_a_dangling_one_makes_no_file() {
    let setup = FileSetup::new().await;
    for path in ["/shared/same", "/shared/dangling_in", "/shared/loop"] {
        setup.assert_refused("file_write", writing(path, "overwrite"), Failed, "failed").await;
    }
    setup.assert_refused("file_write", writing("/shared/same", "create"), Failed, "failed").await;
    for mode in ["create", "append"] {
        let answer = setup.call("file_write", writing("/shared/dangling_in", mode)).await;
        assert!(matches!(answer.error().kind(), Denied | Failed), "{:?}", answer.error());
    }
    assert!(!setup.fixture.shared("not-there").exists());
    setup.assert_refused("file_read", json!({"path": "/shared/dangling_in"}), NotFound, "not_found").await;
    setup.assert_refused("file_read", json!({"path": "/shared/loop"}), Failed, "failed").await;
    setup.assert_refused("file_read", json!({"path": "/shared/notes.txt/x"}), Failed, "failed").await;
}

#[tokio::test]
async fn a_path_of_5_000_characters_is_refused_before_anything_opens() {
    let setup = FileSetup::new().await;
    for path in ["a".repeat(5000), format!("/shared/{}", "a/".repeat(2500)), "é".repeat(2500)] {
        setup.assert_refused("file_read", json!({"path": path}), InvalidArguments, "invalid_arguments").await;
        setup
            .assert_refused("file_write", writing(&path, "overwrite"), InvalidArguments, "invalid_arguments")
            .await;
    }
    // A path of the permitted length, with a name that is too long for any file system.
    let name = format!("/shared/{}", "a".repeat(4000));
    setup.assert_refused("file_read", json!({"path": name}), Failed, "failed").await;
    setup.assert_refused("file_write", writing(&name, "overwrite"), Failed, "failed").await;
    let deep = format!("/shared/{}x", "a/".repeat(2000));
    setup.assert_refused("file_read", json!({"path": deep}), NotFound, "not_found").await;
}

#[tokio::test]
async fn names_that_are_not_utf_8_are_listed_and_harm_nothing() {
    let setup = FileSetup::new().await;
    fs::create_dir(setup.fixture.shared("odd")).expect("a folder");
    for name in [b"bad\xff".as_slice(), b"\xc3(", b"line\nbreak", b"esc\x1b[2J"] {
        fs::write(setup.fixture.shared("odd").join(OsStr::from_bytes(name)), "x").expect("writable");
    }
    let listing = setup.call("file_list", json!({"path": "odd"})).await.text();
    assert_eq!(listing.lines().count(), 4, "one line an entry: {listing:?}");
    assert!(!listing.contains('\u{1b}'), "{listing:?}");
    assert!(listing.contains("bad\u{fffd}"), "{listing:?}");
    setup.assert_refused("file_read", json!({"path": "odd/bad\u{fffd}"}), NotFound, "not_found").await;
    let half = "{\"path\": \"odd/bad\\udcff\"}";
    let call = portcullis_tools::new_call("file_read", half);
    let answer = portcullis_testing::CallOutcome(
        setup.registry.execute_with_policy(call, &portcullis_testing::approving_caller()).await,
    );
    answer.assert_refused(InvalidArguments, "invalid_arguments");
}

#[tokio::test]
async fn the_vault_is_readable_by_readers_and_never_writable() {
    let setup = FileSetup::new().await;
    assert_eq!(setup.call("file_read", json!({"path": "/vault/secret.txt"})).await.text(), IN_VAULT);
    assert_eq!(setup.call("file_list", json!({"path": "/vault"})).await.text(), "secret.txt");
    for path in
        ["/vault/secret.txt", "/vault/new.txt", "/vault/new/er.txt", "/vault//./secret.txt/", "/vault"]
    {
        for mode in ["create", "overwrite", "append"] {
            let message =
                setup.assert_refused("file_write", writing(path, mode), Denied, "mount_not_granted").await;
            assert!(message.ends_with("(writable here: /shared, /tmp)"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_read_only_profile_keeps_a_writing_tool_from_its_mounts() {
    let fixture = Fixture::new().with_policy("[tools.file_write]\nprofile = \"WorkspaceRead\"");
    let setup = FileSetup::with_fixture(fixture).await;
    for path in ["/shared/notes.txt", "/shared/new.txt", "/tmp/new.txt"] {
        for mode in ["create", "overwrite", "append"] {
            setup.assert_refused("file_write", writing(path, mode), Denied, "mount_read_only").await;
        }
    }
    setup.assert_refused("file_write", writing("/vault/x", "create"), Denied, "mount_not_granted").await;
}

#[tokio::test]
async fn a_profile_without_mounts_reaches_nothing() {
    let setup = FileSetup::with_fixture(Fixture::new().with_policy_edit(
        "[tools.file_read]                  # per tool: profile, approval, timeout, memory, max_output_bytes, enabled\nprofile = \"FileReadOnly\"",
        "[tools.file_read]\nprofile = \"Nothing\"",
    ))
    .await;
    for path in ["/shared/notes.txt", "notes.txt", "/tmp", "/vault/secret.txt", "/shared/passwd"] {
        let message =
            setup.assert_refused("file_read", json!({"path": path}), Denied, "mount_not_granted").await;
        assert!(message.contains("nothing is readable for this tool"), "{message}");
    }
}
