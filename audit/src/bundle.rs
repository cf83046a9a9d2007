//! Bundles: a part of a log with the evidence that proves it, for a reader who trusts neither
//! Portcullis nor its operator.
//!
//! ```text
//! bundle.json             the key, the number of the first row, and the tree before it
//! rows.txt                each row as the log has it, or a `-` and its hash if it is not disclosed
//! notes/<size>.note       the checkpoints of these rows
//! policies/, questions/   the texts that disclosed rows name by their hashes
//! approved.lock           the lock of approved modules, if there is one
//! verify.py               checks all of this with only Python's standard library
//! ```

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufWriter, Read, Seek as _, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    chain::{self, ChainLink, is_sha256},
    checkpoint::SignedCheckpoint,
    compared_checkpoints::stored_checkpoints,
    error::AuditError,
    key::VerifierKey,
    lines::{LineEnd, LogLines},
    read::Row,
    seal, segments,
    stored_texts::{POLICIES_DIR, QUESTIONS_DIR, read_if_exists},
    tree::{ConsistencyProver, Frontier, TreeHash},
};

mod check;

pub use check::{BundleReport, check_bundle};

/// The file that describes a bundle. It comes first in the archive.
const MANIFEST: &str = "bundle.json";

/// The file with the rows.
const ROWS: &str = "rows.txt";

/// The folder with the checkpoints.
const NOTES_DIR: &str = "notes";

/// The program inside a bundle that checks it.
const VERIFY_PROGRAM: &str = include_str!("bundle/verify.py");

/// The maximum number of bytes of hashes for the proofs of given checkpoints: 256 MiB, enough for 8 million
/// rows and one checkpoint.
const MAX_PROOF_BYTES: usize = 256 << 20;

/// The maximum number of texts in a bundle: policies and questions.
const MAX_TEXTS: usize = 100_000;

/// The maximum number of checkpoints in a bundle.
const MAX_CHECKPOINTS: usize = 10_000;

/// Why a bundle cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] AuditError),
    /// The log does not match the checkpoint, so it proves nothing.
    #[error(
        "row {seq} of the audit log is not as its checkpoint says; look at it with `portcullis audit verify`"
    )]
    NotIntact {
        /// The number of the row.
        seq: u64,
    },
    /// No row is disclosed.
    #[error("no row matches the filters")]
    NoRow,
    /// The rows name more policies and questions than a bundle may contain.
    #[error("the rows name more than {MAX_TEXTS} policies and questions; choose fewer rows")]
    TooManyTexts,
    /// More checkpoints are given than a bundle may contain.
    #[error("at most {} checkpoints can be given; give fewer, such as the newest one", MAX_CHECKPOINTS - 1)]
    TooManyCheckpoints,
    /// The proofs for the given checkpoints would take too much memory.
    #[error("there are too many rows after the given checkpoints; give a later one")]
    TooManyHashes,
    /// The file cannot be written or read.
    #[error("cannot read or write the bundle")]
    File(#[from] io::Error),
    /// The file is not a bundle.
    #[error("the file is not a bundle: {0}")]
    Form(String),
}

/// The contents of `bundle.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BundleManifest {
    /// The version of the format: 1.
    format: u64,
    /// The log's key.
    key: String,
    /// The number of the first row in `rows.txt`.
    first: u64,
    /// The number of the last row in `rows.txt`.
    last: u64,
    /// The number of disclosed rows.
    disclosed: u64,
    /// The roots of the largest whole subtrees over the rows before the first one, in hexadecimal.
    #[serde(rename = "left")]
    left_roots: Vec<String>,
    /// Proofs that the log extends earlier checkpoints.
    consistency: Vec<ConsistencyProof>,
}

/// A proof that the log extends an earlier checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ConsistencyProof {
    /// The number of rows of the earlier checkpoint.
    size: u64,
    /// The hashes of the proof, in hexadecimal.
    hashes: Vec<String>,
}

/// The contents of a bundle to be written.
pub struct BundleRequest<'a> {
    /// The log, in its state folder.
    pub log: &'a Path,
    /// The newest checkpoint, which covers all disclosed rows.
    pub checkpoint: SignedCheckpoint,
    /// The log's key.
    pub key: VerifierKey,
    /// Checkpoints that the reader already has. The bundle proves that the log extends them.
    pub anchors: Vec<SignedCheckpoint>,
    /// Whether a row is disclosed. Called twice for each row. From the first disclosed row on, rows about
    /// processes and the log itself are always disclosed.
    pub is_disclosed: &'a dyn Fn(&Row) -> bool,
    /// Additional files beside the log, with their names in the bundle.
    pub files: Vec<(PathBuf, String)>,
}

impl std::fmt::Debug for BundleRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { log, checkpoint, key, anchors, is_disclosed: _, files } = self;
        f.debug_struct("BundleRequest")
            .field("log", log)
            .field("checkpoint", checkpoint)
            .field("key", key)
            .field("anchors", anchors)
            .field("files", files)
            .finish_non_exhaustive()
    }
}

/// The facts about a bundle that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBundle {
    /// The numbers of the first and the last row.
    pub rows: (u64, u64),
    /// The number of disclosed rows.
    pub disclosed: u64,
}

/// Returns the number of the last disclosed row. `None` if no row is disclosed.
///
/// # Errors
/// [`BundleError::Log`] if a row of the log cannot be read.
pub fn last_disclosed(log: &Path, is_disclosed: &dyn Fn(&Row) -> bool) -> Result<Option<u64>, BundleError> {
    for line in super::newest_row_lines(log) {
        let row = line?.row;
        if is_disclosed(&row) {
            return Ok(Some(row.seq));
        }
    }
    Ok(None)
}

/// Writes a bundle as a tar file. Its rows are those from the first disclosed row to the last row
/// of the checkpoint.
///
/// # Errors
/// [`BundleError`] if the log cannot be read or does not match the checkpoint, if it has no disclosed row,
/// if a limit is exceeded, or if the file cannot be written.
pub fn write_bundle(out: impl Write, request: &BundleRequest<'_>) -> Result<WrittenBundle, BundleError> {
    // One place is reserved for the checkpoint of the last row.
    let Some(free) = (MAX_CHECKPOINTS - 1).checked_sub(request.anchors.len()) else {
        return Err(BundleError::TooManyCheckpoints);
    };
    let texts = disclosed_texts(request)?;
    let mut rows = RowsWriter::new(request, texts.first)?;
    each_line(request.log, |link, line| rows.add(request, link, line))?;
    let (manifest, mut rows_file) = rows.finish(request)?;

    let mut archive = tar::Builder::new(out);
    add(&mut archive, MANIFEST, &serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?)?;
    add(&mut archive, "verify.py", VERIFY_PROGRAM.as_bytes())?;
    let state_folder = request.log.parent().unwrap_or(Path::new("."));
    let checkpoint_name = format!("{NOTES_DIR}/{}.note", request.checkpoint.checkpoint.size);
    add(&mut archive, &checkpoint_name, request.checkpoint.note().as_bytes())?;
    let mut notes = stored_checkpoints(state_folder)?;
    let sizes = manifest.first.saturating_sub(1)..manifest.last;
    notes.retain(|note| sizes.contains(&note.checkpoint.size));
    // The checkpoint of the last row proves all rows, so the oldest of the others can be dropped.
    for note in notes.split_off(notes.len().saturating_sub(free)) {
        let name = format!("{NOTES_DIR}/{}.note", note.checkpoint.size);
        add(&mut archive, &name, note.note().as_bytes())?;
    }
    for (index, anchor) in request.anchors.iter().enumerate() {
        let name = format!("{NOTES_DIR}/given-{}-{}.note", index + 1, anchor.checkpoint.size);
        add(&mut archive, &name, anchor.note().as_bytes())?;
    }
    for name in &texts.texts {
        // A text that is no longer stored is omitted; its hash in the row shows that it existed.
        if let Some(text) = read_if_exists(&state_folder.join(name))? {
            add(&mut archive, name, &text)?;
        }
    }
    for (path, name) in &request.files {
        if let Some(text) = read_if_exists(path)? {
            add(&mut archive, name, &text)?;
        }
    }
    let length = rows_file.metadata()?.len();
    rows_file.rewind()?;
    archive.append_data(&mut header(length), ROWS, rows_file)?;
    archive.into_inner()?.flush()?;
    let rows = (manifest.first, manifest.last);
    Ok(WrittenBundle { rows, disclosed: manifest.disclosed })
}

fn add(archive: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(content.len() as u64), name, content)
}

/// Builds the header of a file. It has no time or owner, so that equal bundles are equal byte for byte.
fn header(length: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(length);
    header.set_mode(0o644);
    header
}

/// The first disclosed row, and the texts that disclosed rows name.
struct DisclosedTexts {
    first: u64,
    texts: BTreeSet<String>,
}

fn disclosed_texts(request: &BundleRequest<'_>) -> Result<DisclosedTexts, BundleError> {
    let mut first = None;
    let mut texts = BTreeSet::new();
    for row in super::rows(request.log) {
        let row = row?;
        if row.seq > request.checkpoint.checkpoint.size {
            break;
        }
        let is_disclosed = (request.is_disclosed)(&row);
        if is_disclosed {
            first.get_or_insert(row.seq);
        }
        if !is_disclosed && (first.is_none() || !row.event.concerns_process()) {
            continue;
        }
        for digest in [&row.policy_digest, &row.old_digest, &row.new_digest].into_iter().flatten() {
            // The digest comes from a row and becomes a part of a path, so check it.
            if is_sha256(digest) {
                texts.insert(format!("{POLICIES_DIR}/{digest}.json"));
                texts.insert(format!("{POLICIES_DIR}/{digest}.toml"));
            }
        }
        let question = row.approver.as_ref().and_then(|approver| approver.question_sha256.as_deref());
        if let Some(question) = question.filter(|question| is_sha256(question)) {
            texts.insert(format!("{QUESTIONS_DIR}/{question}.txt"));
        }
        if texts.len() > MAX_TEXTS {
            return Err(BundleError::TooManyTexts);
        }
    }
    Ok(DisclosedTexts { first: first.ok_or(BundleError::NoRow)?, texts })
}

/// Calls a function with the link and the line of each row of a log, until it returns `false`.
fn each_line(
    log: &Path,
    mut each: impl FnMut(&ChainLink, &[u8]) -> Result<bool, BundleError>,
) -> Result<(), BundleError> {
    let mut last_seq = 0;
    for part in segments::log_parts(log)? {
        let (path, file, end) = part.open()?;
        let mut lines = LogLines::new(file, 0, end);
        while let Some(line) =
            lines.next().map_err(|source| AuditError::Read { path: path.clone(), source })?
        {
            let link = (line.end == LineEnd::Newline).then(|| chain::check(line.bytes).ok()).flatten();
            let Some(link) = link else { return Err(BundleError::NotIntact { seq: last_seq + 1 }) };
            last_seq = link.seq;
            if !each(&link, line.bytes)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Writes `rows.txt` to a temporary file, and builds the tree along the way.
struct RowsWriter {
    first: u64,
    tree: Option<Frontier>,
    left_frontier: Option<Frontier>,
    /// The given checkpoints that end before the first row, each with the prover that gets the rows after it.
    provers: Vec<(SignedCheckpoint, Option<ConsistencyProver>)>,
    proof_bytes: usize,
    file: BufWriter<File>,
    disclosed: u64,
}

impl RowsWriter {
    fn new(request: &BundleRequest<'_>, first: u64) -> Result<Self, BundleError> {
        let earlier = request.anchors.iter().filter(|anchor| anchor.checkpoint.size + 1 < first);
        Ok(Self {
            first,
            tree: None,
            left_frontier: None,
            provers: earlier.map(|anchor| (anchor.clone(), None)).collect(),
            proof_bytes: 0,
            file: BufWriter::new(tempfile::tempfile()?),
            disclosed: 0,
        })
    }

    /// Adds a row. Returns whether more rows are needed.
    fn add(
        &mut self,
        request: &BundleRequest<'_>,
        link: &ChainLink,
        line: &[u8],
    ) -> Result<bool, BundleError> {
        let tree = match &mut self.tree {
            Some(tree) => tree,
            // Retention may have removed rows. The first remaining row then states the tree of
            // the rows before it.
            empty if link.seq == 1 => empty.insert(Frontier::default()),
            empty => {
                let before = seal::frontier_of(line).filter(|before| before.size() + 1 == link.seq);
                empty.insert(before.ok_or(BundleError::NotIntact { seq: link.seq })?)
            }
        };
        if tree.size() + 1 != link.seq {
            return Err(BundleError::NotIntact { seq: link.seq });
        }
        let hash = seal::row_hash(line).ok_or(BundleError::NotIntact { seq: link.seq })?;
        if link.seq == self.first {
            self.left_frontier = Some(tree.clone());
        }
        for (anchor, prover) in &mut self.provers {
            if anchor.checkpoint.size == tree.size() {
                *prover = Some(ConsistencyProver::new(tree.clone()));
            }
            if let Some(prover) = prover {
                prover.push(&hash);
                self.proof_bytes += size_of::<TreeHash>();
            }
        }
        if self.proof_bytes > MAX_PROOF_BYTES {
            return Err(BundleError::TooManyHashes);
        }
        tree.push(&hash);
        if link.seq >= self.first {
            let Ok(row) = serde_json::from_slice::<Row>(line) else {
                return Err(BundleError::NotIntact { seq: link.seq });
            };
            if row.event.concerns_process() || (request.is_disclosed)(&row) {
                self.file.write_all(line)?;
                self.disclosed += 1;
            } else {
                writeln!(self.file, "-{}", hex::encode(hash))?;
            }
        }
        Ok(tree.size() < request.checkpoint.checkpoint.size)
    }

    fn finish(self, request: &BundleRequest<'_>) -> Result<(BundleManifest, File), BundleError> {
        let Self { first, tree, left_frontier: left, provers, file, disclosed, .. } = self;
        let checkpoint = &request.checkpoint.checkpoint;
        let tree = tree.unwrap_or_default();
        let left = left.ok_or(BundleError::NoRow)?;
        if tree.size() != checkpoint.size || tree.root() != checkpoint.root {
            return Err(BundleError::NotIntact { seq: tree.size() });
        }
        let consistency = provers.into_iter().filter_map(|(anchor, prover)| {
            let hashes = prover?.proof().iter().map(hex::encode).collect();
            Some(ConsistencyProof { size: anchor.checkpoint.size, hashes })
        });
        let manifest = BundleManifest {
            format: 1,
            key: request.key.as_str().to_owned(),
            first,
            last: tree.size(),
            disclosed,
            left_roots: left.roots().iter().map(hex::encode).collect(),
            consistency: consistency.collect(),
        };
        Ok((manifest, file.into_inner().map_err(io::IntoInnerError::into_error)?))
    }
}

/// Reads a part of a bundle as text, up to the limit.
fn read_text(entry: impl Read) -> Result<String, BundleError> {
    let mut text = String::new();
    let read = entry.take(check::MAX_TEXT_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > check::MAX_TEXT_BYTES {
        return Err(BundleError::Form("a text in it is too long".to_owned()));
    }
    Ok(text)
}
