//! The WASI functions that replace the stock ones. They read the guest's arguments, ask [`GuestFs`], and forward the
//! call only if it is allowed.
//!
//! Only this file calls functions that wasmtime-wasi documents as internal. The version of wasmtime-wasi is pinned for
//! that reason.

use futures_util::FutureExt as _;
use wasmtime::{Caller, Error, Extern, Linker, Memory, Result};
use wasmtime_wasi::{
    I32Exit,
    p1::wasi_snapshot_preview1::{self as stock, WasiSnapshotPreview1},
};
use wiggle::GuestMemory;

use super::{
    fs::{Descriptor, GuestFs, NameChange, OpenIntent, Touch},
    fs_result::{Errno, FsResult},
    guest::GuestState,
    memory::{array, as_unsigned, slice, slice_mut, text, write_bytes},
    poll::{self, Subscriptions},
    streams::{read_stream, write_stream},
};

const MODULE: &str = "wasi_snapshot_preview1";

/// Bits of `$lookupflags`, `$oflags` and `$rights` in `wasi_snapshot_preview1.witx`.
const LOOKUP_SYMLINK_FOLLOW: i32 = 1;
const OPEN_CREATE: i32 = 1;
const OPEN_TRUNCATE: i32 = 8;
const RIGHT_FD_WRITE: i64 = 1 << 6;

/// Forwards to the stock function of the same name.
macro_rules! forward {
    ($caller:ident, $function:ident, $($argument:expr),+) => {{
        let (memory, state, fuel) = parts(&mut $caller)?;
        state.wasi.set_hostcall_fuel(fuel);
        let mut memory = GuestMemory::Unshared(memory);
        // These functions never return `Pending`: file operations block the thread, and standard input is
        // complete or served by `streams`.
        stock::$function(&mut state.wasi, &mut memory, $($argument),+)
            .now_or_never()
            .unwrap_or_else(|| Err(Error::msg("a function of the host would wait")))
    }};
}

/// Judges a call before it is forwarded. The expression gets the file layer and the guest's memory. If the
/// expression returns an error number, that is the call's result.
macro_rules! judge {
    ($caller:ident, |$fs:ident, $memory:ident| $question:expr) => {{
        let (memory, state, _) = parts(&mut $caller)?;
        let $memory: &[u8] = memory;
        let $fs = &mut state.fs;
        match (|| -> FsResult<_> { $question })() {
            Ok(answer) => answer,
            Err(errno) => return Ok(errno.0),
        }
    }};
}

/// Records operations on names for the audit row, if the forwarded call succeeded. Returns the call's error
/// number.
macro_rules! record_touch {
    ($caller:ident, $errno:expr, $(($fd:ident, $path:ident, $len:ident) => $touch:ident),+) => {{
        let errno = $errno?;
        if errno == Errno::SUCCESS.0 {
            let (memory, state, _) = parts(&mut $caller)?;
            $(if let Ok(path) = text(memory, $path, $len) {
                state.fs.record_touch(as_unsigned($fd), path, Touch::$touch);
            })+
        }
        Ok(errno)
    }};
}

/// Defines all functions of WASI preview 1: first the stock functions, then the functions of this file, which shadow
/// them.
pub(super) fn add_to_linker(linker: &mut Linker<GuestState>) -> Result<()> {
    wasmtime_wasi::p1::add_to_linker_sync(linker, |state| &mut state.wasi)?;
    linker.allow_shadowing(true);
    add_path_open(linker)?;
    add_path_reads(linker)?;
    add_name_changes(linker)?;
    add_rename(linker)?;
    add_links(linker)?;
    add_descriptors(linker)?;
    add_poll(linker)?;
    add_fast_paths(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn add_path_open(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_open",
        |mut caller: Caller<'_, GuestState>,
         fd: i32,
         dirflags: i32,
         path: i32,
         path_len: i32,
         oflags: i32,
         rights: i64,
         inheriting: i64,
         fdflags: i32,
         out: i32|
         -> Result<i32> {
            let create = oflags & OPEN_CREATE != 0;
            let intent = OpenIntent {
                follow: dirflags & LOOKUP_SYMLINK_FOLLOW != 0,
                create,
                // Creating or truncating a file changes it, even without the right to write.
                writes: create || oflags & OPEN_TRUNCATE != 0 || rights & RIGHT_FD_WRITE != 0,
            };
            let target = judge!(caller, |fs, memory| fs.judge_open(
                as_unsigned(fd),
                text(memory, path, path_len)?,
                intent
            ));
            // The stock function resolves the path again, and another process may have exchanged the file
            // since. The open still stays in the mount (SECURITY.md, "The race before an open").
            let errno = forward!(
                caller, path_open, fd, dirflags, path, path_len, oflags, rights, inheriting, fdflags, out
            )?;
            if errno == Errno::SUCCESS.0 {
                let (memory, state, _) = parts(&mut caller)?;
                let opened = u32::from_le_bytes(array(memory, out).map_err(lost_memory_error)?);
                state.fs.record_opened(opened, target);
            }
            Ok(errno)
        },
    )?;
    Ok(())
}

fn add_path_reads(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_filestat_get",
        |mut caller: Caller<'_, GuestState>,
         fd: i32,
         flags: i32,
         path: i32,
         len: i32,
         out: i32|
         -> Result<i32> {
            judge!(caller, |fs, memory| {
                let follow = flags & LOOKUP_SYMLINK_FOLLOW != 0;
                fs.judge_read_only(as_unsigned(fd), text(memory, path, len)?, follow)
            });
            forward!(caller, path_filestat_get, fd, flags, path, len, out)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_readlink",
        |mut caller: Caller<'_, GuestState>,
         fd: i32,
         path: i32,
         len: i32,
         buffer: i32,
         room: i32,
         out: i32|
         -> Result<i32> {
            judge!(caller, |fs, memory| fs.judge_read_only(as_unsigned(fd), text(memory, path, len)?, false));
            forward!(caller, path_readlink, fd, path, len, buffer, room, out)
        },
    )?;
    Ok(())
}

fn add_name_changes(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_create_directory",
        |mut caller: Caller<'_, GuestState>, fd: i32, path: i32, len: i32| -> Result<i32> {
            judge!(caller, |fs, memory| fs.judge_name_change(
                as_unsigned(fd),
                text(memory, path, len)?,
                NameChange::Entry
            ));
            let errno = forward!(caller, path_create_directory, fd, path, len);
            record_touch!(caller, errno, (fd, path, len) => Created)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_remove_directory",
        |mut caller: Caller<'_, GuestState>, fd: i32, path: i32, len: i32| -> Result<i32> {
            judge!(caller, |fs, memory| fs.judge_name_change(
                as_unsigned(fd),
                text(memory, path, len)?,
                NameChange::Entry
            ));
            let errno = forward!(caller, path_remove_directory, fd, path, len);
            record_touch!(caller, errno, (fd, path, len) => Removed)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_unlink_file",
        |mut caller: Caller<'_, GuestState>, fd: i32, path: i32, len: i32| -> Result<i32> {
            // The name can be a file or symlink that leads to a repository, so the stricter rule applies.
            judge!(caller, |fs, memory| fs.judge_name_change(
                as_unsigned(fd),
                text(memory, path, len)?,
                NameChange::Subtree
            ));
            let errno = forward!(caller, path_unlink_file, fd, path, len);
            record_touch!(caller, errno, (fd, path, len) => Removed)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_filestat_set_times",
        |mut caller: Caller<'_, GuestState>,
         fd: i32,
         flags: i32,
         path: i32,
         len: i32,
         atim: i64,
         mtim: i64,
         which: i32|
         -> Result<i32> {
            judge!(caller, |fs, memory| {
                let path = text(memory, path, len)?;
                let follow = flags & LOOKUP_SYMLINK_FOLLOW != 0;
                fs.judge_name_change(as_unsigned(fd), path, NameChange::Entry)?;
                fs.judge_existing_target(as_unsigned(fd), path, follow)?;
                fs.judge_change_in_place(as_unsigned(fd), path, follow)
            });
            let errno = forward!(caller, path_filestat_set_times, fd, flags, path, len, atim, mtim, which);
            record_touch!(caller, errno, (fd, path, len) => Written)
        },
    )?;
    Ok(())
}

fn add_rename(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_rename",
        |mut caller: Caller<'_, GuestState>,
         from_fd: i32,
         from: i32,
         from_len: i32,
         to_fd: i32,
         to: i32,
         to_len: i32|
         -> Result<i32> {
            let saved_permissions = judge!(caller, |fs, memory| {
                // Moving content away from a protected path would end its protection.
                let (from, to) = (text(memory, from, from_len)?, text(memory, to, to_len)?);
                fs.judge_name_change(as_unsigned(from_fd), from, NameChange::Subtree)?;
                fs.judge_name_change(as_unsigned(to_fd), to, NameChange::Subtree)?;
                fs.record_arrival((as_unsigned(from_fd), from), (as_unsigned(to_fd), to))?;
                fs.copy_permissions((as_unsigned(from_fd), from), (as_unsigned(to_fd), to))
            });
            let errno = forward!(caller, path_rename, from_fd, from, from_len, to_fd, to, to_len)?;
            if errno != Errno::SUCCESS.0
                && let Some(saved_permissions) = saved_permissions
            {
                saved_permissions.restore();
            }
            record_touch!(caller, Ok::<_, Error>(errno), (from_fd, from, from_len) => Removed, (to_fd, to, to_len) => Created)
        },
    )?;
    Ok(())
}

fn add_links(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_link",
        |mut caller: Caller<'_, GuestState>,
         from_fd: i32,
         flags: i32,
         from: i32,
         from_len: i32,
         to_fd: i32,
         to: i32,
         to_len: i32|
         -> Result<i32> {
            judge!(caller, |fs, memory| {
                let from = text(memory, from, from_len)?;
                // A hard link to a protected file would let the guest write the file under its second name.
                fs.judge_name_change(as_unsigned(from_fd), from, NameChange::Subtree)?;
                fs.judge_existing_target(as_unsigned(from_fd), from, flags & LOOKUP_SYMLINK_FOLLOW != 0)?;
                fs.judge_hard_link(as_unsigned(from_fd), as_unsigned(to_fd))?;
                fs.judge_name_change(as_unsigned(to_fd), text(memory, to, to_len)?, NameChange::Subtree)
            });
            let errno = forward!(caller, path_link, from_fd, flags, from, from_len, to_fd, to, to_len);
            record_touch!(caller, errno, (to_fd, to, to_len) => Created)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_symlink",
        |mut caller: Caller<'_, GuestState>,
         target: i32,
         target_len: i32,
         fd: i32,
         link: i32,
         link_len: i32|
         -> Result<i32> {
            judge!(caller, |fs, memory| {
                let link = text(memory, link, link_len)?;
                fs.judge_symlink_target(as_unsigned(fd), text(memory, target, target_len)?, link)?;
                fs.judge_name_change(as_unsigned(fd), link, NameChange::Subtree)
            });
            let errno = forward!(caller, path_symlink, target, target_len, fd, link, link_len);
            record_touch!(caller, errno, (fd, link, link_len) => Created)
        },
    )?;
    Ok(())
}

fn add_descriptors(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(MODULE, "fd_close", |mut caller: Caller<'_, GuestState>, fd: i32| -> Result<i32> {
        let errno = forward!(caller, fd_close, fd)?;
        if errno == Errno::SUCCESS.0 {
            caller.data_mut().fs.record_closed(as_unsigned(fd));
        }
        Ok(errno)
    })?;
    linker.func_wrap(
        MODULE,
        "fd_renumber",
        |mut caller: Caller<'_, GuestState>, from: i32, to: i32| -> Result<i32> {
            let errno = forward!(caller, fd_renumber, from, to)?;
            if errno == Errno::SUCCESS.0 {
                caller.data_mut().fs.record_renumbered(as_unsigned(from), as_unsigned(to));
            }
            Ok(errno)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_set_times",
        |mut caller: Caller<'_, GuestState>, fd: i32, atim: i64, mtim: i64, which: i32| -> Result<i32> {
            let verdict = caller.data_mut().fs.judge_set_times(as_unsigned(fd));
            if let Err(errno) = verdict {
                return Ok(errno.0);
            }
            forward!(caller, fd_filestat_set_times, fd, atim, mtim, which)
        },
    )?;
    // The stock function treats an exit code above 125 as a host error. This one accepts every code.
    linker.func_wrap(MODULE, "proc_exit", |code: i32| Err::<(), _>(Error::new(I32Exit(code))))?;
    linker.func_wrap(
        MODULE,
        "fd_write",
        |mut caller: Caller<'_, GuestState>, fd: i32, vectors: i32, count: i32, out: i32| -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            match state.fs.descriptor(as_unsigned(fd)) {
                Some(Descriptor::Stdout | Descriptor::Stderr) => {
                    write_stream(memory, state, fd, vectors, count, out)
                }
                _ => forward!(caller, fd_write, fd, vectors, count, out),
            }
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_readdir",
        |mut caller: Caller<'_, GuestState>, fd: i32, buffer: i32, len: i32, cookie: i64, out: i32| {
            let (memory, state, _) = parts(&mut caller)?;
            Ok::<_, Error>(match read_directory(memory, &mut state.fs, fd, buffer, len, cookie, out) {
                Ok(()) => Errno::SUCCESS.0,
                Err(errno) => errno.0,
            })
        },
    )?;
    Ok(())
}

fn add_poll(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "poll_oneoff",
        |mut caller: Caller<'_, GuestState>,
         subscriptions_ptr: i32,
         events: i32,
         count: i32,
         out: i32|
         -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            let clock = state.started_at.elapsed();
            let control = std::sync::Arc::clone(&state.control);
            let subscriptions = poll::subscriptions_bytes(as_unsigned(count))
                .and_then(|bytes| slice(memory, subscriptions_ptr, bytes))
                .and_then(|bytes| Subscriptions::parse(bytes, clock));
            let subscriptions = match subscriptions {
                Ok(subscriptions) => subscriptions,
                Err(errno) => return Ok(errno.0),
            };
            let ready = subscriptions.wait(&control).map_err(Error::new)?;
            let (memory, _, _) = parts(&mut caller)?;
            let mut at = as_unsigned(events);
            for event in &ready {
                if write_bytes(memory, at, event).is_err() {
                    return Ok(Errno::FAULT.0);
                }
                at = at.saturating_add(u32::try_from(event.len()).unwrap_or(u32::MAX));
            }
            let count = u32::try_from(ready.len()).unwrap_or(u32::MAX);
            Ok(write_bytes(memory, as_unsigned(out), &count.to_le_bytes())
                .map_or_else(|errno| errno.0, |()| 0))
        },
    )?;
    Ok(())
}

/// Defines functions that every file tool calls. They avoid the stock path's cost of entering a runtime.
fn add_fast_paths(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_read",
        |mut caller: Caller<'_, GuestState>, fd: i32, vectors: i32, count: i32, out: i32| -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            match (&state.transfer_input, state.fs.descriptor(as_unsigned(fd))) {
                (Some(_), Some(Descriptor::Stdin)) => read_stream(memory, state, vectors, count, out),
                _ => forward!(caller, fd_read, fd, vectors, count, out),
            }
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |mut caller: Caller<'_, GuestState>, fd: i32, offset: i64, whence: i32, out: i32| -> Result<i32> {
            forward!(caller, fd_seek, fd, offset, whence, out)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_get",
        |mut caller: Caller<'_, GuestState>, fd: i32, out: i32| -> Result<i32> {
            forward!(caller, fd_fdstat_get, fd, out)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_get",
        |mut caller: Caller<'_, GuestState>, fd: i32, out: i32| -> Result<i32> {
            forward!(caller, fd_filestat_get, fd, out)
        },
    )?;
    Ok(())
}

fn read_directory(
    memory: &mut [u8],
    fs: &mut GuestFs,
    fd: i32,
    buffer: i32,
    len: i32,
    cookie: i64,
    out: i32,
) -> FsResult {
    let cursor = fs.cursor(as_unsigned(fd))?;
    let target = slice_mut(memory, as_unsigned(buffer), as_unsigned(len))?;
    let filled = cursor.read(cookie.cast_unsigned(), target).map_err(|_cause| Errno::IO)?;
    let filled = u32::try_from(filled).map_err(|_cause| Errno::INVAL)?;
    write_bytes(memory, as_unsigned(out), &filled.to_le_bytes())
}

/// Returns the guest's memory, the call's state, and the limit on the bytes that host functions may copy.
pub(super) fn parts<'a>(
    caller: &'a mut Caller<'_, GuestState>,
) -> Result<(&'a mut [u8], &'a mut GuestState, usize)> {
    let fuel = wasmtime::AsContextMut::as_context_mut(caller).hostcall_fuel();
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => exported_memory(caller)?,
    };
    let (bytes, state) = memory.data_and_store_mut(caller);
    state.memory = Some(memory);
    Ok((bytes, state, fuel))
}

fn exported_memory(caller: &mut Caller<'_, GuestState>) -> Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => Err(Error::msg("the module exports no memory")),
    }
}

fn lost_memory_error(errno: Errno) -> Error {
    Error::msg(format!("the result is outside of the guest's memory (errno {})", errno.0))
}
