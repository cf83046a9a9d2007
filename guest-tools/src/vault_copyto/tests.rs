//! Tests of both steps as native code, on a folder in place of the mounts.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::{Arc, Mutex},
};

use portcullis_sdk::{
    DeclaredTool, MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES, ToolContext, ToolError, ToolErrorKind, testing,
    transfer::{TransferReceiver, TransferSender},
};

use super::{vault_copyto_read_tool, vault_copyto_write_tool};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for mount in ["vault", "shared"] {
        fs::create_dir(folder.path().join(mount)).expect("a mount");
    }
    fs::write(folder.path().join("shared/old"), "old").expect("a file");
    folder
}

fn run(
    root: &Path,
    ctx: &ToolContext,
    tool: &dyn DeclaredTool,
    arguments: &str,
) -> Result<String, ToolError> {
    let output = testing::with_root(root, || testing::call_in(ctx, tool, arguments));
    output.map(|output| output.joined_text())
}

/// The answer of the read step, with the chunks that it sends. The host accepts `room` chunks.
fn read(root: &Path, path: &str, room: usize) -> (Result<String, ToolError>, Vec<Vec<u8>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let mut ctx = ToolContext::detached("vault_copyto_read");
    let sink = Arc::clone(&sent);
    ctx.extensions.insert(TransferSender::new(move |chunk| {
        let mut sent = sink.lock().expect("not poisoned");
        if sent.len() == room {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        sent.push(chunk.to_vec());
        Ok(())
    }));
    let arguments = format!(r#"{{"source_path":"{path}"}}"#);
    let answer = run(root, &ctx, &vault_copyto_read_tool(), &arguments);
    let sent = sent.lock().expect("not poisoned").clone();
    (answer, sent)
}

/// The answer of the write step to this input.
fn write(root: &Path, path: &str, input: &[u8]) -> Result<String, ToolError> {
    let mut ctx = ToolContext::detached("vault_copyto_write");
    ctx.extensions.insert(TransferReceiver::new(io::Cursor::new(input.to_vec())));
    let arguments = format!(r#"{{"destination_path":"{path}","temporary":"00ff"}}"#);
    run(root, &ctx, &vault_copyto_write_tool(), &arguments)
}

fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("shared")).expect("a mount");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn any_bytes_are_sent_in_chunks() {
    let folder = folder();
    let bytes: Vec<u8> = (0..=250).cycle().take(MAX_CHUNK_BYTES + 3).collect();
    fs::write(folder.path().join("vault/key"), &bytes).expect("writes");
    let (answer, sent) = read(folder.path(), "/vault/key", 9);
    assert_eq!(answer, Ok(format!("read {} bytes from /vault/key", bytes.len())));
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_CHUNK_BYTES, 3]);
    assert_eq!(sent.concat(), bytes);
    fs::write(folder.path().join("vault/empty"), "").expect("writes");
    assert_eq!(
        read(folder.path(), "/vault/empty", 0),
        (Ok("read 0 bytes from /vault/empty".to_owned()), vec![])
    );
}

#[test]
fn read_or_send_error_is_reported() {
    let folder = folder();
    let vault = folder.path().join("vault");
    fs::create_dir(vault.join("d")).expect("a directory");
    fs::write(vault.join("two"), vec![b'x'; MAX_CHUNK_BYTES + 1]).expect("writes");
    fs::File::create(vault.join("large"))
        .and_then(|file| file.set_len(MAX_TRANSFER_BYTES + 1))
        .expect("a sparse file");
    for (path, room, kind, message) in [
        ("/vault/none", 9, ToolErrorKind::NotFound, "no such file `/vault/none`"),
        ("/vault/d", 9, ToolErrorKind::Failed, "`/vault/d` is a directory: only a file can be copied"),
        (
            "/vault/large",
            9,
            ToolErrorKind::Failed,
            "`/vault/large` has more than 268435456 bytes, which is the most that is copied",
        ),
        ("/vault/two", 1, ToolErrorKind::Failed, "the transfer broke off"),
    ] {
        let (answer, sent) = read(folder.path(), path, room);
        let error = answer.expect_err(path);
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
        assert_eq!(sent.len(), room % 9);
    }
}

#[test]
fn received_file_replaces_the_destination_whole() {
    let folder = folder();
    let shared = folder.path().join("shared");
    fs::set_permissions(shared.join("old"), fs::Permissions::from_mode(0o640)).expect("a mode");
    let input = b"{\"chunk\":3}\na\n\0{\"chunk\":1}\nb{\"end\":4}\n";
    assert_eq!(write(folder.path(), "old", input), Ok("wrote 4 bytes to /shared/old".to_owned()));
    assert_eq!(fs::read(shared.join("old")).expect("reads"), b"a\n\0b");
    assert_eq!(
        fs::metadata(shared.join("old")).expect("the path exists").permissions().mode() & 0o777,
        0o640
    );
    let empty = write(folder.path(), "/shared/a/b", b"{\"end\":0}\n");
    assert_eq!(empty, Ok("wrote 0 bytes to /shared/a/b".to_owned()));
    assert_eq!(fs::read(shared.join("a/b")).expect("reads"), b"");
    assert_eq!(names(folder.path()), ["a", "old"]);
}

#[test]
fn an_input_without_its_end_leaves_everything_as_it_was() {
    for input in [&b""[..], b"{\"chunk\":1}\nx", b"{\"chunk\":1}\nx{\"chunk\":2}\ny", b"{\"end\":1}\n"] {
        let folder = folder();
        let error = write(folder.path(), "old", input).expect_err("breaks off");
        assert_eq!(error.to_string(), "the transfer broke off");
        assert_eq!(fs::read(folder.path().join("shared/old")).expect("reads"), b"old");
        assert_eq!(names(folder.path()), ["old"]);
    }
    let folder = folder();
    write(folder.path(), "new/file", b"").expect_err("breaks off");
    assert_eq!(names(folder.path()), ["old"], "no directory is made for nothing");
}

#[test]
fn write_error_is_reported_and_leaves_no_file() {
    let input = b"{\"chunk\":1}\nx{\"end\":1}\n";
    for (path, message) in [
        ("/shared", "cannot write `/shared`: it is a directory"),
        ("link", "cannot write `/shared/link`: it is a symbolic link: write to its target"),
        ("old/x", "cannot write `/shared/old/x`: a part of it is a file"),
        ("a/..", "field 'destination_path': `/shared/a/..` names no file"),
    ] {
        let folder = folder();
        symlink("old", folder.path().join("shared/link")).expect("a link");
        let error = write(folder.path(), path, input).expect_err(path);
        assert_eq!(error.to_string(), message);
        assert_eq!(names(folder.path()), ["link", "old"]);
        assert_eq!(fs::read(folder.path().join("shared/old")).expect("reads"), b"old");
    }
}

#[test]
fn clean_up_removes_only_the_killed_steps_file() {
    let folder = folder();
    let leftover = folder.path().join("shared/.portcullis-tmp-00000000000000ff");
    let other = folder.path().join("shared/.portcullis-tmp-0000000000000100");
    for path in [&leftover, &other] {
        fs::write(path, "part").expect("writes");
    }
    let clean_up = |path: &str| {
        let arguments = format!(r#"{{"destination_path":"{path}","temporary":"ff","action":"clean_up"}}"#);
        let ctx = ToolContext::detached("vault_copyto_write");
        run(folder.path(), &ctx, &vault_copyto_write_tool(), &arguments)
    };
    for _ in 0..2 {
        assert_eq!(clean_up("old"), Ok("no temporary file of /shared/old remains".to_owned()));
    }
    assert_eq!(clean_up("none/x"), Ok("no temporary file of /shared/none/x remains".to_owned()));
    assert!(!leftover.exists() && other.exists());
    assert_eq!(fs::read(folder.path().join("shared/old")).expect("reads"), b"old");
}
