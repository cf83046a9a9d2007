//! The Ed25519 key that signs checkpoints, in the text format of C2SP signed notes (c2sp.org/signed-note).

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use ed25519_dalek::{SignatureError, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use signed_note::{Signer, StandardSigner, StandardVerifier, Verifier as _};
use thiserror::Error;

use super::ssh_agent::{AgentKey, SshAgentError};

/// The key's name in the state folder.
pub const KEY_NAME: &str = "audit.key";

/// The name of the verifying key in the state folder.
pub const VERIFIER_KEY_NAME: &str = "audit.key.pub";

/// The name of the key among the systemd credentials of a service
/// (`LoadCredential=portcullis-audit-key:PATH`).
pub const KEY_CREDENTIAL: &str = "portcullis-audit-key";

/// The maximum size of a key file: 4 KiB. A key has about 100 bytes.
const MAX_KEY_BYTES: u64 = 4096;

/// The maximum number of characters of an invalid key that an error shows.
pub(super) const MAX_SHOWN_CHARACTERS: usize = 200;

/// The number of random bytes in the name of a key.
const NAME_BYTES: usize = 8;

/// The byte before a key that marks Ed25519.
const ED25519: u8 = 1;

/// Why a key cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read or created.
    #[error("cannot read or create the checkpoint key `{path}`", path = .path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The path leads to something other than a regular file.
    #[error("the checkpoint key `{path}` is not a regular file", path = .path.display())]
    NotRegular {
        /// The file's path.
        path: PathBuf,
    },
    /// Users other than the owner can read the file.
    #[error("other users can read the checkpoint key `{path}`; run `chmod go= {path}`", path = .path.display())]
    Readable {
        /// The file's path.
        path: PathBuf,
    },
    /// The SSH agent cannot or will not sign.
    #[error("the SSH agent does not sign checkpoints")]
    Agent {
        /// The agent's error.
        #[source]
        source: SshAgentError,
    },
    /// A checkpoint cannot be signed.
    #[error("cannot sign the checkpoint")]
    Sign {
        /// The error of the note.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The text is not a witness's key.
    #[error(
        "`{key}` is not the key of a witness; it has the form `NAME+8 hexadecimal digits+base64`, for Ed25519 cosignatures (type 4)"
    )]
    WitnessForm {
        /// The text, truncated after 200 characters.
        key: String,
    },
    /// The text is not a key.
    #[error(
        "`{input}` is not a checkpoint key; a private key begins with `PRIVATE+KEY+`, and a verifying key has the form `NAME+8 hexadecimal digits+base64`"
    )]
    Form {
        /// The file, or the text itself for a verifying key.
        input: String,
    },
}

/// The location of the key that signs checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with a private key in the format of signed notes.
    File(PathBuf),
    /// The Ed25519 key with this fingerprint, `SHA256:…`, in the SSH agent of `SSH_AUTH_SOCK`.
    SshAgent(String),
}

/// A key that signs checkpoints. Its name is the log's origin.
pub struct CheckpointKey {
    signer: KeySigner,
    verifier: VerifierKey,
}

enum KeySigner {
    InMemory(Box<StandardSigner>),
    Agent { key: Box<AgentKey>, name: String, id: u32 },
}

impl Signer for KeySigner {
    fn name(&self) -> &str {
        match self {
            Self::InMemory(signer) => signer.name(),
            Self::Agent { name, .. } => name,
        }
    }

    fn key_id(&self) -> u32 {
        match self {
            Self::InMemory(signer) => signer.key_id(),
            Self::Agent { id, .. } => *id,
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        match self {
            Self::InMemory(signer) => signer.sign(message),
            Self::Agent { key, .. } => key.sign(message).map_err(SignatureError::from_source),
        }
    }
}

impl CheckpointKey {
    /// Reads the key from its source.
    ///
    /// # Errors
    /// As [`Self::read`]; [`KeyError::Agent`].
    pub fn from_source(source: &KeySource) -> Result<Self, KeyError> {
        match source {
            KeySource::File(path) => Self::read(path),
            KeySource::SshAgent(fingerprint) => {
                let key = AgentKey::find(fingerprint).map_err(|source| KeyError::Agent { source })?;
                // Derive the origin from the key, so that no setting for the name is needed.
                let digest = Sha256::digest(key.public.as_bytes());
                let name = format!("portcullis/{}", hex::encode(&digest[..NAME_BYTES]));
                let verifier = VerifierKey::parse(&verifier_text(&name, &key.public))?;
                let id = verifier.id;
                Ok(Self { signer: KeySigner::Agent { key: Box::new(key), name, id }, verifier })
            }
        }
    }

    /// Reads a key. It must be in a regular file that only its owner can read: mode 0600 or 0400. A file that
    /// root owns may also be readable by its group, because systemd and Kubernetes pass secrets like that.
    ///
    /// # Errors
    /// [`KeyError::File`], also if there is no file; [`KeyError::NotRegular`], [`KeyError::Readable`],
    /// [`KeyError::Form`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::File { path: path.to_owned(), source };
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(KeyError::NotRegular { path: path.to_owned() });
        }
        let refused_rights = if metadata.uid() == 0 { 0o037 } else { 0o077 };
        if metadata.mode() & refused_rights != 0 {
            return Err(KeyError::Readable { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(MAX_KEY_BYTES).read_to_string(&mut text).map_err(failed)?;
        Self::parse(text.trim()).ok_or_else(|| KeyError::Form { input: path.display().to_string() })
    }

    /// Reads the key of a state folder, and creates one if there is none: [`KEY_NAME`], readable
    /// only by its owner.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_or_make(state_folder: &Path) -> Result<Self, KeyError> {
        let path = state_folder.join(KEY_NAME);
        match Self::read(&path) {
            Err(KeyError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let failed = |source| KeyError::File { path: path.clone(), source };
        let text = new_key_text().map_err(failed)?;
        // A hard link makes the complete file appear atomically, and fails if another process was faster. The
        // name of the temporary file is as random as the key's own.
        let name = text.split('+').nth(2).unwrap_or_default().replace('/', "-");
        let temporary = state_folder.join(format!(".{KEY_NAME}.{name}"));
        let link_result = write_private(&temporary, &text).and_then(|()| fs::hard_link(&temporary, &path));
        let _ = fs::remove_file(&temporary);
        match link_result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        Self::read(&path)
    }

    fn parse(text: &str) -> Option<Self> {
        let signer = StandardSigner::new(text).ok()?;
        // The format was checked above: the last part is the private key in base64.
        let encoded = text.splitn(5, '+').nth(4)?;
        let decoded = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded).ok()?;
        let seed: [u8; 32] = decoded.get(1..)?.try_into().ok()?;
        let public = SigningKey::from_bytes(&seed).verifying_key();
        let verifier = VerifierKey::parse(&verifier_text(signer.name(), &public)).ok()?;
        Some(Self { signer: KeySigner::InMemory(Box::new(signer)), verifier })
    }

    /// The name of the key, which is the origin of its checkpoints: `portcullis/` and 16 hexadecimal digits
    /// for a key that Portcullis generated.
    #[must_use]
    pub fn name(&self) -> &str {
        self.signer.name()
    }

    /// The key that verifies this key's signatures.
    #[must_use]
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    pub(super) fn signer(&self) -> &dyn Signer {
        &self.signer
    }
}

impl std::fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Do not print the private key.
        f.debug_struct("CheckpointKey").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A key that verifies checkpoints, as text `NAME+8 hexadecimal digits+base64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    text: String,
    name: String,
    id: u32,
}

impl VerifierKey {
    /// Parses a key.
    ///
    /// # Errors
    /// [`KeyError::Form`] if the text does not have the form of a verifying key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let Ok(verifier) = StandardVerifier::new(text) else {
            return Err(KeyError::Form { input: text.chars().take(MAX_SHOWN_CHARACTERS).collect() });
        };
        Ok(Self { text: text.to_owned(), name: verifier.name().to_owned(), id: verifier.key_id() })
    }

    /// Reads the verifying key of a state folder: [`VERIFIER_KEY_NAME`], which is written with the first
    /// checkpoint. `None` if there is none.
    ///
    /// # Errors
    /// [`KeyError::File`], [`KeyError::Form`].
    pub fn of_state(state_folder: &Path) -> Result<Option<Self>, KeyError> {
        let path = state_folder.join(VERIFIER_KEY_NAME);
        let text = match File::open(&path) {
            Ok(file) => {
                let mut text = String::new();
                let read = file.take(MAX_KEY_BYTES).read_to_string(&mut text);
                read.map_err(|source| KeyError::File { path: path.clone(), source })?;
                text
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(KeyError::File { path, source }),
        };
        match Self::parse(&text) {
            Ok(key) => Ok(Some(key)),
            Err(_) => Err(KeyError::Form { input: path.display().to_string() }),
        }
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the key, which is the origin of its checkpoints.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first four bytes of the key's hash, by which signatures identify the key.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn verifier(&self) -> Option<StandardVerifier> {
        StandardVerifier::new(&self.text).ok()
    }
}

fn verifier_text(name: &str, key: &VerifyingKey) -> String {
    signed_note::new_ed25519_verifier_key(name, key)
}

fn new_key_text() -> io::Result<String> {
    let mut random = [0; NAME_BYTES + 32];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let (name, seed) = random.split_at(NAME_BYTES);
    let name = format!("portcullis/{}", hex::encode(name));
    let seed: [u8; 32] = seed.try_into().map_err(io::Error::other)?;
    let public = SigningKey::from_bytes(&seed).verifying_key();
    let id = signed_note::key_id(&name, &[&[ED25519], public.as_bytes().as_slice()].concat());
    let key = [&[ED25519], seed.as_slice()].concat();
    let key = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, key);
    Ok(format!("PRIVATE+KEY+{name}+{id:08x}+{key}\n"))
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_of_a_state_folder_is_made_once_and_for_its_owner() {
        let state = tempfile::tempdir().expect("a folder");
        let key = CheckpointKey::read_or_make(state.path()).expect("makes");
        let again = CheckpointKey::read_or_make(state.path()).expect("reads");
        assert_eq!(key.verifier(), again.verifier());
        assert!(key.name().starts_with("portcullis/"), "{key:?}");
        let path = state.path().join(KEY_NAME);
        assert_eq!(fs::metadata(&path).expect("is there").mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(state.path()).expect("readable").count(), 1);
        // The verifying key has the usual format, and its text is the whole key.
        assert_eq!(VerifierKey::parse(key.verifier().as_str()).expect("parses"), *key.verifier());

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(matches!(CheckpointKey::read_or_make(state.path()), Err(KeyError::Readable { .. })));
    }

    #[test]
    fn texts_that_are_not_keys_are_refused() {
        let state = tempfile::tempdir().expect("a folder");
        let path = state.path().join(KEY_NAME);
        for text in ["", "PRIVATE+KEY+a+00000000+AAAA", "x", "\u{0}", "PRIVATE+KEY+a b+1+1"] {
            fs::write(&path, text).expect("writable");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
            assert!(matches!(CheckpointKey::read(&path), Err(KeyError::Form { .. })), "{text}");
            assert!(matches!(VerifierKey::parse(text), Err(KeyError::Form { .. })), "{text}");
        }
        fs::write(&path, [0xff, 0xfe]).expect("writable");
        assert!(matches!(CheckpointKey::read(&path), Err(KeyError::File { .. })));
        assert!(matches!(CheckpointKey::read(state.path()), Err(KeyError::NotRegular { .. })));
    }
}
