//! Checks a bundle, in the same way as the `verify.py` inside it.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Read},
};

use sha2::{Digest as _, Sha256};

use super::{
    BundleError, BundleManifest, ConsistencyProof, MANIFEST, MAX_CHECKPOINTS, NOTES_DIR, POLICIES_DIR,
    QUESTIONS_DIR, ROWS, read_text,
};
use crate::{
    chain::{self, MAX_ROW_BYTES},
    checkpoint::SignedCheckpoint,
    key::VerifierKey,
    tree::{Frontier, TreeHash, is_consistent},
};

/// The maximum length of a text in a bundle, except the rows: 16 MiB.
pub(super) const MAX_TEXT_BYTES: u64 = 16 << 20;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleReport {
    /// The numbers of the first and the last row.
    pub rows: (u64, u64),
    /// The number of disclosed rows.
    pub disclosed: u64,
    /// The key with which the checkpoints were verified.
    pub key: String,
    /// The number of valid checkpoints.
    pub checkpoints: usize,
    /// The checks that failed. Empty if the bundle is proven.
    pub faults: Vec<String>,
}

/// A checkpoint, and its source.
struct NamedCheckpoint {
    name: String,
    signed: SignedCheckpoint,
    holds: bool,
}

/// Checks a bundle. `key` is the log's key from an independent source. Without it the bundle's own key is
/// used, which proves only that the bundle is consistent, because its owner could have forged all of it.
/// `anchors` are checkpoints that were kept elsewhere.
///
/// # Errors
/// [`BundleError::File`], and [`BundleError::Form`] if a file is not a bundle. A bundle that proves nothing
/// is not an error: the report gives the reasons.
pub fn check_bundle(
    bundle: impl Read,
    key: Option<&VerifierKey>,
    anchors: &[SignedCheckpoint],
) -> Result<BundleReport, BundleError> {
    let form_error = |text: &str| BundleError::Form(text.to_owned());
    let mut archive = tar::Archive::new(bundle);
    let mut checker: Option<Checker> = None;
    let mut checkpoints = 0;
    for entry in archive.entries()? {
        let entry = entry?;
        if !entry.header().entry_type().is_file() {
            return Err(form_error("it has an entry that is not a file"));
        }
        let name = entry.path()?.to_str().ok_or_else(|| form_error("a name in it is not UTF-8"))?.to_owned();
        match (&mut checker, name.as_str()) {
            (None, MANIFEST) => {
                let manifest = serde_json::from_str(&read_text(entry)?)
                    .map_err(|error| BundleError::Form(format!("{MANIFEST}: {error}")))?;
                checker = Some(Checker::new(manifest, key, anchors)?);
            }
            (None, _) | (Some(_), MANIFEST) => {
                return Err(BundleError::Form(format!("its first file, and no other, is {MANIFEST}")));
            }
            (Some(checker), ROWS) => checker.rows(entry)?,
            (Some(checker), name) if below(name, NOTES_DIR).is_some() => {
                let text = read_text(entry)?;
                checkpoints += 1;
                if checkpoints > MAX_CHECKPOINTS {
                    return Err(form_error("it has more checkpoints than a bundle has"));
                }
                checker.add_note(name.to_owned(), SignedCheckpoint::parse(&text));
            }
            (Some(checker), name) => checker.text(name, entry)?,
        }
    }
    Ok(checker.ok_or_else(|| BundleError::Form(format!("it has no {MANIFEST}")))?.finish())
}

struct Checker {
    manifest: BundleManifest,
    key: VerifierKey,
    notes: Vec<NamedCheckpoint>,
    tree: Frontier,
    rows_before: u64,
    disclosed: u64,
    has_rows: bool,
    faults: Vec<String>,
}

impl Checker {
    fn new(
        manifest: BundleManifest,
        key: Option<&VerifierKey>,
        anchors: &[SignedCheckpoint],
    ) -> Result<Self, BundleError> {
        let own_key =
            VerifierKey::parse(&manifest.key).map_err(|error| BundleError::Form(error.to_string()))?;
        let left = manifest.left_roots.iter().map(|hash| hash_of(hash)).collect::<Option<Vec<TreeHash>>>();
        let rows_before = manifest.first.saturating_sub(1);
        let tree = left.and_then(|left| Frontier::from_parts(rows_before, left));
        let tree = tree.filter(|_| manifest.format == 1 && manifest.first > 0);
        let tree =
            tree.ok_or_else(|| BundleError::Form(format!("{MANIFEST}: the tree before the first row")))?;
        let key = key.cloned().unwrap_or(own_key);
        let mut checker = Self {
            manifest,
            key,
            notes: Vec::new(),
            tree,
            rows_before,
            disclosed: 0,
            has_rows: false,
            faults: Vec::new(),
        };
        for (index, anchor) in anchors.iter().enumerate() {
            checker.add_note(format!("anchor {}", index + 1), Some(anchor.clone()));
        }
        Ok(checker)
    }

    fn add_note(&mut self, name: String, signed: Option<SignedCheckpoint>) {
        let Some(signed) = signed else {
            self.faults.push(format!("{name} is not a checkpoint"));
            return;
        };
        match signed.verify(&self.key) {
            Ok(()) => self.notes.push(NamedCheckpoint { name, signed, holds: false }),
            Err(fault) => self.faults.push(format!("{name}: {fault}")),
        }
    }

    /// Compares the checkpoints that cover exactly the rows read so far.
    fn compare(&mut self, by_size: &HashMap<u64, Vec<usize>>) {
        let Some(indexes) = by_size.get(&self.tree.size()) else { return };
        let root = self.tree.root();
        for index in indexes {
            let note = &mut self.notes[*index];
            note.holds = note.signed.checkpoint.root == root;
            if !note.holds {
                let NamedCheckpoint { name, signed, .. } = note;
                let size = signed.checkpoint.size;
                self.faults
                    .push(format!("{name}: the rows up to {size} differ from those of the checkpoint"));
            }
        }
    }

    fn rows(&mut self, entry: impl Read) -> Result<(), BundleError> {
        if std::mem::replace(&mut self.has_rows, true) {
            return Err(BundleError::Form(format!("it has {ROWS} twice")));
        }
        let mut by_size: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, note) in self.notes.iter().enumerate() {
            by_size.entry(note.signed.checkpoint.size).or_default().push(index);
        }
        // Compare checkpoints of no rows before reading the first row.
        self.compare(&by_size);
        let mut reader = BufReader::new(entry);
        let mut line = Vec::new();
        let mut prev: Option<String> = None;
        loop {
            line.clear();
            // A line without a newline must not exhaust memory.
            let mut bounded = (&mut reader).take(MAX_ROW_BYTES as u64 + 1);
            if bounded.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let seq = self.tree.size() + 1;
            let hash = match line.strip_prefix(b"-") {
                Some(hash) => String::from_utf8_lossy(hash.trim_ascii_end()).into_owned(),
                None => {
                    self.disclosed += 1;
                    let Ok(link) = chain::check(&line) else {
                        self.faults.push(format!("row {seq} was changed"));
                        break;
                    };
                    let text = |hash: &chain::Hash| String::from_utf8_lossy(hash).into_owned();
                    // The chain runs over the disclosed rows and the hashes of the withheld ones.
                    if link.seq != seq || prev.is_some_and(|prev| prev != text(&link.prev)) {
                        self.faults.push(format!("row {seq} does not follow the row before it"));
                        break;
                    }
                    text(&link.hash)
                }
            };
            let Some(bytes) = hash_of(&hash) else {
                self.faults.push(format!("row {seq} is neither a row nor a hash"));
                break;
            };
            prev = Some(hash);
            self.tree.push(&bytes);
            self.compare(&by_size);
        }
        Ok(())
    }

    /// Checks a text against the hash by which rows name it.
    fn text(&mut self, name: &str, entry: impl Read) -> Result<(), BundleError> {
        let hashed = below(name, POLICIES_DIR).and_then(|name| name.strip_suffix(".json"));
        let hashed = hashed.or_else(|| below(name, QUESTIONS_DIR)?.strip_suffix(".txt"));
        if let Some(expected) = hashed
            && hex::encode(Sha256::digest(read_text(entry)?)) != expected
        {
            self.faults.push(format!("{name} is not the text that rows name"));
        }
        Ok(())
    }

    fn finish(mut self) -> BundleReport {
        let (last, root) = (self.tree.size(), self.tree.root());
        let proofs: Vec<(u64, Option<Vec<TreeHash>>)> = self
            .manifest
            .consistency
            .iter()
            .map(|ConsistencyProof { size, hashes }| {
                (*size, hashes.iter().map(|hash| hash_of(hash)).collect())
            })
            .collect();
        for note in &mut self.notes {
            let checkpoint = &note.signed.checkpoint;
            let size = checkpoint.size;
            if size > last {
                self.faults.push(format!("{}: rows {} to {size} are missing", note.name, last + 1));
            } else if size < self.rows_before {
                note.holds = proofs.iter().any(|(proven, proof)| {
                    *proven == size
                        && proof.as_ref().is_some_and(|proof| {
                            is_consistent((size, &checkpoint.root), (last, &root), proof)
                        })
                });
                if !note.holds {
                    self.faults.push(format!("{}: no proof shows that the log continues it", note.name));
                }
            }
        }
        if !self.notes.iter().any(|note| note.holds && note.signed.checkpoint.size == last) {
            self.faults.push("no checkpoint covers the last row".to_owned());
        }
        BundleReport {
            rows: (self.manifest.first, last),
            disclosed: self.disclosed,
            key: self.key.as_str().to_owned(),
            checkpoints: self.notes.iter().filter(|note| note.holds).count(),
            faults: self.faults,
        }
    }
}

/// Returns the name of a file in a folder of the bundle.
fn below<'n>(name: &'n str, folder: &str) -> Option<&'n str> {
    name.strip_prefix(folder)?.strip_prefix('/')
}

fn hash_of(text: &str) -> Option<TreeHash> {
    hex::decode(text).ok()?.try_into().ok()
}
