//! `[audit]`: when rows are synced, when segments are sealed, and where checkpoints are sent.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};
use thiserror::Error;
use url::Url;

use crate::{
    AuditSync, FileBytes, InvalidUrl,
    limits::{KIB, LimitBounds},
    network::parse_url,
};

/// The settings of the audit log, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditSettings {
    /// When rows are synced to disk. In the canonical form this is a separate key, which is older than the
    /// others.
    #[serde(skip)]
    pub sync: AuditSync,
    /// The size at which a segment is sealed. Default: 64 MiB.
    #[serde(rename = "segment")]
    pub segment_bytes: FileBytes,
    /// The age of a segment's first row at which the segment is sealed. Default: 30 days.
    #[serde(serialize_with = "seconds")]
    pub segment_age: Duration,
    /// The age of its last row at which a sealed segment is removed. `None`, the default, keeps all segments.
    #[serde(rename = "keep", skip_serializing_if = "Option::is_none", serialize_with = "optional_seconds")]
    pub retention: Option<Duration>,
    /// The destinations of checkpoints. `None`, the default, means standard error in a server and none in
    /// other commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Vec<CheckpointDestination>>,
    /// The key that signs checkpoints. `None`, the default, uses the key among the credentials that systemd
    /// passes, or otherwise the state folder's key, which is created if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyLocation>,
}

impl AuditSettings {
    /// The bounds of [`Self::segment_bytes`]: 64 KiB to 64 GiB.
    pub(crate) const SEGMENT_BOUNDS: LimitBounds<u64> =
        LimitBounds { min: 64 * KIB, max: 64 * 1024 * 1024 * KIB };

    /// The bounds of [`Self::segment_age`] and [`Self::retention`]: a minute to a hundred years of 365 days.
    pub(crate) const AGE_BOUNDS: LimitBounds<Duration> =
        LimitBounds { min: Duration::from_mins(1), max: Duration::from_hours(100 * 365 * 24) };

    /// Returns whether all settings except `sync` are the default. The canonical form then omits the
    /// settings, so that policies without them keep the digest from before the settings existed.
    pub(crate) fn is_default_but_sync(&self) -> bool {
        *self == Self { sync: self.sync, ..Self::default() }
    }
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            sync: AuditSync::default(),
            segment_bytes: FileBytes(64 * 1024 * KIB),
            segment_age: Duration::from_hours(30 * 24),
            retention: None,
            checkpoints: None,
            key: None,
        }
    }
}

/// A destination of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CheckpointDestination {
    /// Standard error, as one line each.
    Stderr,
    /// A file, to which signed notes are appended: an absolute path.
    File(String),
    /// A witness, which signs only extensions of the log that it has already seen.
    Witness(WitnessDestination),
}

/// A witness that speaks the C2SP protocol (c2sp.org/tlog-witness). In text it is its URL and its key,
/// separated by a space.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WitnessDestination {
    /// The prefix of submissions: an `http` or `https` URL without query. A cosignature is verified with the
    /// key, so a connection without TLS reveals no more than the log's size and root.
    pub url: Url,
    /// The key that verifies the witness's cosignatures: `NAME+8 hexadecimal digits+base64`.
    pub key: String,
}

/// A text that is not a destination of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum InvalidCheckpointDestination {
    /// The text is neither a known word, nor a witness, nor an absolute path.
    #[error("write `stderr`, `https://… KEY` for a witness, or the absolute path of a file")]
    Form,
    /// The URL of a witness is not one that a request may have.
    #[error(transparent)]
    WitnessUrl(#[from] InvalidUrl),
    /// The URL of a witness has a query or a fragment.
    #[error("the witness's URL has a query (`?`) or a fragment (`#`)")]
    WitnessQuery,
    /// A witness has no key, or an invalid one.
    #[error(
        "write the key of the witness behind its URL and a space: `https://… NAME+8 hexadecimal digits+base64`"
    )]
    WitnessKey,
}

impl WitnessDestination {
    fn parse(url: &str, key: Option<&str>) -> Result<Self, InvalidCheckpointDestination> {
        let (parsed, _authority) = parse_url(url)?;
        if url.contains(['?', '#']) {
            return Err(InvalidCheckpointDestination::WitnessQuery);
        }
        let parts: Vec<&str> = key.unwrap_or_default().splitn(3, '+').collect();
        let is_key = matches!(*parts, [name, id, encoded]
            if !name.is_empty()
                && !name.contains(char::is_whitespace)
                && id.len() == WITNESS_KEY_ID_DIGITS
                && id.bytes().all(|byte| byte.is_ascii_hexdigit())
                && !encoded.is_empty()
                && encoded.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)));
        match key {
            Some(key) if is_key && key.len() <= MAX_WITNESS_KEY_BYTES => {
                Ok(Self { url: parsed, key: key.to_owned() })
            }
            _ => Err(InvalidCheckpointDestination::WitnessKey),
        }
    }
}

/// The length of the identifier in a witness's key.
const WITNESS_KEY_ID_DIGITS: usize = 8;

/// The maximum length of the key of a witness in bytes.
const MAX_WITNESS_KEY_BYTES: usize = 512;

impl CheckpointDestination {
    /// Parses `stderr`, an absolute path, or a witness.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidCheckpointDestination> {
        if text == "stderr" {
            return Ok(Self::Stderr);
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            let (url, key) = text.split_once(' ').map_or((text, None), |(url, key)| (url, Some(key)));
            return WitnessDestination::parse(url, key).map(Self::Witness);
        }
        absolute_path(text).map(Self::File).ok_or(InvalidCheckpointDestination::Form)
    }
}

impl fmt::Display for CheckpointDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => f.write_str(path),
            Self::Witness(WitnessDestination { url, key }) => write!(f, "{url} {key}"),
        }
    }
}

impl Serialize for CheckpointDestination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The location of a signing key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyLocation {
    /// A file: an absolute path.
    File(String),
    /// The key with this fingerprint, `SHA256:…`, in an SSH agent.
    SshAgent(String),
}

/// The prefix of the name of a key in an SSH agent.
const SSH_AGENT: &str = "ssh-agent:";

/// The length of the base64 digits in a fingerprint.
const FINGERPRINT_DIGITS: usize = 43;

/// A text that is not the place of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum InvalidKeyLocation {
    /// The text is neither a key of an SSH agent nor an absolute path.
    #[error("write `ssh-agent:SHA256:…`, or the absolute path of a file")]
    Form,
    /// The fingerprint of a key in an SSH agent is not one.
    #[error("write the fingerprint as `ssh-add -l` shows it: `ssh-agent:SHA256:…`")]
    Fingerprint,
}

impl KeyLocation {
    /// Parses an absolute path, or `ssh-agent:SHA256:…`.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidKeyLocation> {
        match text.strip_prefix(SSH_AGENT) {
            None => absolute_path(text).map(Self::File).ok_or(InvalidKeyLocation::Form),
            Some(fingerprint) => {
                let digits = fingerprint.strip_prefix("SHA256:").unwrap_or_default();
                let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
                if digits.len() != FINGERPRINT_DIGITS || !digits.bytes().all(is_digit) {
                    return Err(InvalidKeyLocation::Fingerprint);
                }
                Ok(Self::SshAgent(fingerprint.to_owned()))
            }
        }
    }
}

impl fmt::Display for KeyLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::SshAgent(fingerprint) => write!(f, "{SSH_AGENT}{fingerprint}"),
        }
    }
}

impl Serialize for KeyLocation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The path of a file outside the workspace; `None` if the text is not absolute, or no path.
fn absolute_path(text: &str) -> Option<String> {
    let is_path = text.starts_with('/') && !text.contains('\0') && text.len() <= MAX_PATH_BYTES;
    is_path.then(|| text.to_owned())
}

/// The maximum length of a path in bytes: Linux's `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4096;

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

fn optional_seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => seconds(duration, serializer),
        None => serializer.serialize_none(),
    }
}
