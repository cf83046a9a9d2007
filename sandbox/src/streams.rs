//! Serves a guest's standard streams: passes on its output, and reads its input from the sending end of a
//! transfer if its call is the receiving end.

use wasmtime::{Error, Result};

use super::{
    fs::Slot,
    guest::GuestState,
    memory::{io_vector, number, slice, slice_mut, store},
    path_verdict::Errno,
};

/// Limit of buffers in one `fd_write` or `fd_read`.
const MAX_IO_VECTORS: u32 = 1024;

/// Limit of bytes in one `fd_write` to a standard stream; the guest calls again for the rest. Many vectors
/// may name the same memory, and a guest can be stopped only between two calls.
const MAX_WRITE_BYTES: u32 = 128 << 10;

/// Passes a guest's output on to its reader; a fault ends the call.
pub(super) fn write_stream(
    memory: &mut [u8],
    state: &mut GuestState,
    fd: i32,
    vectors: i32,
    count: i32,
    out: i32,
) -> Result<i32> {
    let count = number(count);
    if count > MAX_IO_VECTORS {
        return Ok(Errno::INVAL.0);
    }
    let is_stdout = matches!(state.fs.slot(number(fd)), Some(Slot::Stdout));
    let mut written = 0_u32;
    for index in 0..count {
        let Ok(vector) = io_vector(memory, vectors, index) else { return Ok(Errno::FAULT.0) };
        let len = vector.len.min(MAX_WRITE_BYTES - written);
        let Ok(bytes) = slice(memory, vector.start.cast_signed(), usize::try_from(len)?) else {
            return Ok(Errno::FAULT.0);
        };
        if is_stdout {
            state.stdout.write(bytes)?;
        } else {
            state.stderr.write(bytes);
        }
        written += len;
        if written == MAX_WRITE_BYTES {
            break;
        }
    }
    Ok(store(memory, number(out), &written.to_le_bytes()).map_or_else(|errno| errno.0, |()| 0))
}

/// Reads from a transfer into the first buffer that is not empty; the guest calls again for more.
pub(super) fn read_stream(
    memory: &mut [u8],
    state: &mut GuestState,
    vectors: i32,
    count: i32,
    out: i32,
) -> Result<i32> {
    let count = number(count);
    if count > MAX_IO_VECTORS {
        return Ok(Errno::INVAL.0);
    }
    let mut read = 0;
    for index in 0..count {
        let Ok(vector) = io_vector(memory, vectors, index) else { return Ok(Errno::FAULT.0) };
        if vector.len == 0 {
            continue;
        }
        let Ok(buffer) = slice_mut(memory, vector.start, vector.len) else { return Ok(Errno::FAULT.0) };
        if let Some(inlet) = &mut state.inlet {
            read = inlet.read(buffer, &state.control).map_err(Error::new)?;
        }
        break;
    }
    let read = u32::try_from(read)?;
    Ok(store(memory, number(out), &read.to_le_bytes()).map_or_else(|errno| errno.0, |()| 0))
}
