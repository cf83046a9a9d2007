//! Compares a log with checkpoints while reading its rows.

use std::{fmt, path::Path};

use jiff::Timestamp;

use super::{
    checkpoint::SignedCheckpoint,
    cosignature::WitnessKey,
    error::AuditError,
    key::VerifierKey,
    seal::{NEWEST_CHECKPOINT, StoredCheckpoint},
    segments::{self, NOTE_EXTENSION, SegmentName},
    stored_texts,
    tree::{Frontier, TreeHash},
    verify::{VerifyRequest, WitnessReport},
    witness::cosigned_notes,
};

/// The source of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointSource {
    /// The state folder, with the name of the checkpoint's file.
    State(String),
    /// Outside the state folder, for example a journal.
    Outside,
}

impl fmt::Display for CheckpointSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(name) => write!(f, "checkpoint `{name}`"),
            Self::Outside => f.write_str("anchor"),
        }
    }
}

/// The result of comparing a log with a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFinding {
    /// The log has exactly the rows that the checkpoint covers.
    Holds,
    /// Rows at the end of the log are missing, up to the size of the checkpoint.
    MissingAtEnd {
        /// The number of the first missing row.
        first: u64,
        /// The number of the last missing row.
        last: u64,
    },
    /// The rows differ from those that the checkpoint covers: rows were rewritten, or it is another log.
    OtherRows,
    /// Retention has removed all rows that the checkpoint covers, so it proves nothing about
    /// the remaining rows.
    Removed,
    /// The chain breaks before the last row that the checkpoint covers.
    BehindBreak,
    /// The signature does not verify with the log's key.
    Signature(super::SignatureFault),
    /// The file does not contain a checkpoint.
    Malformed,
}

impl CheckpointFinding {
    /// Whether the finding is consistent with an unchanged log.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Holds | Self::Removed)
    }
}

/// A checkpoint, and the result of its comparison with a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The source of the checkpoint.
    pub source: CheckpointSource,
    /// The name of the log in the checkpoint. Empty if the file is not a checkpoint.
    pub origin: String,
    /// The number of rows that the checkpoint covers.
    pub size: u64,
    /// Whether the signature was verified, which requires the log's key.
    pub is_signature_checked: bool,
    /// The result of the comparison.
    pub finding: CheckpointFinding,
}

#[derive(Debug)]
struct ComparedCheckpoint {
    report: CheckpointReport,
    root: TreeHash,
    is_decided: bool,
    /// When each of the requested witnesses signed the checkpoint.
    cosigned_at: Vec<Option<Timestamp>>,
}

/// The checkpoints to compare with a log that is being read.
#[derive(Debug)]
pub(super) struct ComparedCheckpoints {
    /// Sorted by size.
    anchors: Vec<ComparedCheckpoint>,
    /// The index of the first anchor whose rows have not all been read.
    next_index: usize,
    key: Option<VerifierKey>,
    witnesses: Vec<WitnessKey>,
}

impl ComparedCheckpoints {
    /// Collects the checkpoints of a state folder and of the request.
    pub(super) fn new(state_folder: Option<&Path>, request: &VerifyRequest) -> Result<Self, AuditError> {
        let key = match (&request.key, state_folder) {
            (Some(key), _) => Some(key.clone()),
            (None, Some(state_folder)) => {
                VerifierKey::of_state(state_folder).map_err(|source| AuditError::Key { source })?
            }
            (None, None) => None,
        };
        let mut anchors =
            Self { anchors: Vec::new(), next_index: 0, key, witnesses: request.witnesses.clone() };
        if let Some(state_folder) = state_folder {
            anchors.add_state(state_folder)?;
        }
        for signed in &request.anchors {
            anchors.add(CheckpointSource::Outside, Some(signed));
        }
        anchors.anchors.sort_by_key(|anchor| anchor.report.size);
        Ok(anchors)
    }

    fn add_state(&mut self, state_folder: &Path) -> Result<(), AuditError> {
        for (name, signed) in segment_checkpoints(state_folder)? {
            self.add(CheckpointSource::State(name.file_name(NOTE_EXTENSION)), signed.as_ref());
        }
        for (name, signed) in cosigned_notes(state_folder)? {
            self.add(CheckpointSource::State(name), signed.as_ref());
        }
        let source = CheckpointSource::State(NEWEST_CHECKPOINT.to_owned());
        match StoredCheckpoint::read(state_folder) {
            Ok(None) => {}
            Ok(Some((_, signed))) => self.add(source, Some(&signed)),
            Err(AuditError::InvalidCheckpoint { .. }) => self.add(source, None),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn add(&mut self, source: CheckpointSource, signed: Option<&SignedCheckpoint>) {
        let fault = match (signed, &self.key) {
            (None, _) => Some(CheckpointFinding::Malformed),
            (Some(signed), Some(key)) => signed.verify(key).err().map(CheckpointFinding::Signature),
            (Some(_), None) => None,
        };
        let (origin, size, root) = match signed {
            Some(signed) => {
                let checkpoint = &signed.checkpoint;
                (checkpoint.origin.clone(), checkpoint.size, checkpoint.root)
            }
            None => (String::new(), 0, TreeHash::default()),
        };
        let cosigned_at = |witness| signed.and_then(|signed| signed.cosigned_at(witness));
        self.anchors.push(ComparedCheckpoint {
            cosigned_at: self.witnesses.iter().map(cosigned_at).collect(),
            is_decided: fault.is_some(),
            report: CheckpointReport {
                source,
                origin,
                size,
                is_signature_checked: self.key.is_some(),
                finding: fault.unwrap_or(CheckpointFinding::Removed),
            },
            root,
        });
    }

    /// Whether there is any checkpoint.
    pub(super) fn has_any(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Whether a checkpoint with a valid signature states this tree.
    pub(super) fn prove(&self, tree: &Frontier) -> bool {
        let root = tree.root();
        self.anchors.iter().any(|anchor| {
            !anchor.is_decided
                && anchor.report.is_signature_checked
                && anchor.report.size == tree.size()
                && anchor.root == root
        })
    }

    /// Compares the checkpoints of this size with the tree of the rows read so far.
    pub(super) fn compare(&mut self, size: u64, tree: &Frontier) {
        while let Some(anchor) =
            self.anchors.get_mut(self.next_index).filter(|anchor| anchor.report.size <= size)
        {
            self.next_index += 1;
            if anchor.report.size == size && !anchor.is_decided {
                anchor.is_decided = true;
                let is_same = anchor.root == tree.root();
                anchor.report.finding =
                    if is_same { CheckpointFinding::Holds } else { CheckpointFinding::OtherRows };
            }
        }
    }

    /// Returns the findings for a log with these first and last rows, ordered by size, and what each
    /// witness has signed.
    pub(super) fn into_reports(
        self,
        first_seq: u64,
        last_seq: u64,
        is_broken: bool,
    ) -> (Vec<CheckpointReport>, Vec<WitnessReport>) {
        let newest_of = |index: usize| {
            let holding =
                self.anchors.iter().filter(|anchor| anchor.report.finding == CheckpointFinding::Holds);
            holding.filter_map(|anchor| Some((anchor.report.size, anchor.cosigned_at[index]?))).max()
        };
        let witnesses = self.witnesses.iter().enumerate();
        let witnesses = witnesses
            .map(|(index, key)| WitnessReport { name: key.name().to_owned(), newest: newest_of(index) })
            .collect();
        let finish = |anchor: ComparedCheckpoint| {
            let mut report = anchor.report;
            if !anchor.is_decided {
                report.finding = if report.size + 1 < first_seq {
                    CheckpointFinding::Removed
                } else if is_broken {
                    CheckpointFinding::BehindBreak
                } else {
                    CheckpointFinding::MissingAtEnd { first: last_seq + 1, last: report.size }
                };
            }
            report
        };
        (self.anchors.into_iter().map(finish).collect(), witnesses)
    }
}

/// Reads the checkpoints of the sealed segments, the oldest first, each with its segment. `None` if a file
/// does not contain the checkpoint of its segment.
fn segment_checkpoints(
    state_folder: &Path,
) -> Result<Vec<(SegmentName, Option<SignedCheckpoint>)>, AuditError> {
    let read_error = |path: &Path, source| AuditError::Read { path: path.to_owned(), source };
    let mut notes = Vec::new();
    for name in
        segments::listed(state_folder, NOTE_EXTENSION).map_err(|source| read_error(state_folder, source))?
    {
        let path = segments::path_of(state_folder, &name, NOTE_EXTENSION);
        let bytes = stored_texts::read_if_exists(&path).map_err(|source| read_error(&path, source))?;
        let Some(bytes) = bytes else { continue };
        let signed = SignedCheckpoint::from_bytes(&bytes);
        // The note of a different segment proves nothing about this one.
        notes.push((name.clone(), signed.filter(|signed| signed.checkpoint.size == name.last)));
    }
    Ok(notes)
}

/// Returns the checkpoints in the state folder, the oldest first.
pub(super) fn stored_checkpoints(state_folder: &Path) -> Result<Vec<SignedCheckpoint>, AuditError> {
    Ok(segment_checkpoints(state_folder)?.into_iter().filter_map(|(_, signed)| signed).collect())
}
