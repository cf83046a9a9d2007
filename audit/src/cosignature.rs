//! Cosignatures: a witness's statement that a checkpoint extends every checkpoint of the log that it has seen
//! (c2sp.org/tlog-cosignature, version 1 with Ed25519).

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::VerifyingKey;
use jiff::Timestamp;
use signed_note::{Note, Signature, is_key_name_valid, key_id};

use super::{
    checkpoint::SignedCheckpoint,
    key::{KeyError, MAX_SHOWN_CHARACTERS},
};

/// The byte before a key that marks timestamped Ed25519 cosignatures.
const COSIGNATURE: u8 = 4;

/// The length of the time in a cosignature, in bytes.
const TIME_BYTES: usize = 8;

/// The key that verifies the cosignatures of a witness, as text `NAME+8 hexadecimal digits+base64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessKey {
    text: String,
    name: String,
    id: u32,
    key: VerifyingKey,
}

impl WitnessKey {
    /// Parses a key. Keys for ML-DSA are not supported.
    ///
    /// # Errors
    /// [`KeyError::WitnessForm`] if the text is not the Ed25519 key of a witness, or its id does not match.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        Self::split_key(text)
            .ok_or_else(|| KeyError::WitnessForm { key: text.chars().take(MAX_SHOWN_CHARACTERS).collect() })
    }

    fn split_key(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '+');
        let (name, id, encoded) = (parts.next()?, parts.next()?, parts.next()?);
        let decoded = BASE64.decode(encoded).ok()?;
        let (&COSIGNATURE, key) = decoded.split_first()? else { return None };
        let key = VerifyingKey::from_bytes(key.try_into().ok()?).ok()?;
        let computed = key_id(name, &decoded);
        (is_key_name_valid(name) && id == format!("{computed:08x}")).then(|| Self {
            text: text.to_owned(),
            name: name.to_owned(),
            id: computed,
            key,
        })
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the witness.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first four bytes of the key's hash, by which cosignatures identify the key.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the time of a cosignature of this key over a text. `None` if the signature is
    /// another key's or invalid.
    fn time_of(&self, signature: &Signature, text: &[u8]) -> Option<Timestamp> {
        if signature.name() != self.name || signature.id() != self.id {
            return None;
        }
        let (time, signature) = signature.signature().split_first_chunk::<TIME_BYTES>()?;
        let time = u64::from_be_bytes(*time);
        let signature = ed25519_dalek::Signature::from_bytes(signature.try_into().ok()?);
        let message = [format!("cosignature/v1\ntime {time}\n").as_bytes(), text].concat();
        self.key.verify_strict(&message, &signature).ok()?;
        Timestamp::from_second(i64::try_from(time).ok()?).ok()
    }
}

impl SignedCheckpoint {
    /// Returns when a witness signed this checkpoint; if it signed several times, the newest time. `None`
    /// without a valid signature of this key.
    #[must_use]
    pub fn cosigned_at(&self, witness: &WitnessKey) -> Option<Timestamp> {
        let note = Note::from_bytes(self.note().as_bytes()).ok()?;
        let lines = self.note().lines().filter(|line| line.starts_with("— "));
        let signatures = lines.filter_map(|line| Signature::from_bytes(line.as_bytes()).ok());
        signatures.filter_map(|signature| witness.time_of(&signature, note.text())).max()
    }

    /// Adds the signature lines that are valid cosignatures of a witness, and returns the time of the newest
    /// one. Ignores other lines, as the protocol requires. `None` if no line is valid.
    pub(super) fn with_cosignatures(&self, lines: &str, witness: &WitnessKey) -> Option<(Self, Timestamp)> {
        let note = Note::from_bytes(self.note().as_bytes()).ok()?;
        let (mut cosigned, mut newest) = (self.note().to_owned(), None);
        for line in lines.lines() {
            let Ok(signature) = Signature::from_bytes(line.as_bytes()) else { continue };
            if let Some(time) = witness.time_of(&signature, note.text()) {
                cosigned += line;
                cosigned.push('\n');
                newest = newest.max(Some(time));
            }
        }
        Some((Self::parse(&cosigned)?, newest?))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};

    use super::*;
    use crate::{CheckpointKey, TreeHash};

    /// The private key of a witness.
    pub(crate) struct WitnessSigner {
        pub(crate) signing: SigningKey,
        pub(crate) key: WitnessKey,
    }

    impl WitnessSigner {
        pub(crate) fn new(name: &str, seed: u8) -> Self {
            let signing = SigningKey::from_bytes(&[seed; 32]);
            let encoded = [&[COSIGNATURE][..], signing.verifying_key().as_bytes()].concat();
            let text = format!("{name}+{:08x}+{}", key_id(name, &encoded), BASE64.encode(&encoded));
            Self { signing, key: WitnessKey::parse(&text).expect("a key") }
        }

        /// Builds the line of a cosignature over the text of a note.
        pub(crate) fn line(&self, text: &str, time: u64) -> String {
            let message = format!("cosignature/v1\ntime {time}\n{text}");
            let signature = self.signing.sign(message.as_bytes());
            let bytes = [&self.key.id.to_be_bytes()[..], &time.to_be_bytes(), &signature.to_bytes()].concat();
            format!("— {} {}\n", self.key.name, BASE64.encode(bytes))
        }
    }

    fn signed(size: u64, root: TreeHash) -> SignedCheckpoint {
        let state = tempfile::tempdir().expect("a folder");
        let key = CheckpointKey::read_or_make(state.path()).expect("makes");
        SignedCheckpoint::sign(&key, size, root).expect("signs")
    }

    fn text_of(signed: &SignedCheckpoint) -> &str {
        signed.note().split_once("\n\n").map(|(text, _)| &signed.note()[..=text.len()]).expect("a note")
    }

    #[test]
    fn the_example_of_the_specification_verifies() {
        // The note of c2sp.org/tlog-cosignature. The specification does not give the key of its witness, so
        // this tests only the parser: another key does not verify the note.
        let note = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
            — example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
            — witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";
        let signed = SignedCheckpoint::parse(note).expect("a note");
        assert_eq!(signed.checkpoint.size, 20_852_163);
        assert_eq!(signed.cosigned_at(&WitnessSigner::new("witness.example.com/w1", 1).key), None);
    }

    #[test]
    fn only_a_valid_signature_of_the_witness_counts() {
        let (witness, other) = (WitnessSigner::new("w.example/1", 1), WitnessSigner::new("w.example/1", 2));
        let (signed, later) = (signed(7, [1; 32]), signed(8, [2; 32]));
        let line = witness.line(text_of(&signed), 1_679_315_147);
        let (cosigned, time) = signed.with_cosignatures(&line, &witness.key).expect("cosigned");
        assert_eq!(Some(time), cosigned.cosigned_at(&witness.key));
        assert_eq!(cosigned.checkpoint, signed.checkpoint);
        assert_eq!(cosigned.cosigned_at(&witness.key), Timestamp::from_second(1_679_315_147).ok());
        assert_eq!(SignedCheckpoint::find_all(cosigned.note()), std::slice::from_ref(&cosigned));
        // Lines of others around the cosignature are ignored.
        let noisy = format!("{}{line}— x AAAAAAA=\nno line\n", other.line(text_of(&signed), 1));
        assert_eq!(signed.with_cosignatures(&noisy, &witness.key), Some((cosigned.clone(), time)));
        for answer in [
            String::new(),
            "\u{202e}<script>".to_owned(),
            other.line(text_of(&signed), 1),
            witness.line(text_of(&later), 1),
            line.replace(witness.key.name(), "w.example/2"),
            // The signature also covers the time.
            {
                let mut bytes =
                    BASE64.decode(line.trim().rsplit(' ').next().expect("base64")).expect("decodes");
                bytes[11] ^= 1;
                format!("— {} {}\n", witness.key.name(), BASE64.encode(bytes))
            },
            line[..line.len() - 9].to_owned(),
        ] {
            assert_eq!(signed.with_cosignatures(&answer, &witness.key), None, "{answer}");
        }
        assert_eq!(cosigned.cosigned_at(&other.key), None);
        // If there are several cosignatures, the newest counts.
        let twice = cosigned.with_cosignatures(&witness.line(text_of(&signed), 1_779_315_147), &witness.key);
        let newest = twice.expect("cosigned").0.cosigned_at(&witness.key);
        assert_eq!(newest, Timestamp::from_second(1_779_315_147).ok());
    }

    #[test]
    fn texts_that_are_not_keys_of_witnesses_are_refused() {
        let good = WitnessSigner::new("w.example/1", 1).key;
        assert_eq!(WitnessKey::parse(&format!(" {}\n", good.as_str())).expect("parses"), good);
        let state = tempfile::tempdir().expect("a folder");
        let log_key = CheckpointKey::read_or_make(state.path()).expect("makes");
        for text in [
            "",
            "w",
            "w+00000000+",
            &good.as_str().replace("w.example", "v.example"),
            &good.as_str().replace("w.example", "w example"),
            &good.as_str()[..good.as_str().len() - 8],
            // A key that signs checkpoints is not a cosigning key.
            log_key.verifier().as_str(),
        ] {
            assert!(matches!(WitnessKey::parse(text), Err(KeyError::WitnessForm { .. })), "{text}");
        }
    }
}
