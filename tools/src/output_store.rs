//! The store of complete outputs, in the state folder. A model uses it to page through a truncated result.
//!
//! The store records the owner of an output and the grant under which it was made. The policy decides whether
//! that grant is still given. The store is never in a mount: tools must not find the outputs of other calls
//! as files.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::Path,
    time::Duration,
};

use portcullis_types::random_hex;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tracing::warn;

/// The maximum total size of the outputs: 256 MiB. Every truncated result adds an output, so without the
/// limit a chatty agent would fill the disk. The oldest outputs are evicted first.
pub const MAX_STORE_BYTES: u64 = 256 << 20;

/// The maximum number of outputs: 1,024. Every new output lists the folder, so listing must stay cheap.
pub const MAX_STORED_OUTPUTS: usize = 1_024;

/// The maximum length of an output: 16 MiB, twice the limit of a guest's result.
pub const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// The default length of a page: the default limit of a result.
pub const DEFAULT_PAGE_BYTES: u64 = crate::policy::DEFAULT_MAX_OUTPUT_BYTES;

/// The maximum length of a page: 1 MiB.
pub const MAX_PAGE_BYTES: u64 = 1 << 20;

/// A folder of outputs. Several processes can share one folder: an output appears atomically, and each
/// process that adds an output evicts old ones.
///
/// All operations block on the disk.
#[derive(Debug)]
pub struct OutputStore {
    folder: OwnedFd,
    limits: StoreLimits,
}

impl OutputStore {
    /// Opens the store in an existing state folder. Creates the folder `outputs` there, private to its owner.
    ///
    /// # Errors
    /// [`OutputStoreError::Folder`] if that fails, or if `outputs` is a link or belongs to another user.
    pub fn open(state_folder: &Path) -> Result<Self, OutputStoreError> {
        Self::open_with(state_folder, StoreLimits::DEFAULT)
    }

    fn open_with(state_folder: &Path, limits: StoreLimits) -> Result<Self, OutputStoreError> {
        let folder = open_folder(state_folder).map_err(|error| OutputStoreError::Folder(error.into()))?;
        Ok(Self { folder, limits })
    }

    /// Stores an output. [`StoredOutput::grant`] returns the grant unchanged.
    ///
    /// # Errors
    /// [`OutputStoreError`] if the output cannot be stored, or if old outputs cannot be evicted afterwards. An output
    /// that exists under this id is never replaced.
    pub fn put(
        &self,
        output_id: &str,
        owner: &OutputOwner,
        grant: &Value,
        text: &str,
    ) -> Result<(), OutputStoreError> {
        let name = file_name(output_id).ok_or(OutputStoreError::InvalidId)?;
        let header = serde_json::to_vec(&Header { owner: owner.clone(), grant: grant.clone() })
            .map_err(|error| OutputStoreError::Write(error.into()))?;
        let bytes = u64::try_from(header.len() + text.len()).unwrap_or(u64::MAX);
        let header_len = u32::try_from(header.len()).ok().filter(|length| *length <= MAX_HEADER_BYTES);
        let (Some(header_len), true) = (header_len, bytes <= self.limits.output_bytes) else {
            return Err(OutputStoreError::TooLarge { bytes, limit: self.limits.output_bytes });
        };
        let temporary = format!("{}{TEMPORARY}", random_hex::<16>().map_err(OutputStoreError::Write)?);

        let write_result = self.write_new(&temporary, &[&header_len.to_le_bytes(), &header, text.as_bytes()]);
        // Link instead of rename: `linkat` fails on every file system if the name is taken.
        let linked = write_result.and_then(|()| {
            Ok(rustix::fs::linkat(&self.folder, &temporary, &self.folder, &name, AtFlags::empty())?)
        });
        let unlinked = rustix::fs::unlinkat(&self.folder, &temporary, AtFlags::empty());
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(OutputStoreError::Taken);
            }
            Err(error) => return Err(OutputStoreError::Write(error)),
        }
        if let Err(error) = unlinked {
            warn!(%error, "a temporary file stays in the output store");
        }
        self.evict(&name).map_err(OutputStoreError::Write)
    }

    /// Finds an output for its owner.
    ///
    /// # Errors
    /// [`ReadRefusal::NotFound`] if there is no such output, and also if it belongs to another owner.
    pub fn find(&self, call_id: &str, owner: &OutputOwner) -> Result<StoredOutput, ReadRefusal> {
        let name = file_name(call_id).ok_or(ReadRefusal::NotFound)?;
        // Refuse a symlink, and do not block on a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.folder, &name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Err(ReadRefusal::NotFound),
            Err(error) => return Err(OutputStoreError::Read(error.into()).into()),
        };
        let output = StoredOutput::read_header(file).map_err(OutputStoreError::Read)?;
        if &output.header.owner != owner {
            return Err(ReadRefusal::NotFound);
        }
        Ok(output)
    }

    /// Reads a page of an output: see [`StoredOutput::page`].
    ///
    /// # Errors
    /// As in [`OutputStore::find`].
    pub fn read(
        &self,
        call_id: &str,
        owner: &OutputOwner,
        offset: u64,
        limit: u64,
    ) -> Result<OutputPage, ReadRefusal> {
        self.find(call_id, owner)?.page(offset, limit)
    }

    /// Returns the grant of an output.
    ///
    /// # Errors
    /// As in [`OutputStore::find`].
    pub fn grant_of(&self, call_id: &str, owner: &OutputOwner) -> Result<Value, ReadRefusal> {
        Ok(self.find(call_id, owner)?.header.grant)
    }

    fn write_new(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.folder, name, flags, OWNER_FILE)?);
        parts.iter().try_for_each(|part| file.write_all(part))
    }

    /// Removes the oldest outputs until the limits hold. Concurrent evictions by another process can remove
    /// one or two outputs more than necessary.
    fn evict(&self, newest: &str) -> io::Result<()> {
        let mut entries = self.entries()?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut count = entries.len();
        // The new output counts towards the limits, but is never evicted itself.
        entries.retain(|entry| entry.name != newest);
        entries.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
        for entry in entries {
            let is_abandoned =
                entry.name.ends_with(TEMPORARY) && now.saturating_sub(entry.modified) > ABANDONED_AFTER;
            let is_over_limit = bytes > self.limits.store_bytes || count > self.limits.outputs;
            // Keep a recent temporary file, because another process may still be writing it.
            if is_abandoned || (is_over_limit && !entry.name.ends_with(TEMPORARY)) {
                match rustix::fs::unlinkat(&self.folder, &entry.name, AtFlags::empty()) {
                    // Another process may have evicted the same file.
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
                bytes = bytes.saturating_sub(entry.bytes);
                count -= 1;
            }
        }
        Ok(())
    }

    fn entries(&self) -> io::Result<Vec<StoredEntry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if !name.ends_with(STORED) && !name.ends_with(TEMPORARY) {
                continue;
            }
            let stat = match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Another process has evicted the file since the listing.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
            let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
            entries.push(StoredEntry {
                name: name.to_owned(),
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
                modified: Duration::new(seconds, nanos),
            });
        }
        Ok(entries)
    }
}

/// The owner of an output. Only the owner can read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutputOwner {
    /// The agent that made the call.
    pub agent_id: String,
    /// The run that the call belonged to.
    pub run_id: String,
}

/// An output that belongs to the caller. It stays readable while this value lives, even after an eviction,
/// because the file stays open.
#[derive(Debug)]
pub struct StoredOutput {
    file: File,
    header: Header,
    text_at: u64,
    total: u64,
}

impl StoredOutput {
    fn read_header(mut file: File) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a stored output is not a regular file"));
        }
        let mut length = [0; 4];
        file.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        // The length comes from the file, which must not control how much memory is allocated.
        if length > MAX_HEADER_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a stored output has a malformed header"));
        }
        let mut header = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        file.read_exact(&mut header)?;
        let text_at = 4 + u64::from(length);
        let total = u64::try_from(stat.st_size).unwrap_or(0).saturating_sub(text_at);
        Ok(Self { file, header: serde_json::from_slice(&header)?, text_at, total })
    }

    /// The grant of the output.
    #[must_use]
    pub fn grant(&self) -> &Value {
        &self.header.grant
    }

    /// Returns the characters that start within `limit` bytes from `offset` on. `limit` is clamped to 1 to
    /// [`MAX_PAGE_BYTES`].
    ///
    /// An offset inside a character moves forward to the next character, so no character is split. Pages
    /// whose offsets are `limit` apart join without gaps or overlaps. The last character can end up to three
    /// bytes after the limit.
    ///
    /// # Errors
    /// [`ReadRefusal::Store`] if the disk fails, or if the file was changed from outside.
    pub fn page(&self, offset: u64, limit: u64) -> Result<OutputPage, ReadRefusal> {
        let limit = limit.clamp(1, MAX_PAGE_BYTES);
        let start = offset.min(self.total);
        let end = start.saturating_add(limit).min(self.total);
        // Read three more bytes, for a character that starts before the end and crosses it.
        let read_length = end.saturating_add(MAX_CHAR_TAIL).min(self.total) - start;
        let mut bytes = vec![0; usize::try_from(read_length).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, self.text_at + start).map_err(OutputStoreError::Read)?;

        let window = usize::try_from(end - start).unwrap_or(0);
        let first = boundary(&bytes, 0);
        let last = boundary(&bytes, window.max(first));
        let text = str::from_utf8(&bytes[first..last])
            .map_err(|error| OutputStoreError::Read(io::Error::new(io::ErrorKind::InvalidData, error)))?
            .to_owned();
        let offset_of = |index: usize| start + u64::try_from(index).unwrap_or(0);
        Ok(OutputPage {
            text,
            offset: offset_of(first),
            next_offset: Some(offset_of(last)).filter(|next| *next < self.total),
            total: self.total,
        })
    }
}

/// A page of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPage {
    /// The requested part of the stored text.
    pub text: String,
    /// The start of the page, in bytes.
    pub offset: u64,
    /// The start of the next page, in bytes. `None` at the end.
    pub next_offset: Option<u64>,
    /// The length of the whole output, in bytes.
    pub total: u64,
}

/// Why the store failed. For the operator, because it can name files.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OutputStoreError {
    /// The folder of outputs cannot be created or opened.
    #[error("the folder of stored outputs cannot be opened")]
    Folder(#[source] io::Error),
    /// The call's id cannot be a file name.
    #[error("the call's id is not 1 to 128 of A-Z, a-z, 0-9, `-` and `_`")]
    InvalidId,
    /// The output is too long to store.
    #[error("the output has {bytes} bytes with its header, at most {limit} are stored")]
    TooLarge {
        /// The output's length.
        bytes: u64,
        /// The length limit.
        limit: u64,
    },
    /// An output of this call is already stored.
    #[error("an output of this call is already stored")]
    Taken,
    /// The disk refused to write.
    #[error("the output cannot be stored")]
    Write(#[source] io::Error),
    /// The disk refused to read, or the file was changed.
    #[error("the stored output cannot be read")]
    Read(#[source] io::Error),
}

/// Why an output is not returned.
#[derive(Debug, Error)]
pub enum ReadRefusal {
    /// There is no such output, or it belongs to another owner. The caller cannot tell which.
    #[error("no such output is stored")]
    NotFound,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] OutputStoreError),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    owner: OutputOwner,
    grant: Value,
}

struct StoredEntry {
    name: String,
    bytes: u64,
    modified: Duration,
}

#[derive(Debug, Clone, Copy)]
struct StoreLimits {
    store_bytes: u64,
    outputs: usize,
    output_bytes: u64,
}

impl StoreLimits {
    const DEFAULT: Self =
        Self { store_bytes: MAX_STORE_BYTES, outputs: MAX_STORED_OUTPUTS, output_bytes: MAX_OUTPUT_BYTES };
}

fn open_folder(state_folder: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let state = rustix::fs::openat(CWD, state_folder, flags, Mode::empty())?;
    match rustix::fs::mkdirat(&state, OUTPUTS_FOLDER, OWNER_FOLDER) {
        // An earlier start created the folder, or someone planted a symlink. The next lines reject a symlink
        // and a foreign owner.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let folder = rustix::fs::openat(&state, OUTPUTS_FOLDER, flags | OFlags::NOFOLLOW, Mode::empty())?;
    if rustix::fs::fstat(&folder)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    // An existing folder can have wider permissions than a new one.
    rustix::fs::fchmod(&folder, OWNER_FOLDER)?;
    Ok(folder)
}

/// Returns the file name of a call's output. `None` if the id is not a plain name.
fn file_name(call_id: &str) -> Option<String> {
    // The id comes from a caller and must not escape the folder.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    ((1..=MAX_OUTPUT_ID_BYTES).contains(&call_id.len()) && call_id.bytes().all(is_plain))
        .then(|| format!("{call_id}{STORED}"))
}

/// Returns the first character boundary at or after an index.
fn boundary(bytes: &[u8], from: usize) -> usize {
    let is_continuation = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    from + bytes.get(from..).map_or(0, |rest| rest.iter().take_while(|byte| is_continuation(byte)).count())
}

const OUTPUTS_FOLDER: &str = "outputs";
const STORED: &str = ".output";
const TEMPORARY: &str = ".tmp";
const OWNER_FOLDER: Mode = Mode::RWXU;
const OWNER_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const MAX_OUTPUT_ID_BYTES: usize = 128;

/// The maximum length of a header: 256 KiB. A grant names mounts, hosts and limits, which need far less.
const MAX_HEADER_BYTES: u32 = 256 << 10;

/// The maximum number of bytes of a UTF-8 character after its first byte.
const MAX_CHAR_TAIL: u64 = 3;

/// A temporary file this old belongs to a process that died while writing it.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn owner() -> OutputOwner {
        OutputOwner { agent_id: "agent".into(), run_id: "run".into() }
    }

    fn store() -> (tempfile::TempDir, OutputStore) {
        let state = tempfile::tempdir().expect("temporary folder");
        let store = OutputStore::open(state.path()).expect("opens");
        (state, store)
    }

    fn files(state: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(state.path().join(OUTPUTS_FOLDER)).expect("lists");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[test]
    fn an_output_is_for_its_owner_alone() {
        let (state, store) = store();
        let grant = json!({"mounts": {"shared": "read"}});
        store.put("c_1", &owner(), &grant, "whole").expect("stores");
        let second_store = OutputStore::open(state.path()).expect("a second process opens it too");
        let page = second_store.read("c_1", &owner(), 0, 100).expect("reads");
        assert_eq!(page, OutputPage { text: "whole".into(), offset: 0, next_offset: None, total: 5 });
        assert_eq!(second_store.grant_of("c_1", &owner()).expect("reads"), grant);
        for (agent, run) in [("agent", "other"), ("other", "run"), ("", "")] {
            let stranger = OutputOwner { agent_id: agent.into(), run_id: run.into() };
            assert!(matches!(store.read("c_1", &stranger, 0, 1), Err(ReadRefusal::NotFound)));
            assert!(matches!(store.grant_of("c_1", &stranger), Err(ReadRefusal::NotFound)));
        }
        let mode = |path: &str| {
            std::fs::metadata(state.path().join(path)).expect("the path exists").permissions().mode() & 0o777
        };
        assert_eq!((mode("outputs"), mode("outputs/c_1.output")), (0o700, 0o600));
    }

    #[test]
    fn an_id_is_never_a_path_and_an_output_is_never_replaced() {
        let (state, store) = store();
        for id in ["", ".", "..", "../c", "a/b", "a.b", "a\0", "é", &"x".repeat(129)] {
            assert!(
                matches!(store.put(id, &owner(), &Value::Null, "t"), Err(OutputStoreError::InvalidId)),
                "{id}"
            );
            assert!(matches!(store.find(id, &owner()), Err(ReadRefusal::NotFound)), "{id}");
        }
        store.put("c", &owner(), &Value::Null, "first").expect("stores");
        assert!(matches!(store.put("c", &owner(), &Value::Null, "second"), Err(OutputStoreError::Taken)));
        assert_eq!(store.read("c", &owner(), 0, 100).expect("reads").text, "first");
        assert_eq!(files(&state), ["c.output"], "no temporary file stays");
    }

    #[test]
    fn links_and_files_that_are_not_stored_outputs_are_refused() {
        let (state, store) = store();
        let folder = state.path().join(OUTPUTS_FOLDER);
        store.put("c", &owner(), &Value::Null, "text").expect("stores");
        symlink(folder.join("c.output"), folder.join("link.output")).expect("links");
        std::fs::write(folder.join("short.output"), "x").expect("writes");
        std::fs::write(folder.join("large.output"), [0xff; 64]).expect("writes");
        std::fs::create_dir(folder.join("folder.output")).expect("makes");
        rustix::fs::mknodat(CWD, folder.join("fifo.output"), FileType::Fifo, OWNER_FILE, 0).expect("makes");
        for id in ["link", "short", "large", "folder", "fifo"] {
            let refused = store.read(id, &owner(), 0, 1).expect_err("must be refused");
            assert!(matches!(refused, ReadRefusal::Store(OutputStoreError::Read(_))), "{id}: {refused:?}");
        }
        let elsewhere = tempfile::tempdir().expect("temporary folder");
        symlink(&folder, elsewhere.path().join(OUTPUTS_FOLDER)).expect("links");
        assert!(matches!(OutputStore::open(elsewhere.path()), Err(OutputStoreError::Folder(_))));
    }

    #[test]
    fn the_oldest_outputs_are_evicted_at_a_limit() {
        let state = tempfile::tempdir().expect("temporary folder");
        let limits = StoreLimits { store_bytes: 1_000, outputs: 3, output_bytes: 800 };
        let store = OutputStore::open_with(state.path(), limits).expect("opens");
        let set_age = |id: &str, seconds: u64| {
            let file =
                File::options().write(true).open(state.path().join(OUTPUTS_FOLDER).join(id)).expect("opens");
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).expect("ages");
        };
        for (index, id) in ["a", "b", "c"].into_iter().enumerate() {
            store.put(id, &owner(), &Value::Null, "text").expect("stores");
            set_age(&format!("{id}.output"), 100 - u64::try_from(index).expect("small"));
        }
        std::fs::write(state.path().join(OUTPUTS_FOLDER).join("dead.tmp"), "x").expect("writes");
        set_age("dead.tmp", 3_600);
        store.put("d", &owner(), &Value::Null, "text").expect("stores");
        assert_eq!(files(&state), ["b.output", "c.output", "d.output"]);
        store.put("e", &owner(), &Value::Null, &"x".repeat(700)).expect("stores");
        assert_eq!(files(&state), ["c.output", "d.output", "e.output"]);
        store.put("f", &owner(), &Value::Null, &"x".repeat(700)).expect("stores");
        assert_eq!(files(&state), ["f.output"]);
        let refused = store.put("g", &owner(), &Value::Null, &"x".repeat(800));
        assert!(matches!(refused, Err(OutputStoreError::TooLarge { .. })));
    }

    #[test]
    fn a_page_never_splits_a_character() {
        let (_state, store) = store();
        store.put("c", &owner(), &Value::Null, "añ€😀z").expect("stores");
        let page = |offset, limit| {
            let page = store.read("c", &owner(), offset, limit).expect("reads");
            (page.text, page.offset, page.next_offset)
        };
        assert_eq!(page(0, 2), ("añ".into(), 0, Some(3)));
        assert_eq!(page(2, 2), ("€".into(), 3, Some(6)));
        assert_eq!(page(7, 1), (String::new(), 10, Some(10)));
        assert_eq!(page(6, 0), ("😀".into(), 6, Some(10)));
        assert_eq!(page(10, 5), ("z".into(), 10, None));
        assert_eq!(page(u64::MAX, u64::MAX), (String::new(), 11, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pages_fit_together(text in ".{0,60}", limit in 1_u64..20) {
            let (_state, store) = store();
            store.put("c", &owner(), &Value::Null, &text).expect("stores");
            let output = store.find("c", &owner()).expect("finds");
            let total = u64::try_from(text.len()).expect("fits");
            let steps = (0..=total / limit).map(|page| output.page(page * limit, limit).expect("reads").text);
            prop_assert_eq!(&steps.collect::<String>(), &text);
            let (mut followed, mut next) = (String::new(), Some(0));
            while let Some(offset) = next {
                let page = output.page(offset, limit).expect("reads");
                followed.push_str(&page.text);
                next = page.next_offset;
            }
            prop_assert_eq!(&followed, &text);
        }
    }
}
