//! Random names, from the kernel's random number generator.

use std::io;

/// Returns this many random bytes as lower-case hexadecimal digits, two per byte. Eight bytes are enough for
/// a unique name, such as that of a temporary file; use 16 or more for a name that must be unguessable.
///
/// # Errors
/// If the kernel provides no random bytes.
pub fn random_hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_names_differ_and_have_two_digits_for_each_byte() {
        let [first, second] = [random_hex::<8>(), random_hex::<8>()].map(|name| name.expect("random bytes"));
        assert_ne!(first, second);
        assert!(first.len() == 16 && first.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    }
}
