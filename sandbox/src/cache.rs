//! Caches compiled modules on disk, so that a start does not repeat the compilation of an earlier start.
//!
//! A compiled module is native code: an attacker who can change the file can run anything in this process. The folder
//! is therefore private to the user, and is outside all mounts. A file is read once, and its keyed MAC is checked
//! over the same bytes that are then loaded. A file that fails the check is removed, and its module is compiled again:
//! a trusted module immediately, a foreign module at the next start.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use hmac::{Hmac, Mac};
use portcullis_types::random_hex;
use rustix::fs::OFlags;
use sha2::Sha256;
use wasmtime::{Engine, Module};

use super::{
    ModuleDigest, WasmError,
    module::{check_size, compile},
};

/// The maximum size of a compiled module that is read back: 256 MiB. Code is a few times the size of its module.
const MAX_ENTRY_BYTES: u64 = 256 << 20;

const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 32;

/// A cache in one folder. Several workspaces may share the folder.
#[derive(Debug)]
pub(super) struct ModuleCache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
    engine_tag: Vec<u8>,
}

/// The kind of an entry. The kind is part of the MAC, so that an entry cannot be mistaken for an entry of another kind.
#[derive(Debug, Clone, Copy)]
enum CacheKind {
    Code,
    Refusal,
    Declarations,
}

impl ModuleCache {
    /// Opens the cache in `parent/modules`. Creates the folder and the key on first use.
    pub(super) fn open(parent: &Path, engine: &Engine) -> Result<Self, WasmError> {
        let cache = |source| WasmError::Cache { source };
        let folder = parent.join("modules");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(cache)?;
        ensure_private(&folder).map_err(cache)?;
        let key = read_or_make_key(&folder.join("key")).map_err(cache)?;
        Ok(Self { folder, key, engine_tag: engine_tag(engine) })
    }

    /// Returns the module with these bytes: from the cache if it has a genuine entry, otherwise compiled and then
    /// stored.
    pub(super) fn load_or_compile(
        &self,
        engine: &Engine,
        wasm: &[u8],
        digest: ModuleDigest,
    ) -> Result<Module, WasmError> {
        check_size(wasm)?;
        if let Some(module) = self.load(engine, digest) {
            return Ok(module);
        }
        let module = compile(engine, wasm)?;
        match module.serialize() {
            Ok(code) => self.store_code(digest, &code),
            Err(error) => tracing::warn!(%error, "cannot store the compiled module"),
        }
        Ok(module)
    }

    /// Returns the module with this digest, if the cache has a genuine entry.
    pub(super) fn load(&self, engine: &Engine, digest: ModuleDigest) -> Option<Module> {
        self.load_code(engine, &self.code_path(digest), digest)
    }

    /// Loads native code that the compiling process has just returned, and stores it.
    pub(super) fn adopt(
        &self,
        engine: &Engine,
        digest: ModuleDigest,
        code: &[u8],
    ) -> Result<Module, WasmError> {
        let module = deserialize(engine, code).map_err(|source| WasmError::Load { source })?;
        self.store_code(digest, code);
        Ok(module)
    }

    /// Returns whether the cache has an entry for a module. Only loading the entry shows whether it is
    /// genuine.
    pub(super) fn contains(&self, digest: ModuleDigest) -> bool {
        self.code_path(digest).is_file()
    }

    /// Loads the cached answer of a module to the verb `describe`.
    pub(super) fn load_declarations(&self, digest: ModuleDigest) -> Option<String> {
        let bytes =
            self.read_verified_or_remove(&self.declarations_path(digest), CacheKind::Declarations, digest)?;
        String::from_utf8(bytes).ok()
    }

    /// Stores a module's answer to `describe`, so that the module is queried only once.
    pub(super) fn store_declarations(&self, digest: ModuleDigest, text: &str) {
        let path = self.declarations_path(digest);
        if let Err(error) = self.write(&path, CacheKind::Declarations, digest, text.as_bytes()) {
            tracing::warn!(%error, path = %path.display(), "cannot store the declarations of a module");
        }
    }

    fn declarations_path(&self, digest: ModuleDigest) -> PathBuf {
        self.folder.join(format!("{digest}.json"))
    }

    /// Loads the reason why an earlier start could not compile a module.
    pub(super) fn load_refusal(&self, digest: ModuleDigest) -> Option<String> {
        let bytes = self.read_verified_or_remove(&self.refusal_path(digest), CacheKind::Refusal, digest)?;
        String::from_utf8(bytes).ok()
    }

    /// Stores the reason why a module cannot be compiled.
    pub(super) fn store_refusal(&self, digest: ModuleDigest, reason: &str) {
        let path = self.refusal_path(digest);
        if let Err(error) = self.write(&path, CacheKind::Refusal, digest, reason.as_bytes()) {
            tracing::warn!(%error, path = %path.display(), "cannot store the refusal of a module");
        }
    }

    fn refusal_path(&self, digest: ModuleDigest) -> PathBuf {
        self.folder.join(format!("{digest}.refused"))
    }

    fn store_code(&self, digest: ModuleDigest, code: &[u8]) {
        let path = self.code_path(digest);
        if let Err(error) = self.write(&path, CacheKind::Code, digest, code) {
            tracing::warn!(%error, path = %path.display(), "cannot store the compiled module");
        }
    }

    fn code_path(&self, digest: ModuleDigest) -> PathBuf {
        self.folder.join(format!("{digest}.cwasm"))
    }

    fn load_code(&self, engine: &Engine, path: &Path, digest: ModuleDigest) -> Option<Module> {
        match deserialize(engine, &self.read_verified_or_remove(path, CacheKind::Code, digest)?) {
            Ok(module) => Some(module),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "cannot load the compiled module");
                None
            }
        }
    }

    /// Reads a file's content and checks its MAC: this user must have written it for this engine. Removes a file that
    /// fails the check.
    fn read_verified_or_remove(&self, path: &Path, kind: CacheKind, digest: ModuleDigest) -> Option<Vec<u8>> {
        let mut bytes = match read_private(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "cannot read the stored facts of a module");
                return None;
            }
        };
        let split = bytes
            .len()
            .checked_sub(MAC_BYTES)
            .and_then(|content_bytes| bytes.split_at_checked(content_bytes));
        let is_authentic =
            split.is_some_and(|(content, tag)| self.mac(kind, digest, content).verify_slice(tag).is_ok());
        if !is_authentic {
            tracing::warn!(path = %path.display(), "a cached file is damaged or of another version: it is made again");
            // The next start then finds no file and compiles again. A failure to remove the file is
            // ignored.
            let _ = fs::remove_file(path);
            return None;
        }
        bytes.truncate(bytes.len() - MAC_BYTES);
        Some(bytes)
    }

    fn write(&self, path: &Path, kind: CacheKind, digest: ModuleDigest, content: &[u8]) -> io::Result<()> {
        let temporary = self.folder.join(format!(".{digest}.{}", random_hex::<8>()?));
        let tag = self.mac(kind, digest, content).finalize().into_bytes();
        // The file is not synced to disk: a file truncated by a crash fails its MAC check and is written
        // again.
        let result = new_private(&temporary).and_then(|mut file| {
            file.write_all(content)?;
            file.write_all(&tag)?;
            fs::rename(&temporary, path)
        });
        if result.is_err() {
            // Best effort: a leftover temporary file does no harm.
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    /// Returns a MAC over the kind, the module's digest, the engine's version and settings, and the
    /// content.
    fn mac(&self, kind: CacheKind, digest: ModuleDigest, content: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(&[kind as u8]);
        mac.update(&digest.0);
        // The length separates the tag from the content.
        mac.update(&(self.engine_tag.len() as u64).to_le_bytes());
        mac.update(&self.engine_tag);
        mac.update(content);
        mac
    }
}

/// Loads native code whose MAC was just checked, or which the compiling process has just written.
#[expect(
    unsafe_code,
    reason = "the one way to load compiled code; the design names this place beside confine/src/sys.rs"
)]
fn deserialize(engine: &Engine, code: &[u8]) -> wasmtime::Result<Module> {
    // SAFETY: an engine of this version and these settings made the bytes. Either the caller has checked a MAC over
    // them with a key that only this user can read. Or they came through a pipe from the process that the operator
    // named as the compiler, which writes only output of its engine. The bytes are in this process's memory, so no
    // other process can change them.
    unsafe { Module::deserialize(engine, code) }
}

/// Returns a tag of everything that makes the code of one engine unusable for another: version, target,
/// settings.
fn engine_tag(engine: &Engine) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hash, Hasher};

    // `DefaultHasher::new` has fixed keys, so all processes of one build agree on the tag. A build with
    // another hash only compiles again.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish().to_le_bytes().to_vec()
}

fn read_or_make_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    loop {
        match read_key(path) {
            Ok(bytes) => match bytes.try_into() {
                Ok(key) => return Ok(key),
                // The file has no whole key: it is truncated, or `read_key` rejected it. Replace it by a
                // new key.
                Err(_) => fs::remove_file(path)?,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(io::Error::from)?;
        let temporary = path.with_extension(random_hex::<8>()?);
        new_private(&temporary)?.write_all(&key)?;
        // Unlike a rename, a hard link does not replace a key that another process has created in the
        // meantime.
        let linked = fs::hard_link(&temporary, path);
        fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => return Ok(key),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads the key, if no other user can have read or written it. Otherwise returns no bytes: the caller
/// creates a new key, and everything cached under the old key is compiled again.
fn read_key(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_private(path)?;
    let metadata = file.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.mode() & 0o077 != 0
        || !metadata.is_file()
    {
        tracing::warn!(
            path = %path.display(),
            mode = format_args!("{:04o}", metadata.mode() & 0o7777),
            owner = metadata.uid(),
            "other users could have the key of the module cache: a new key is made, and modules are compiled again"
        );
        return Ok(Vec::new());
    }
    read_all(file)
}

/// Refuses a folder of another user, and removes the access of other users to this user's folder.
fn ensure_private(folder: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = File::from(rustix::fs::open(folder, flags, rustix::fs::Mode::empty())?);
    let metadata = handle.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "`{}` belongs to user {}, who could have put code there; remove it",
            folder.display(),
            metadata.uid()
        )));
    }
    if metadata.mode() & 0o077 != 0 {
        // Use the handle, because the name may now lead to another folder (TOCTOU race).
        handle.set_permissions(fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn new_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    read_all(open_private(path)?)
}

fn open_private(path: &Path) -> io::Result<File> {
    // `NOFOLLOW`, so that a planted symlink cannot lead to another file. `NONBLOCK`, so that a FIFO cannot
    // block the open.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).expect("small flags");
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn read_all(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_ENTRY_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";

    fn entry(state: &Path) -> PathBuf {
        state.join("modules").join(format!("{}.cwasm", ModuleDigest::compute(EMPTY_MODULE)))
    }

    fn loads(state: &Path, engine: &Engine) -> Option<Module> {
        let cache = ModuleCache::open(state, engine).expect("opens");
        cache.load_code(engine, &entry(state), ModuleDigest::compute(EMPTY_MODULE))
    }

    #[test]
    fn only_an_untouched_entry_under_our_key_is_loaded() {
        let state = tempfile::tempdir().expect("a folder");
        let engine = Engine::default();
        let cache = ModuleCache::open(state.path(), &engine).expect("opens");
        let digest = ModuleDigest::compute(EMPTY_MODULE);
        cache.load_or_compile(&engine, EMPTY_MODULE, digest).expect("compiles");
        assert!(loads(state.path(), &engine).is_some());

        let genuine = fs::read(entry(state.path())).expect("readable");
        for position in [0, genuine.len() / 2, genuine.len() - 1] {
            let mut forged = genuine.clone();
            forged[position] ^= 1;
            fs::write(entry(state.path()), &forged).expect("written");
            assert!(loads(state.path(), &engine).is_none(), "byte {position} changed");
        }
        for cut in [0, 5, genuine.len() - 1] {
            fs::write(entry(state.path()), &genuine[..cut]).expect("written");
            assert!(loads(state.path(), &engine).is_none(), "cut to {cut}");
        }
        fs::write(entry(state.path()), &genuine).expect("written");
        assert!(loads(state.path(), &engine).is_some());
        fs::write(state.path().join("modules/key"), [7; KEY_BYTES]).expect("written");
        assert!(loads(state.path(), &engine).is_none(), "another key");
    }

    #[test]
    fn a_key_that_others_could_read_is_replaced() {
        let state = tempfile::tempdir().expect("a folder");
        let engine = Engine::default();
        let cache = ModuleCache::open(state.path(), &engine).expect("opens");
        cache.load_or_compile(&engine, EMPTY_MODULE, ModuleDigest::compute(EMPTY_MODULE)).expect("compiles");
        let key = state.path().join("modules/key");
        let before = fs::read(&key).expect("readable");
        for mode in [0o604, 0o640, 0o622] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("opened");
            assert!(loads(state.path(), &engine).is_none(), "{mode:o}");
            assert_eq!(fs::metadata(&key).expect("the path exists").mode() & 0o777, 0o600);
        }
        assert_ne!(fs::read(&key).expect("readable"), before);
        let folder = state.path().join("modules");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("opened");
        ModuleCache::open(state.path(), &engine).expect("closes it");
        assert_eq!(fs::metadata(&folder).expect("the path exists").mode() & 0o777, 0o700);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&key, Some(12345), None).expect("given away");
            ModuleCache::open(state.path(), &engine).expect("makes another key");
            assert_eq!(fs::metadata(&key).expect("the path exists").uid(), 0);
            std::os::unix::fs::chown(&folder, Some(12345), None).expect("given away");
            ModuleCache::open(state.path(), &engine).expect_err("somebody else's folder");
        }
    }

    #[test]
    fn an_entry_of_another_module_or_engine_is_not_loaded() {
        let state = tempfile::tempdir().expect("a folder");
        let engine = Engine::default();
        let cache = ModuleCache::open(state.path(), &engine).expect("opens");
        cache.load_or_compile(&engine, EMPTY_MODULE, ModuleDigest::compute(EMPTY_MODULE)).expect("compiles");
        let other_digest = ModuleDigest::compute(b"other");
        assert!(cache.load_code(&engine, &entry(state.path()), other_digest).is_none());
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        let other_engine = Engine::new(&config).expect("builds");
        assert!(loads(state.path(), &other_engine).is_none());
    }
}
