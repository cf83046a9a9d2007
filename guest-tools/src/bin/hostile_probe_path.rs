//! Hostile guest: tries any operation on any path. The policy does not see its arguments as paths.

use std::{
    fs::{self, File, OpenOptions},
    io,
};

use portcullis_sdk::tool;

/// Tries an operation and returns the result: `ok: …`, or `error: …` with the system's message.
#[tool]
async fn probe_path(
    #[arg(one_of(
        "read", "write", "append", "truncate", "create", "exists", "stat", "lstat", "list", "mkdir", "rmdir",
        "remove", "rename", "link", "symlink", "readlink", "touch"
    ))]
    op: &str,
    path: &str,
    /// The second path, where the operation has one.
    #[arg(default = "")]
    to: &str,
    /// The text to write.
    #[arg(default = "hostile")]
    content: &str,
) -> String {
    match probe(op, path, to, content) {
        Ok(text) => format!("ok: {text}"),
        Err(error) => format!("error: {error}"),
    }
}

fn probe(op: &str, path: &str, to: &str, content: &str) -> io::Result<String> {
    let done = |()| "done".to_owned();
    match op {
        "read" => fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        "write" => fs::write(path, content).map(done),
        "append" => {
            use io::Write;
            OpenOptions::new().append(true).open(path)?.write_all(content.as_bytes()).map(done)
        }
        // The open is enough, because the open itself does the damage.
        "truncate" => OpenOptions::new().write(true).truncate(true).open(path).map(|_| done(())),
        "create" => File::create_new(path).map(|_| done(())),
        "exists" => fs::exists(path).map(|exists| exists.to_string()),
        "stat" => fs::metadata(path).map(|found| format!("{:?}, {} bytes", found.file_type(), found.len())),
        "lstat" => {
            fs::symlink_metadata(path).map(|found| format!("{:?}, {} bytes", found.file_type(), found.len()))
        }
        "list" => {
            let mut names = Vec::new();
            for entry in fs::read_dir(path)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort_unstable();
            Ok(names.join(" "))
        }
        "mkdir" => fs::create_dir(path).map(done),
        "rmdir" => fs::remove_dir(path).map(done),
        "remove" => fs::remove_file(path).map(done),
        "rename" => fs::rename(path, to).map(done),
        "link" => fs::hard_link(path, to).map(done),
        "symlink" => symlink(path, to).map(done),
        "readlink" => fs::read_link(path).map(|to| to.display().to_string()),
        "touch" => {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_times(fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH)).map(done)
        }
        other => Err(io::Error::new(io::ErrorKind::Unsupported, other.to_owned())),
    }
}

/// Creates a link at `to` that leads to `path`.
#[cfg(unix)]
fn symlink(path: &str, to: &str) -> io::Result<()> {
    std::os::unix::fs::symlink(path, to)
}

/// Creates a link at `to` that leads to `path`. The standard library has no stable function for this on WASI.
#[cfg(target_os = "wasi")]
#[expect(unsafe_code, reason = "WASI's own call, which the standard library does not offer yet")]
fn symlink(path: &str, to: &str) -> io::Result<()> {
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        fn path_symlink(
            old: *const u8,
            old_len: usize,
            directory: u32,
            new: *const u8,
            new_len: usize,
        ) -> u32;
    }
    /// The first preopened directory, which is `/shared` if that is mounted.
    const FIRST_PREOPEN: u32 = 3;
    let new = to.strip_prefix("/shared/").unwrap_or(to);
    // SAFETY: both pointers come with the lengths of live strings, and the host only reads them.
    let code = unsafe { path_symlink(path.as_ptr(), path.len(), FIRST_PREOPEN, new.as_ptr(), new.len()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(-1))) }
}

portcullis_sdk::export_tools![probe_path];
