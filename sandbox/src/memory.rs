//! Access to a guest's memory for host functions. Every address and every length comes from the guest, so
//! each is checked.

use super::fs_result::{Errno, FsResult};

/// Reads a string.
pub(super) fn text(memory: &[u8], address: i32, len: i32) -> FsResult<&str> {
    let len = usize::try_from(as_unsigned(len)).map_err(|_cause| Errno::FAULT)?;
    let bytes = slice(memory, address, len)?;
    std::str::from_utf8(bytes).map_err(|_cause| Errno::ILSEQ)
}

/// Borrows bytes for reading.
pub(super) fn slice(memory: &[u8], address: i32, len: usize) -> FsResult<&[u8]> {
    let start = usize::try_from(as_unsigned(address)).map_err(|_cause| Errno::FAULT)?;
    let end = start.checked_add(len).ok_or(Errno::FAULT)?;
    memory.get(start..end).ok_or(Errno::FAULT)
}

/// Borrows bytes for writing.
pub(super) fn slice_mut(memory: &mut [u8], address: u32, len: u32) -> FsResult<&mut [u8]> {
    let start = usize::try_from(address).map_err(|_cause| Errno::FAULT)?;
    let len = usize::try_from(len).map_err(|_cause| Errno::FAULT)?;
    let end = start.checked_add(len).ok_or(Errno::FAULT)?;
    memory.get_mut(start..end).ok_or(Errno::FAULT)
}

/// Reads a fixed number of bytes.
pub(super) fn array<const N: usize>(memory: &[u8], address: i32) -> FsResult<[u8; N]> {
    slice(memory, address, N)?.try_into().map_err(|_cause| Errno::FAULT)
}

/// Writes bytes.
pub(super) fn write_bytes(memory: &mut [u8], address: u32, bytes: &[u8]) -> FsResult {
    let start = usize::try_from(address).map_err(|_cause| Errno::FAULT)?;
    let end = start.checked_add(bytes.len()).ok_or(Errno::FAULT)?;
    memory.get_mut(start..end).ok_or(Errno::FAULT)?.copy_from_slice(bytes);
    Ok(())
}

/// Reinterprets a number. Guests pass unsigned numbers, which WebAssembly types as signed.
pub(super) fn as_unsigned(value: i32) -> u32 {
    value.cast_unsigned()
}

/// An entry in a guest's list of buffers (`$iovec` and `$ciovec` of `wasi_snapshot_preview1.witx`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IoVector {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// Reads an entry of the list by its index.
pub(super) fn io_vector(memory: &[u8], list: i32, index: u32) -> FsResult<IoVector> {
    let address = as_unsigned(list).saturating_add(index.saturating_mul(8));
    let [a, b, c, d, e, f, g, h] = array::<8>(memory, address.cast_signed())?;
    Ok(IoVector { start: u32::from_le_bytes([a, b, c, d]), len: u32::from_le_bytes([e, f, g, h]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_or_written_beyond_the_end() {
        let mut memory = [0_u8; 16];
        write_bytes(&mut memory, 8, &[1, 0, 0, 0, 2, 0, 0, 0]).expect("fits");
        assert_eq!(io_vector(&memory, 0, 1), Ok(IoVector { start: 1, len: 2 }));
        assert_eq!(io_vector(&memory, 0, 2), Err(Errno::FAULT));
        assert_eq!(io_vector(&memory, -8, u32::MAX), Err(Errno::FAULT));
        assert_eq!(slice(&memory, 9, 8), Err(Errno::FAULT));
        assert_eq!(slice(&memory, -1, usize::MAX), Err(Errno::FAULT));
        assert_eq!(slice_mut(&mut memory, 9, 8), Err(Errno::FAULT));
        assert_eq!(slice_mut(&mut memory, u32::MAX, u32::MAX), Err(Errno::FAULT));
        assert_eq!(write_bytes(&mut memory, 15, &[1, 2]), Err(Errno::FAULT));
        assert_eq!(text(&[0xff, b'a'], 0, 2), Err(Errno::ILSEQ));
        assert_eq!(text(&[0xff, b'a'], 1, 1), Ok("a"));
    }
}
