//! Serves a guest's standard streams. Output goes to its reader. If the call is the receiving end of a transfer, input
//! comes from the sending end.

use wasmtime::{Error, Result};

use super::{
    fs::Descriptor,
    fs_result::Errno,
    guest::GuestState,
    memory::{as_unsigned, io_vector, slice, slice_mut, write_bytes},
};

/// The maximum number of buffers in one `fd_write` or `fd_read`.
const MAX_IO_VECTORS: u32 = 1024;

/// The maximum number of bytes in one `fd_write` to a standard stream: 128 KiB. The guest calls again for
/// the rest. Many vectors can refer to the same memory, and a guest can be stopped only between two calls.
const MAX_WRITE_BYTES: u32 = 128 << 10;

/// Passes a guest's output to its reader. A fault ends the call.
pub(super) fn write_stream(
    memory: &mut [u8],
    state: &mut GuestState,
    fd: i32,
    vectors: i32,
    count: i32,
    out: i32,
) -> Result<i32> {
    let count = as_unsigned(count);
    if count > MAX_IO_VECTORS {
        return Ok(Errno::INVAL.0);
    }
    let is_stdout = matches!(state.fs.descriptor(as_unsigned(fd)), Some(Descriptor::Stdout));
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
    Ok(write_bytes(memory, as_unsigned(out), &written.to_le_bytes()).map_or_else(|errno| errno.0, |()| 0))
}

/// Reads from a transfer into the first non-empty buffer. The guest calls again for more.
pub(super) fn read_stream(
    memory: &mut [u8],
    state: &mut GuestState,
    vectors: i32,
    count: i32,
    out: i32,
) -> Result<i32> {
    let count = as_unsigned(count);
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
        if let Some(transfer_input) = &mut state.transfer_input {
            read = transfer_input.read(buffer, &state.control).map_err(Error::new)?;
        }
        break;
    }
    let read = u32::try_from(read)?;
    Ok(write_bytes(memory, as_unsigned(out), &read.to_le_bytes()).map_or_else(|errno| errno.0, |()| 0))
}
