//! The client of a witness (c2sp.org/tlog-witness), without the connection. It builds the requests that prove
//! to a witness that the log only grew, and parses the responses.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;
use thiserror::Error;

use super::{
    AuditLog,
    backwards::BackwardLines,
    chain,
    checkpoint::SignedCheckpoint,
    compared_checkpoints::stored_checkpoints,
    cosignature::WitnessKey,
    error::AuditError,
    files::LogFiles,
    lines::{LineEnd, LogLines},
    seal,
    segments::{self, LogPart},
    stored_texts,
    tree::{ConsistencyProver, Frontier, TreeHash},
};

/// The folder of the cosigned checkpoints in the state folder: `<id of the key>.note`, the newest of each witness.
pub const WITNESSES_DIR: &str = "audit.witnesses";

/// The maximum number of rows that one request proves: 2^20, whose hashes take 32 MiB. A witness that is
/// further behind gets the checkpoints of sealed segments first.
const MAX_PROVEN_ROWS: u64 = 1 << 20;

/// The maximum length of a size in a witness's response, in bytes: the digits of 2^64.
const MAX_SIZE_DIGITS: usize = 20;

/// A request to a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessRequest {
    /// The submitted checkpoint.
    pub checkpoint: SignedCheckpoint,
    /// The body of `POST <prefix>/add-checkpoint`.
    pub body: String,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WitnessOutcome {
    /// The witness signed the checkpoint at this time by its own clock. The cosigned checkpoint is stored in
    /// [`WITNESSES_DIR`].
    Cosigned(Timestamp),
    /// The witness has seen another number of rows than this process assumed. The next request
    /// starts from there.
    Elsewhere,
}

/// Why a witness has not signed a checkpoint.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// The witness has seen more rows than the log has.
    #[error("the witness has seen {seen} rows of this log, which has {rows}: rows were cut off its end")]
    RowsMissing {
        /// The number of rows that the witness has seen.
        seen: u64,
        /// The number of rows in the log.
        rows: u64,
    },
    /// The witness rejects the proof that the log extends the rows that it has seen.
    #[error(
        "the witness has seen different rows of this log: either rows or the witness's state were rewritten"
    )]
    OtherRows,
    /// Retention has removed rows that the witness has not seen.
    #[error(
        "the rows after row {seen}, which is the last that the witness has seen, were removed by retention, so nothing proves to it that the log continues"
    )]
    RowsRemoved {
        /// The number of rows that the witness has seen.
        seen: u64,
    },
    /// The witness refuses the log.
    #[error("the witness answers {status}: {meaning}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The meaning of the status in the protocol.
        meaning: &'static str,
    },
    /// The response contains no valid cosignature of the key.
    #[error("the answer of the witness has no valid signature of its key")]
    NoCosignature,
    /// The log cannot be read, or the cosigned checkpoint cannot be stored.
    #[error(transparent)]
    Log(#[from] AuditError),
}

/// A witness, as the client of one log knows it.
#[derive(Debug)]
pub struct WitnessClient {
    files: Arc<LogFiles>,
    key: WitnessKey,
    /// The number of rows that the witness has seen, as far as this process knows.
    seen_rows: u64,
    /// The size of the newest checkpoint whose cosignature is stored.
    cosigned: u64,
}

impl WitnessClient {
    /// Creates a client that continues from the stored checkpoint of this witness.
    #[must_use]
    pub fn new(log: &AuditLog, key: WitnessKey) -> Self {
        let files = log.files();
        // A malformed note proves nothing. The witness itself then says how many rows it has seen.
        let kept = read_note(&note_path(&files.state_folder, &key)).ok().flatten();
        let kept = kept.filter(|signed| signed.cosigned_at(&key).is_some());
        let size = kept.map_or(0, |signed| signed.checkpoint.size);
        Self { files, key, seen_rows: size, cosigned: size }
    }

    /// The name of the witness.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// Returns the next request that extends the witness towards a checkpoint. `None` if the witness has
    /// signed this checkpoint or a later one.
    ///
    /// Reads the rows from the segment of the last row that the witness has seen.
    ///
    /// # Errors
    /// [`WitnessError::RowsRemoved`]; [`WitnessError::Log`], with [`AuditError::CheckpointMismatch`] if the
    /// rows of the log do not match the checkpoint.
    pub fn request(&self, newest: &SignedCheckpoint) -> Result<Option<WitnessRequest>, WitnessError> {
        let size = newest.checkpoint.size;
        if self.cosigned >= size || self.seen_rows > size {
            return Ok(None);
        }
        let checkpoint = match self.seen_rows {
            // A witness that has seen nothing needs no proof, so the limit does not apply to it.
            seen if seen > 0 && size - seen > MAX_PROVEN_ROWS => {
                let notes = stored_checkpoints(&self.files.state_folder)?.into_iter();
                let reachable = |note: &SignedCheckpoint| {
                    (seen + 1..=seen + MAX_PROVEN_ROWS).contains(&note.checkpoint.size)
                        && note.checkpoint.origin == newest.checkpoint.origin
                };
                notes.rev().find(reachable).unwrap_or_else(|| newest.clone())
            }
            _ => newest.clone(),
        };
        let proof = match self.seen_rows {
            0 => Vec::new(),
            seen => prove(&self.files, seen, &checkpoint)?,
        };
        let lines: String = proof.iter().map(|hash| BASE64.encode(hash) + "\n").collect();
        let body = format!("old {}\n{lines}\n{}", self.seen_rows, checkpoint.note());
        Ok(Some(WitnessRequest { checkpoint, body }))
    }

    /// Parses the response to a request.
    ///
    /// # Errors
    /// [`WitnessError`]. No error is final: the next request may succeed.
    pub fn read_answer(
        &mut self,
        request: &WitnessRequest,
        status: u16,
        body: &[u8],
    ) -> Result<WitnessOutcome, WitnessError> {
        let submitted = request.checkpoint.checkpoint.size;
        match status {
            200 => {
                let lines = std::str::from_utf8(body).unwrap_or_default();
                let cosigned = request.checkpoint.with_cosignatures(lines, &self.key);
                let (cosigned, time) = cosigned.ok_or(WitnessError::NoCosignature)?;
                (self.seen_rows, self.cosigned) = (submitted, submitted);
                stored_texts::store_text(
                    &self.files,
                    WITNESSES_DIR,
                    &note_name(&self.key),
                    cosigned.note().as_bytes(),
                )?;
                Ok(WitnessOutcome::Cosigned(time))
            }
            409 => {
                let seen = read_size(body).ok_or(WitnessError::Refused {
                    status,
                    meaning: "it does not say how many rows it has seen",
                })?;
                let rows = row_count(&self.files)?;
                if seen > rows {
                    return Err(WitnessError::RowsMissing { seen, rows });
                }
                // With equal sizes, the witness compares the roots, so the conflict is in the rows.
                if seen == self.seen_rows {
                    return Err(WitnessError::OtherRows);
                }
                self.seen_rows = seen;
                Ok(WitnessOutcome::Elsewhere)
            }
            422 => Err(WitnessError::OtherRows),
            _ => Err(WitnessError::Refused { status, meaning: meaning(status) }),
        }
    }
}

/// Returns what a status means in the protocol.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "it cannot read the request",
        403 => "it does not know the key of this log; give it the text of `audit.key.pub`",
        404 => "it does not know this log; give it the text of `audit.key.pub`, and look at the URL's prefix",
        _ => "no answer of the protocol",
    }
}

fn note_name(key: &WitnessKey) -> String {
    format!("{:08x}.note", key.id())
}

fn note_path(state_folder: &Path, key: &WitnessKey) -> PathBuf {
    state_folder.join(WITNESSES_DIR).join(note_name(key))
}

/// Reads a cosigned checkpoint. `None` if the file does not exist or does not contain one.
fn read_note(path: &Path) -> io::Result<Option<SignedCheckpoint>> {
    Ok(stored_texts::read_if_exists(path)?.and_then(|bytes| SignedCheckpoint::from_bytes(&bytes)))
}

/// Reads the cosigned checkpoints of a state folder, each with its name in the folder. `None` if a file does
/// not contain a checkpoint.
pub(super) fn cosigned_notes(
    state_folder: &Path,
) -> Result<Vec<(String, Option<SignedCheckpoint>)>, AuditError> {
    let folder = state_folder.join(WITNESSES_DIR);
    let read_error = |source| AuditError::Read { path: folder.clone(), source };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(error)),
    };
    let mut notes = Vec::new();
    for entry in entries {
        let entry = entry.map_err(read_error)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Skip temporary files, whose names start with a dot: their process died before it could rename them.
        if name.ends_with(".note") && !name.starts_with('.') {
            notes.push((format!("{WITNESSES_DIR}/{name}"), read_note(&entry.path()).map_err(read_error)?));
        }
    }
    notes.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(notes)
}

/// Parses the size in a witness's response: decimal digits without leading zeros, and a newline.
fn read_size(body: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(body).ok()?.strip_suffix('\n')?;
    let is_number = (1..=MAX_SIZE_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    is_number.then(|| digits.parse().ok())?
}

/// Returns the number of the last row of the log.
fn row_count(files: &LogFiles) -> Result<u64, AuditError> {
    let (file, end) = segments::open_at_end(&files.path)?;
    let mut lines = BackwardLines::new(file, end);
    let last = lines.next().map_err(|source| files.read_error(source))?;
    Ok(last.and_then(|line| chain::check(&line.bytes).ok()).map_or(0, |link| link.seq))
}

/// Returns the proof that a checkpoint extends the tree of the first `seen` rows. `seen` must be at least 1.
fn prove(files: &LogFiles, seen: u64, checkpoint: &SignedCheckpoint) -> Result<Vec<TreeHash>, WitnessError> {
    let size = checkpoint.checkpoint.size;
    if seen == size {
        return Ok(Vec::new());
    }
    let disagrees = || AuditError::CheckpointMismatch { path: files.path.clone(), size, rows: size };
    let (mut tree, parts) = parts_from(files, seen)?;
    let mut prover = None;
    for part in parts {
        let (path, file, end) = part.open()?;
        let mut lines = LogLines::new(&file, 0, end);
        while let Some(line) =
            lines.next().map_err(|source| AuditError::Read { path: path.clone(), source })?
        {
            let hash = (line.end == LineEnd::Newline).then(|| seal::row_hash(line.bytes)).flatten();
            let Some(hash) = hash else {
                return Err(AuditError::Altered { path: path.clone(), offset: line.offset }.into());
            };
            if tree.size() == seen {
                prover = Some(ConsistencyProver::new(tree.clone()));
            }
            tree.push(&hash);
            if let Some(prover) = &mut prover {
                prover.push(&hash);
                if tree.size() == size {
                    let is_same = tree.root() == checkpoint.checkpoint.root;
                    return if is_same { Ok(prover.proof()) } else { Err(disagrees().into()) };
                }
            }
        }
    }
    Err(disagrees().into())
}

/// Returns the files of the log, starting with the last one that begins at or before row `seen + 1`, and the
/// tree of the rows before these files.
fn parts_from(files: &LogFiles, seen: u64) -> Result<(Frontier, Vec<LogPart>), WitnessError> {
    let mut parts = segments::log_parts(&files.path)?;
    // The last file is the open segment. It is read only up to its length at the time of the listing.
    let mut first = None;
    for (index, part) in parts.iter().enumerate() {
        let start = part.start()?;
        if start.first_seq <= seen + 1 {
            first = Some((index, start));
        }
    }
    let (index, start) = first.ok_or(WitnessError::RowsRemoved { seen })?;
    let tree = match start.first_seq {
        1 => Some(Frontier::default()),
        first_seq => start.tree.filter(|tree| tree.size() + 1 == first_seq),
    };
    let tree = tree.ok_or_else(|| AuditError::Altered { path: parts[index].path.clone(), offset: 0 })?;
    Ok((tree, parts.split_off(index)))
}

#[cfg(test)]
mod tests;
