//! The write step: receives bytes into a file beside the destination, and renames this file to the destination when it
//! is complete.
//!
//! The host chooses the name of the temporary file, so that another call can remove the file if this call is killed.

use std::{
    fs::{File, Metadata},
    io::{self, Write},
};

use portcullis_sdk::{
    GuestPath, ToolContext, ToolError,
    fs::{
        self,
        replace::{
            Replacement, create_new, discard, keep_mode, regular_file_metadata, retry_with_parents,
            temporary_path,
        },
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
    let temporary = temporary_path(&target, bits);
    if action == "clean_up" {
        return match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(fs::tool_error(error, "clean up", &path))
            }
            _gone => Ok(format!("no temporary file of {path} remains")),
        };
    }
    // Wait for the first chunk before anything is created: a missing source must not create directories.
    let first_chunk = transfer::receive(ctx)?;
    let metadata_before = regular_file_metadata(&target, Replacement::Write, &path)?;
    let write_error = |error| fs::tool_error(error, "write", &path);
    let file = retry_with_parents(&target, || create_new(&temporary)).map_err(write_error)?;
    write(ctx, file, first_chunk, metadata_before.as_ref(), &path)
        .and_then(|bytes| {
            std::fs::rename(&temporary, &target).map_err(write_error)?;
            Ok(format!("wrote {bytes} bytes to {path}"))
        })
        .inspect_err(|_| discard(&temporary))
}

/// Writes all received bytes to a file, and syncs the file to the disk before the rename.
fn write(
    ctx: &ToolContext,
    mut file: File,
    first_chunk: Option<Vec<u8>>,
    metadata_before: Option<&Metadata>,
    path: &GuestPath,
) -> Result<u64, ToolError> {
    let write_error = |error| fs::tool_error(error, "write", path);
    keep_mode(&file, metadata_before).map_err(write_error)?;
    let mut bytes = 0;
    let mut next_chunk = first_chunk;
    while let Some(chunk) = next_chunk {
        file.write_all(&chunk).map_err(write_error)?;
        bytes += chunk.len() as u64;
        next_chunk = transfer::receive(ctx)?;
    }
    file.sync_all().map_err(write_error)?;
    Ok(bytes)
}
