//! The write step: receives bytes into a file beside the destination, and renames it to the destination when
//! it is complete.
//!
//! The host chooses the file's name, so that a further call can remove the file if this one was killed.

use std::{
    fs::{File, Metadata},
    io::{self, Write},
};

use portcullis_sdk::{
    GuestPath, ToolContext, ToolError,
    fs::{
        self,
        replace::{beside, create_new, discard, keep_mode, regular, with_parents},
    },
    tool, transfer,
};

/// Writes what the read step sends. A step of `vault_copyto`.
#[tool(tier = SideEffecting, timeout = "30s", profile = VaultWrite, deny_unknown)]
pub async fn vault_copyto_write(
    ctx: &ToolContext,
    /// The file, such as `/shared/key.pem`. Missing parent directories are made.
    #[arg(path = "write")]
    destination_path: &str,
    /// The temporary file's own part of its name: up to 16 hexadecimal digits.
    temporary: &str,
    /// Whether to write the file, or to remove the temporary one that a killed call left.
    #[arg(default = "write", one_of("write", "clean_up"))]
    action: &str,
) -> Result<String, ToolError> {
    let path = fs::parse(destination_path)?;
    let target = fs::locate(&path)?;
    if target.file_name().is_none() {
        let message = format!("field 'destination_path': `{path}` names no file");
        return Err(ToolError::invalid_arguments(message));
    }
    let bits = u64::from_str_radix(temporary, 16).map_err(|_not_a_number| {
        ToolError::invalid_arguments("field 'temporary': it must be a hexadecimal number")
    })?;
    let temporary = beside(&target, bits);
    if action == "clean_up" {
        return match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fs::error(error, "clean up", &path)),
            _gone => Ok(format!("nothing temporary is left of {path}")),
        };
    }
    // Wait for the first chunk before touching anything: a missing source must not create directories.
    let first = transfer::receive(ctx)?;
    let before = regular(&target, "write", &path)?;
    let failed = |error| fs::error(error, "write", &path);
    let file = with_parents(&target, || create_new(&temporary)).map_err(failed)?;
    write(ctx, file, first, before.as_ref(), &path)
        .and_then(|bytes| {
            std::fs::rename(&temporary, &target).map_err(failed)?;
            Ok(format!("wrote {bytes} bytes to {path}"))
        })
        .inspect_err(|_| discard(&temporary))
}

/// Writes all received bytes to a file, and syncs it to the disk before it is renamed.
fn write(
    ctx: &ToolContext,
    mut file: File,
    first: Option<Vec<u8>>,
    before: Option<&Metadata>,
    path: &GuestPath,
) -> Result<u64, ToolError> {
    let failed = |error| fs::error(error, "write", path);
    keep_mode(&file, before).map_err(failed)?;
    let mut bytes = 0;
    let mut next = first;
    while let Some(chunk) = next {
        file.write_all(&chunk).map_err(failed)?;
        bytes += chunk.len() as u64;
        next = transfer::receive(ctx)?;
    }
    file.sync_all().map_err(failed)?;
    Ok(bytes)
}
