//! Refuses duplicate keys: a reader that keeps the first and one that keeps the last would see different
//! calls, and a map silently keeps the last.

use std::{borrow::Cow, collections::BTreeSet};

use super::integers::string;

/// Refuses a text in which an object has a key twice, and names the key.
///
/// The syntax was checked when the arguments were parsed. So this does not parse values: it goes from string
/// to string, and a string followed by a colon is a key.
pub(super) fn ensure(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut open = OpenObjects::default();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let (end, has_escapes) = string(bytes, at);
                if is_before_colon(&bytes[end..]) {
                    let key = if has_escapes {
                        unescaped(text, at, end)
                    } else {
                        Cow::Borrowed(within(bytes, at, end))
                    };
                    open.note(key)
                        .map_err(|key| format!("key '{}' is given twice", String::from_utf8_lossy(&key)))?;
                }
                at = end;
                continue;
            }
            b'{' => open.begin(),
            b'}' => open.end(),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn is_before_colon(bytes: &[u8]) -> bool {
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// The text between the quotes.
fn within(bytes: &[u8], quote: usize, end: usize) -> &[u8] {
    bytes.get(quote + 1..end.saturating_sub(1)).unwrap_or_default()
}

/// The decoded form of a key with escapes. A key with invalid escapes stays as it is: it will not decode
/// later.
fn unescaped(text: &str, quote: usize, end: usize) -> Cow<'_, [u8]> {
    match text.get(quote..end).map(serde_json::from_str::<String>) {
        Some(Ok(key)) => Cow::Owned(key.into_bytes()),
        _ => Cow::Borrowed(within(text.as_bytes(), quote, end)),
    }
}

/// The keys seen so far in the open objects, the innermost last.
#[derive(Default)]
struct OpenObjects<'t> {
    keys: Vec<Cow<'t, [u8]>>,
    objects: Vec<OpenObject<'t>>,
}

/// An open object. Most objects have few keys, and a list may have many objects: the first keys of all
/// objects share one allocation.
struct OpenObject<'t> {
    /// The index of its first key.
    first: usize,
    more: BTreeSet<Cow<'t, [u8]>>,
}

impl<'t> OpenObjects<'t> {
    fn begin(&mut self) {
        self.objects.push(OpenObject { first: self.keys.len(), more: BTreeSet::new() });
    }

    fn end(&mut self) {
        if let Some(object) = self.objects.pop() {
            self.keys.truncate(object.first);
        }
    }

    /// Notes a key of the innermost object; returns it as an error if it is a duplicate.
    fn note(&mut self, key: Cow<'t, [u8]>) -> Result<(), Cow<'t, [u8]>> {
        let Some(object) = self.objects.last_mut() else { return Ok(()) };
        let few = &self.keys[object.first..];
        if few.contains(&key) || object.more.contains(&key) {
            return Err(key);
        }
        if few.len() < MAX_UNHASHED_KEYS {
            self.keys.push(key);
        } else {
            object.more.insert(key);
        }
        Ok(())
    }
}

const MAX_UNHASHED_KEYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_is_found_at_any_depth() {
        assert_eq!(ensure(r#"{"a":1,"b":[{"a":1},{"a":2}]}"#), Ok(()));
        assert_eq!(ensure(r#"[{"x":{"a":1,"\u0061":2}}]"#), Err("key 'a' is given twice".to_owned()));
    }

    #[test]
    fn a_key_twice_is_found_among_many() {
        let keys = |last: usize| {
            let keys: Vec<String> = (0..30).chain([last]).map(|key| format!(r#""k{key}":{key}"#)).collect();
            format!("{{{}}}", keys.join(","))
        };
        assert_eq!(ensure(&keys(30)), Ok(()));
        for twice in [0, MAX_UNHASHED_KEYS - 1, MAX_UNHASHED_KEYS, 29] {
            assert_eq!(ensure(&keys(twice)), Err(format!("key 'k{twice}' is given twice")));
        }
    }
}
