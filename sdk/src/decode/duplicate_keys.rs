//! Refuses duplicate keys. A reader that keeps the first value and a reader that keeps the last would see different
//! calls, and a map silently keeps the last.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use super::integers::skip_string;

/// A key that an object has twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DuplicateKey(String);

impl fmt::Display for DuplicateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key '{}' is given twice", self.0)
    }
}

impl std::error::Error for DuplicateKey {}

/// Refuses a text in which an object has a key twice, and names the key.
///
/// The syntax was checked when the arguments were parsed, so this function does not parse values. It goes from
/// string to string, and a string followed by a colon is a key.
pub(super) fn check(text: &str) -> Result<(), DuplicateKey> {
    let bytes = text.as_bytes();
    let mut open = OpenObjects::default();
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        match byte {
            b'"' => {
                let (end, has_escapes) = skip_string(bytes, index);
                if is_before_colon(&bytes[end..]) {
                    let key = if has_escapes {
                        unescape_key(text, index, end)
                    } else {
                        Cow::Borrowed(between_quotes(bytes, index, end))
                    };
                    open.insert_key(key)
                        .map_err(|key| DuplicateKey(String::from_utf8_lossy(&key).into_owned()))?;
                }
                index = end;
                continue;
            }
            b'{' => open.begin(),
            b'}' => open.end(),
            _ => {}
        }
        index += 1;
    }
    Ok(())
}

fn is_before_colon(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// The text between the quotes.
fn between_quotes(bytes: &[u8], quote: usize, end: usize) -> &[u8] {
    bytes.get(quote + 1..end.saturating_sub(1)).unwrap_or_default()
}

/// Decodes a key with escapes. A key with invalid escapes stays unchanged, because it will fail to decode
/// later.
fn unescape_key(text: &str, quote: usize, end: usize) -> Cow<'_, [u8]> {
    match text.get(quote..end).map(serde_json::from_str::<String>) {
        Some(Ok(key)) => Cow::Owned(key.into_bytes()),
        _ => Cow::Borrowed(between_quotes(text.as_bytes(), quote, end)),
    }
}

/// The keys seen so far in the open objects, with the innermost object last.
#[derive(Default)]
struct OpenObjects<'t> {
    keys: Vec<Cow<'t, [u8]>>,
    objects: Vec<OpenObject<'t>>,
}

/// An open object. Most objects have few keys, and a list may have many objects, so the first keys of all objects
/// share one allocation.
struct OpenObject<'t> {
    /// The index of the object's first key in `keys`.
    first_key_index: usize,
    further_keys: BTreeSet<Cow<'t, [u8]>>,
}

impl<'t> OpenObjects<'t> {
    fn begin(&mut self) {
        self.objects.push(OpenObject { first_key_index: self.keys.len(), further_keys: BTreeSet::new() });
    }

    fn end(&mut self) {
        if let Some(object) = self.objects.pop() {
            self.keys.truncate(object.first_key_index);
        }
    }

    /// Notes a key of the innermost object. Returns a duplicate as an error.
    fn insert_key(&mut self, key: Cow<'t, [u8]>) -> Result<(), Cow<'t, [u8]>> {
        let Some(object) = self.objects.last_mut() else { return Ok(()) };
        let first_keys = &self.keys[object.first_key_index..];
        if first_keys.contains(&key) || object.further_keys.contains(&key) {
            return Err(key);
        }
        if first_keys.len() < MAX_UNHASHED_KEYS {
            self.keys.push(key);
        } else {
            object.further_keys.insert(key);
        }
        Ok(())
    }
}

/// The maximum number of keys of an object that are searched one by one. Further keys go into a set.
const MAX_UNHASHED_KEYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_is_found_at_any_depth() {
        assert_eq!(check(r#"{"a":1,"b":[{"a":1},{"a":2}]}"#), Ok(()));
        assert_eq!(check(r#"[{"x":{"a":1,"\u0061":2}}]"#), Err(DuplicateKey("a".to_owned())));
    }

    #[test]
    fn a_key_twice_is_found_among_many() {
        let keys = |last: usize| {
            let keys: Vec<String> = (0..30).chain([last]).map(|key| format!(r#""k{key}":{key}"#)).collect();
            format!("{{{}}}", keys.join(","))
        };
        assert_eq!(check(&keys(30)), Ok(()));
        for twice in [0, MAX_UNHASHED_KEYS - 1, MAX_UNHASHED_KEYS, 29] {
            let duplicate = check(&keys(twice)).expect_err("a key is given twice");
            assert_eq!(duplicate.to_string(), format!("key 'k{twice}' is given twice"));
        }
    }
}
