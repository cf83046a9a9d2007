//! A guest's memory as host functions see it: every number in it is the guest's, and may lead anywhere.

use super::verdict::{Errno, Verdict};

/// A text of the guest.
pub(super) fn text(memory: &[u8], at: i32, len: i32) -> Verdict<&str> {
    let len = usize::try_from(number(len)).map_err(|_cause| Errno::FAULT)?;
    let bytes = slice(memory, at, len)?;
    std::str::from_utf8(bytes).map_err(|_cause| Errno::ILSEQ)
}

/// Some bytes of the guest.
pub(super) fn slice(memory: &[u8], at: i32, len: usize) -> Verdict<&[u8]> {
    let start = usize::try_from(number(at)).map_err(|_cause| Errno::FAULT)?;
    let end = start.checked_add(len).ok_or(Errno::FAULT)?;
    memory.get(start..end).ok_or(Errno::FAULT)
}

/// Room in the guest's memory.
pub(super) fn slice_mut(memory: &mut [u8], at: u32, len: u32) -> Verdict<&mut [u8]> {
    let start = usize::try_from(at).map_err(|_cause| Errno::FAULT)?;
    let len = usize::try_from(len).map_err(|_cause| Errno::FAULT)?;
    let end = start.checked_add(len).ok_or(Errno::FAULT)?;
    memory.get_mut(start..end).ok_or(Errno::FAULT)
}

/// So many bytes of the guest.
pub(super) fn array<const N: usize>(memory: &[u8], at: i32) -> Verdict<[u8; N]> {
    slice(memory, at, N)?.try_into().map_err(|_cause| Errno::FAULT)
}

/// Puts bytes into the guest's memory.
pub(super) fn store(memory: &mut [u8], at: u32, bytes: &[u8]) -> Verdict {
    let start = usize::try_from(at).map_err(|_cause| Errno::FAULT)?;
    let end = start.checked_add(bytes.len()).ok_or(Errno::FAULT)?;
    memory.get_mut(start..end).ok_or(Errno::FAULT)?.copy_from_slice(bytes);
    Ok(())
}

/// Guests pass unsigned numbers; WebAssembly types them as signed.
pub(super) fn number(value: i32) -> u32 {
    value.cast_unsigned()
}

/// A buffer that a guest names in a list of them (`$iovec` and `$ciovec` of `wasi_snapshot_preview1.witx`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IoVector {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// The buffer at a place in a list.
pub(super) fn io_vector(memory: &[u8], list: i32, index: u32) -> Verdict<IoVector> {
    let at = number(list).saturating_add(index.saturating_mul(8));
    let [a, b, c, d, e, f, g, h] = array::<8>(memory, at.cast_signed())?;
    Ok(IoVector { start: u32::from_le_bytes([a, b, c, d]), len: u32::from_le_bytes([e, f, g, h]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_or_written_beyond_the_end() {
        let mut memory = [0_u8; 16];
        store(&mut memory, 8, &[1, 0, 0, 0, 2, 0, 0, 0]).expect("fits");
        assert_eq!(io_vector(&memory, 0, 1), Ok(IoVector { start: 1, len: 2 }));
        assert_eq!(io_vector(&memory, 0, 2), Err(Errno::FAULT));
        assert_eq!(io_vector(&memory, -8, u32::MAX), Err(Errno::FAULT));
        assert_eq!(slice(&memory, 9, 8), Err(Errno::FAULT));
        assert_eq!(slice(&memory, -1, usize::MAX), Err(Errno::FAULT));
        assert_eq!(slice_mut(&mut memory, 9, 8), Err(Errno::FAULT));
        assert_eq!(slice_mut(&mut memory, u32::MAX, u32::MAX), Err(Errno::FAULT));
        assert_eq!(store(&mut memory, 15, &[1, 2]), Err(Errno::FAULT));
        assert_eq!(text(&[0xff, b'a'], 0, 2), Err(Errno::ILSEQ));
        assert_eq!(text(&[0xff, b'a'], 1, 1), Ok("a"));
    }
}
