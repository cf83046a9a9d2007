//! Special files, and files that would fill disk or memory.

use std::{
    fs::{self, File},
    os::unix::{fs::symlink, net::UnixListener},
};

use portcullis_types::ToolErrorKind::{Denied, Failed, InvalidArguments};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::{FileSetup, writing};

#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_immediately() {
    let setup = FileSetup::new().await;
    let shared = |name: &str| setup.fixture.shared(name);
    mknodat(CWD, shared("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let _listener = UnixListener::bind(shared("socket")).expect("a socket");
    let mut names = vec!["pipe", "socket", "to_pipe", "d/to_socket"];
    symlink("pipe", shared("to_pipe")).expect("a link");
    symlink("../socket", shared("d/to_socket")).expect("a link");
    // Only root can make devices. Number 1:5 is /dev/zero.
    let device = rustix::fs::makedev(1, 5);
    if mknodat(CWD, shared("zero"), FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device).is_ok() {
        names.push("zero");
    }
    for name in names {
        let path = format!("/shared/{name}");
        setup.assert_refused("file_read", json!({"path": path}), Denied, "special_file").await;
        setup.assert_refused("file_list", json!({"path": path}), Denied, "special_file").await;
        for mode in ["create", "overwrite", "append"] {
            setup.assert_refused("file_write", writing(&path, mode), Denied, "special_file").await;
        }
    }
    let listing = setup.call("file_list", json!({})).await.text();
    assert!(listing.lines().any(|line| line == "pipe?") && listing.lines().any(|line| line == "socket?"));
}

#[tokio::test]
async fn a_folder_is_not_a_file_and_a_file_is_not_a_folder() {
    let setup = FileSetup::new().await;
    setup.assert_refused("file_read", json!({"path": "/shared"}), Failed, "failed").await;
    setup.assert_refused("file_read", json!({"path": "d"}), Failed, "failed").await;
    setup.assert_refused("file_list", json!({"path": "notes.txt"}), Failed, "failed").await;
    for mode in ["create", "overwrite", "append"] {
        setup.assert_refused("file_write", writing("/shared/d", mode), Failed, "failed").await;
        setup.assert_refused("file_write", writing("/shared/notes.txt/below", mode), Failed, "failed").await;
        let error = setup.call("file_write", writing("/shared", mode)).await;
        assert!(matches!(error.error().kind(), Failed | InvalidArguments | Denied), "{:?}", error.error());
    }
}

#[tokio::test]
async fn a_write_over_the_argument_limit_leaves_the_disk_unchanged() {
    let setup = FileSetup::new().await;
    let content = "x".repeat(2 << 20);
    for mode in ["create", "overwrite", "append"] {
        let arguments = json!({"path": "big.txt", "content": content, "mode": mode});
        setup.assert_refused("file_write", arguments, InvalidArguments, "invalid_arguments").await;
    }
}

#[tokio::test]
async fn a_sparse_file_of_ten_gigabytes_is_read_in_bounded_memory() {
    let setup = FileSetup::new().await;
    File::create(setup.fixture.shared("sparse")).expect("a file").set_len(10 << 30).expect("sparse");
    let answer = setup.call("file_read", json!({"path": "sparse"})).await;
    assert!(answer.0.truncated);
    assert!(answer.text().len() < 20_000, "{}", answer.text().len());
    let row = setup.fixture.rows().pop().expect("a row");
    assert!(row.peak_memory.is_some_and(|bytes| bytes <= 64 << 20), "{row:?}");
    // The output that is stored for paging is also bounded.
    let stored: u64 = fs::read_dir(setup.fixture.state().join("outputs"))
        .expect("a store")
        .map(|entry| entry.expect("readable").metadata().expect("the file has metadata").len())
        .sum();
    assert!(stored <= 17 << 20, "{stored} bytes are stored");
    let end = setup.call("file_read", json!({"path": "sparse", "byte_offset": (10_u64 << 30) - 3})).await;
    assert_eq!(end.text(), "\0\0\0");
}
