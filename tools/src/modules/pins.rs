//! The lock file. It pins the module and the declarations of each tool that the operator approved, and lies
//! in the state folder, which no tool can reach.
//!
//! The file has no MAC. It is meant to be read: it says in words what was approved, so that a person can
//! review it. A MAC key would be in the same folder with the same permissions, so an attacker who can write
//! the file could also forge the MAC. The permissions of the folder protect the file. A file in any other
//! format than this module's is refused as a whole.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use portcullis_confine::bounded::{self, FinalSymlink};
use portcullis_policy::PinStatus;
use portcullis_types::{ToolName, is_deceptive, random_hex};
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{DeclarationSummary, InvalidLock, LockError};
use crate::sandbox::ModuleDigest;

/// The name of the lock file in the state folder.
pub const LOCK_FILE: &str = "portcullis.lock";

/// The maximum size of a lock file: 4 MiB, enough for thousands of tools.
const MAX_LOCK_BYTES: u64 = 4 << 20;

/// The version of the file format.
pub(super) const VERSION: u32 = 1;

/// The pin of one tool: the module and the declarations that the operator accepted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The path of the module's file. For people only, because a module can be moved.
    pub module: String,
    /// The SHA-256 of the module, in hexadecimal.
    pub module_sha256: String,
    /// The SHA-256 of the tool's declaration, in hexadecimal.
    pub declarations_sha256: String,
    /// The declared properties, in words. For people only: the hash is compared.
    #[serde(default)]
    pub declares: BTreeMap<String, String>,
}

/// All pins of a state folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins {
    path: PathBuf,
    pins: BTreeMap<ToolName, Pin>,
    sha256: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinsText {
    version: u32,
    #[serde(default)]
    tools: BTreeMap<ToolName, Pin>,
}

impl Pins {
    /// Reads the pins of a state folder. A missing file means no approvals.
    pub(crate) fn read(state: &Path) -> Result<Self, LockError> {
        let path = state.join(LOCK_FILE);
        let (pins, sha256) = match bounded::open_regular(&path, FinalSymlink::Refuse)
            .and_then(|file| bounded::read_text(file, MAX_LOCK_BYTES))
        {
            Ok(text) => (
                parse(&text).map_err(|reason| LockError::Malformed { path: path.clone(), reason })?,
                Some(hex::encode(Sha256::digest(&text))),
            ),
            Err(source) if source.kind() == io::ErrorKind::NotFound => (BTreeMap::new(), None),
            Err(source) => {
                return Err(match source.kind() {
                    io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::FileTooLarge => {
                        LockError::Malformed { path, reason: InvalidLock::File(source) }
                    }
                    _ => LockError::Read { path, source },
                });
            }
        };
        Ok(Self { path, pins, sha256 })
    }

    /// SHA-256 of the file, in hexadecimal. `None` if there is no file.
    pub(crate) fn sha256(&self) -> Option<&str> {
        self.sha256.as_deref()
    }

    /// The path of the lock file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The approval of a name.
    pub(crate) fn pin(&self, name: &ToolName) -> Option<&Pin> {
        self.pins.get(name)
    }

    /// The names of the approved tools.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &ToolName> {
        self.pins.keys()
    }

    /// Compares a tool's current module and declaration with its pin.
    pub(crate) fn pin_status(
        &self,
        name: &ToolName,
        module: ModuleDigest,
        declared: &DeclarationSummary,
    ) -> PinStatus {
        match self.pin(name) {
            None => PinStatus::Unpinned,
            Some(pin)
                if pin.module_sha256 == module.to_string()
                    && pin.declarations_sha256 == declared.sha256() =>
            {
                PinStatus::Approved
            }
            Some(_) => PinStatus::Quarantined,
        }
    }

    /// Pins a tool. The pin takes effect at the next start.
    pub(crate) fn pin_now(state: &Path, name: &ToolName, pin: Pin) -> Result<(), LockError> {
        Self::change_now(state, |pins| {
            pins.insert(name.clone(), pin);
        })
    }

    /// Withdraws the pin of a tool.
    pub(crate) fn unpin_now(state: &Path, name: &ToolName) -> Result<(), LockError> {
        Self::change_now(state, |pins| {
            pins.remove(name);
        })
    }

    /// Rereads the file under an exclusive lock on the folder, so that concurrent approvals of another
    /// process are kept.
    fn change_now(state: &Path, change: impl FnOnce(&mut BTreeMap<ToolName, Pin>)) -> Result<(), LockError> {
        let write_error = |source| LockError::Write { path: state.join(LOCK_FILE), source };
        let folder = File::open(state).map_err(write_error)?;
        // The lock is released when `folder` is closed.
        flock(&folder, FlockOperation::LockExclusive).map_err(|errno| write_error(errno.into()))?;
        let mut all = Self::read(state)?;
        change(&mut all.pins);
        // Without an fsync of the folder, a crash could undo the rename.
        write(&all.path, &render(&all.pins)).and_then(|()| folder.sync_all()).map_err(write_error)
    }
}

fn parse(text: &str) -> Result<BTreeMap<ToolName, Pin>, InvalidLock> {
    let text: PinsText = toml::from_str(text).map_err(|error| {
        // Escape the bare message. The error's own rendering quotes the line, and a forged lock file can
        // contain any text.
        InvalidLock::Syntax(portcullis_types::escape_for_display(error.message()).to_string())
    })?;
    if text.version != VERSION {
        return Err(InvalidLock::Version { found: text.version });
    }
    for (name, pin) in &text.tools {
        for (key, hash) in
            [("module_sha256", &pin.module_sha256), ("declarations_sha256", &pin.declarations_sha256)]
        {
            let digits = hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if hash.len() != 64 || !digits {
                return Err(InvalidLock::Hash { tool: name.clone(), key });
            }
        }
    }
    Ok(text.tools)
}

fn render(pins: &BTreeMap<ToolName, Pin>) -> String {
    let mut out = String::from(
        "# The tools that `portcullis tool approve` pinned. A tool whose module or declarations differ from these is\n\
         # quarantined until it is approved again. `portcullis tool revoke` withdraws an approval.\n\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(out, "version = {VERSION}");
    for (name, pin) in pins {
        let _ = writeln!(
            out,
            "\n[tools.{name}]\nmodule = {}\nmodule_sha256 = {}\ndeclarations_sha256 = {}\n\n[tools.{name}.declares]",
            quoted(&pin.module),
            quoted(&pin.module_sha256),
            quoted(&pin.declarations_sha256)
        );
        for (key, text) in &pin.declares {
            let _ = writeln!(out, "{} = {}", bare_or_quoted(key), quoted(text));
        }
    }
    out
}

fn bare_or_quoted(key: &str) -> String {
    let is_bare_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_bare_key { key.to_owned() } else { quoted(key) }
}

/// Formats a TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            character if is_deceptive(character) => {
                let _ = write!(out, "\\U{:08X}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

/// Replaces the file atomically: writes a temporary file, then renames it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(random_hex::<8>()?);
    let result =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        });
    if result.is_err() {
        // A leftover temporary file is harmless, so ignore this error.
        let _ = fs::remove_file(&temporary);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn pin(byte: &str) -> Pin {
        Pin {
            module: "a \"b\"\\\u{202e}\n.wasm".to_owned(),
            module_sha256: byte.repeat(32),
            declarations_sha256: byte.repeat(32),
            declares: BTreeMap::from([("tier".to_owned(), "ünknown \\u{7}".to_owned())]),
        }
    }

    fn name(text: &str) -> ToolName {
        ToolName::parse(text).expect("a name")
    }

    #[test]
    fn pin_is_read_back_and_other_pins_stay() {
        let state = tempfile::tempdir().expect("a folder");
        assert_eq!(Pins::read(state.path()).expect("none yet").tools().count(), 0);
        Pins::pin_now(state.path(), &name("one"), pin("0a")).expect("written");
        Pins::pin_now(state.path(), &name("two"), pin("0b")).expect("written");
        Pins::pin_now(state.path(), &name("one"), pin("0c")).expect("written");
        let pins = Pins::read(state.path()).expect("reads");
        assert_eq!(pins.pin(&name("one")), Some(&pin("0c")));
        assert_eq!(pins.pin(&name("two")), Some(&pin("0b")));
        Pins::unpin_now(state.path(), &name("two")).expect("written");
        Pins::unpin_now(state.path(), &name("three")).expect("there is none, and none is left");
        let remaining: Vec<_> = Pins::read(state.path()).expect("reads").tools().cloned().collect();
        assert_eq!(remaining, [name("one")]);
        let mode = fs::metadata(pins.path()).expect("the path exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(state.path()).expect("readable").count(), 1, "nothing is left over");
    }

    #[test]
    fn malformed_lock_is_refused() {
        let state = tempfile::tempdir().expect("a folder");
        Pins::pin_now(state.path(), &name("one"), pin("0a")).expect("written");
        let path = state.path().join(LOCK_FILE);
        let valid_lock = fs::read_to_string(&path).expect("readable");
        for (from, to) in [
            ("version = 1", "version = 2"),
            ("version = 1\n", ""),
            ("[tools.one]", "[tools.One]"),
            ("[tools.one]", "[tool.one]"),
            ("module_sha256 = \"0a", "module_sha256 = \"0A"),
            ("module_sha256 = \"0a", "module_sha256 = \""),
            ("module_sha256", "module_sha512"),
            ("declarations_sha256 = \"", "declarations_sha256 = 3 # \""),
            ("version = 1", "version = 1\nversion = 1"),
            ("version = 1", "version = 1\ntrusted = true"),
            ("[tools.one]", "[tools.one]\napproval = \"allow\""),
            ("version = 1", "\u{0}"),
        ] {
            assert!(valid_lock.contains(from), "{from}");
            fs::write(&path, valid_lock.replacen(from, to, 1)).expect("written");
            let error = Pins::read(state.path()).expect_err(to);
            assert!(matches!(error, LockError::Malformed { .. }), "{error:?}");
            let lock_before = fs::read(&path).expect("readable");
            Pins::pin_now(state.path(), &name("two"), pin("0b")).expect_err("nothing is written over it");
            assert_eq!(fs::read(&path).expect("readable"), lock_before);
        }
        fs::write(&path, vec![b'#'; (4 << 20) + 1]).expect("written");
        assert!(matches!(Pins::read(state.path()), Err(LockError::Malformed { .. })));
        fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(matches!(Pins::read(state.path()), Err(LockError::Malformed { .. })));
        fs::write(state.path().join("elsewhere"), &valid_lock).expect("written");
        fs::remove_file(&path).expect("removed");
        symlink(state.path().join("elsewhere"), &path).expect("links");
        assert!(Pins::read(state.path()).is_err(), "a link");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("the folder can be made");
        assert!(Pins::read(state.path()).is_err(), "a folder");
    }
}
