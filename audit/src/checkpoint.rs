//! Checkpoints: signed statements of the number of rows in a log and the root of the tree over them.
//!
//! A checkpoint has the format of transparency logs: a signed note (c2sp.org/signed-note) whose text
//! is a checkpoint (c2sp.org/tlog-checkpoint). It can also be written as one line, for standard error
//! and log collectors.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use signed_note::{Note, NoteError, Signature, VerifierList};

use super::{
    key::{CheckpointKey, KeyError, VerifierKey},
    tree::TreeHash,
};

/// The keyword before a checkpoint that is written as one line.
const LINE_MARK: &str = "portcullis-checkpoint";

/// The maximum length of a note or line to parse: 64 KiB.
const MAX_NOTE_BYTES: usize = 64 * 1024;

/// The statement of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name, which is also the name of its key.
    pub origin: String,
    /// The number of rows.
    pub size: u64,
    /// The root of the tree over these rows.
    pub root: TreeHash,
}

impl Checkpoint {
    /// The text that is signed.
    fn text(&self) -> String {
        let Self { origin, size, root } = self;
        format!("{origin}\n{size}\n{}\n", BASE64.encode(root))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let canonical = size == "0" || !size.starts_with('0');
        if origin.is_empty() || !canonical || !size.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            origin: origin.to_owned(),
            size: size.parse().ok()?,
            root: BASE64.decode(root).ok()?.try_into().ok()?,
        })
    }
}

/// A checkpoint with its signatures. They are unverified until [`SignedCheckpoint::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// The signed statement about the log: its origin, its size and its root hash.
    pub checkpoint: Checkpoint,
    note: String,
}

/// Why a signature check failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFault {
    /// This key has not signed the checkpoint.
    OtherKey,
    /// This key's signature does not match the text.
    Invalid,
}

impl fmt::Display for SignatureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherKey => "it is not signed with this log's key",
            Self::Invalid => "its signature is not valid",
        })
    }
}

impl SignedCheckpoint {
    /// Signs a checkpoint whose origin is the key's name.
    ///
    /// # Errors
    /// [`KeyError::Sign`]. Signing with a key in memory cannot fail.
    pub fn sign(key: &CheckpointKey, size: u64, root: TreeHash) -> Result<Self, KeyError> {
        let checkpoint = Checkpoint { origin: key.name().to_owned(), size, root };
        let failed = |error: NoteError| KeyError::Sign { source: error.into() };
        let mut note = Note::new(checkpoint.text().as_bytes(), &[]).map_err(failed)?;
        note.add_sigs(&[key.signer()]).map_err(failed)?;
        // A note contains only text and base64, so this conversion is lossless.
        let note = String::from_utf8_lossy(&note.to_bytes()).into_owned();
        Ok(Self { checkpoint, note })
    }

    /// The note, with its signatures.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Parses a note without verifying its signatures.
    #[must_use]
    pub fn parse(note: &str) -> Option<Self> {
        if note.len() > MAX_NOTE_BYTES {
            return None;
        }
        let parsed = Note::from_bytes(note.as_bytes()).ok()?;
        let checkpoint = Checkpoint::parse(std::str::from_utf8(parsed.text()).ok()?)?;
        Some(Self { checkpoint, note: note.to_owned() })
    }

    /// Parses the bytes of a file, as [`Self::parse`] does.
    pub(super) fn from_bytes(note: &[u8]) -> Option<Self> {
        Self::parse(std::str::from_utf8(note).ok()?)
    }

    /// Formats the checkpoint as one line, without a newline:
    /// `portcullis-checkpoint ORIGIN SIZE ROOT SIGNATURE`, with the last two in base64 as in the note.
    #[must_use]
    pub fn to_line(&self) -> String {
        let Checkpoint { origin, size, root } = &self.checkpoint;
        let own_signature = self.note.lines().filter_map(|line| line.strip_prefix("— ")?.split_once(' '));
        let signature =
            own_signature.filter(|(name, _)| name == origin).map(|(_, signature)| signature).next();
        format!("{LINE_MARK} {origin} {size} {} {}", BASE64.encode(root), signature.unwrap_or_default())
    }

    /// Finds a checkpoint in a line, which may have a collector's prefix.
    fn from_line(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(LINE_MARK)?;
        let mut words = rest.strip_prefix(' ')?.split(' ');
        let (origin, size, root, signature) = (words.next()?, words.next()?, words.next()?, words.next()?);
        // A collector may have quoted the line.
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let length = signature.bytes().take_while(|byte| is_base64(byte)).count();
        let checkpoint = Checkpoint::parse(&format!("{origin}\n{size}\n{root}\n"))?;
        let signature =
            Signature::from_bytes(format!("— {origin} {}", &signature[..length]).as_bytes()).ok()?;
        let note = Note::new(checkpoint.text().as_bytes(), &[signature]).ok()?;
        Some(Self { checkpoint, note: String::from_utf8(note.to_bytes()).ok()? })
    }

    /// Finds all checkpoints in a text: notes, and lines with anything before the checkpoint, such as
    /// those of a journal.
    #[must_use]
    pub fn find_all(text: &str) -> Vec<Self> {
        let mut found: Vec<Self> = text.lines().filter_map(Self::from_line).collect();
        let lines: Vec<&str> = text.lines().collect();
        let mut start = 0;
        while start < lines.len() {
            // A note consists of the lines of its text, an empty line, and lines of signatures.
            let text_lines = lines[start..].iter().take_while(|line| !line.is_empty()).count();
            let signatures = lines.get(start + text_lines + 1..).unwrap_or_default();
            let signatures = signatures.iter().take_while(|line| line.starts_with("— ")).count();
            if text_lines > 0 && signatures > 0 {
                let end = start + text_lines + 1 + signatures;
                // Lines of other texts may directly precede the note, so take only the last three.
                let note_start = start + text_lines.saturating_sub(3);
                let note = lines[note_start..end].join("\n") + "\n";
                found.extend(Self::parse(&note));
                start = end;
            } else {
                start += text_lines + 1;
            }
        }
        found
    }

    /// Verifies the signature of the log's key.
    ///
    /// # Errors
    /// [`SignatureFault`] if this key has not signed the checkpoint, or its signature does not match.
    pub fn verify(&self, key: &VerifierKey) -> Result<(), SignatureFault> {
        if self.checkpoint.origin != key.name() {
            return Err(SignatureFault::OtherKey);
        }
        let Ok(note) = Note::from_bytes(self.note.as_bytes()) else { return Err(SignatureFault::Invalid) };
        let verifier = key.verifier().ok_or(SignatureFault::OtherKey)?;
        let known = VerifierList::new(vec![Box::new(verifier)]);
        match note.verify(&known) {
            Ok((verified, _)) if verified.iter().any(|signature| signature.id() == key.id()) => Ok(()),
            Ok(_) | Err(NoteError::UnverifiedNote) => Err(SignatureFault::OtherKey),
            Err(_) => Err(SignatureFault::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> CheckpointKey {
        let state = tempfile::tempdir().expect("a folder");
        CheckpointKey::read_or_make(state.path()).expect("makes")
    }

    fn sign(key: &CheckpointKey, size: u64, root: TreeHash) -> SignedCheckpoint {
        SignedCheckpoint::sign(key, size, root).expect("signs")
    }

    #[test]
    fn both_forms_say_the_same_and_verify() {
        let key = key();
        let signed = sign(&key, 25_108, [7; 32]);
        assert_eq!(signed.verify(key.verifier()), Ok(()));
        assert_eq!(SignedCheckpoint::parse(signed.note()), Some(signed.clone()));
        let lines: Vec<&str> = signed.note().lines().collect();
        assert_eq!((lines[0], lines[1]), (key.name(), "25108"));
        for text in [
            signed.to_line(),
            format!("Nov 27 host portcullis[7]: {}\nother", signed.to_line()),
            format!("{{\"MESSAGE\":\"{}\"}}", signed.to_line()),
            signed.note().to_owned(),
            format!("some text\n\n{}\n\nafter\n", signed.note()),
            format!("right before\n{}", signed.note()),
        ] {
            assert_eq!(SignedCheckpoint::find_all(&text), std::slice::from_ref(&signed), "{text}");
        }
        let two = format!("{}\n{}\n", sign(&key, 1, [1; 32]).note(), signed.note());
        assert_eq!(SignedCheckpoint::find_all(&two).len(), 2);
    }

    #[test]
    fn changed_checkpoints_and_other_keys_do_not_verify() {
        let (key, other) = (key(), self::key());
        let signed = sign(&key, 9, [7; 32]);
        assert_eq!(signed.verify(other.verifier()), Err(SignatureFault::OtherKey));
        let forged = sign(&other, 9, [7; 32]).note().replace(other.name(), key.name());
        let forged = SignedCheckpoint::parse(&forged).expect("a note");
        assert_eq!(forged.verify(key.verifier()), Err(SignatureFault::OtherKey));
        let changed = SignedCheckpoint::parse(&signed.note().replace("\n9\n", "\n8\n")).expect("a note");
        assert_eq!(changed.verify(key.verifier()), Err(SignatureFault::Invalid));
        let changed = signed.to_line().replace(" 9 ", " 8 ");
        assert_eq!(
            SignedCheckpoint::find_all(&changed)[0].verify(key.verifier()),
            Err(SignatureFault::Invalid)
        );
    }

    #[test]
    fn texts_that_are_not_checkpoints_have_none() {
        for text in [
            "",
            "\n\n\n",
            "portcullis-checkpoint",
            "portcullis-checkpoint a 1 x y",
            "a\n01\nAAAA\n\n— a AAAAAAA=\n",
            "a\n1\nAAAA\n\n— a AAAAAAA=\n",
            "— a b",
        ] {
            assert_eq!(SignedCheckpoint::find_all(text), [], "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(portcullis-checkpoint|— |[a-z+/=]{0,9}|[0-9]{1,3}| |\n|\u{202e}){0,40}") {
            let _ = SignedCheckpoint::find_all(&text);
        }
    }
}
