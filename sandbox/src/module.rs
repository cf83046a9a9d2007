//! [`GuestModule`]: a guest module, its compiled code and its linking.

use std::{
    fmt,
    sync::{Mutex, OnceLock, PoisonError},
};

use sha2::{Digest, Sha256};
use wasmtime::{Engine, ExternType, InstancePre, Linker, Module, UnknownImportError};

use super::{WasmError, guest::GuestState};

/// Limit of a module: 16 MiB.
pub const MAX_MODULE_BYTES: usize = 16 << 20;

/// Limit of the unknown imports that a refusal names.
const MAX_NAMED_IMPORTS: usize = 32;

/// Limit of an import's name in a refusal, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// The SHA-256 of a module's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleDigest(pub [u8; 32]);

impl ModuleDigest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A module that this program carries.
#[derive(Debug)]
pub struct EmbeddedModule {
    /// A short name, for listings and faults.
    pub name: &'static str,
    /// Its bytes.
    pub wasm: &'static [u8],
    /// Their digest.
    pub digest: ModuleDigest,
    /// Its answer to `describe`, as JSON.
    pub declarations: &'static str,
}

/// A module that can be called. Its code is loaded on first use, since most processes call few of the modules
/// that they know.
pub struct GuestModule {
    digest: ModuleDigest,
    /// The module as this program carries it, if it does.
    embedded: Option<&'static EmbeddedModule>,
    linked: OnceLock<LinkedModule>,
    /// Held while the code is loaded, so that it is loaded only once.
    loading: Mutex<()>,
}

impl GuestModule {
    /// The module's digest.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.digest
    }

    /// A module that this program carries.
    pub(super) fn of_embedded(module: &'static EmbeddedModule) -> Self {
        Self { embedded: Some(module), ..Self::cached(module.digest) }
    }

    /// The module as this program carries it, if it does.
    pub(super) fn embedded(&self) -> Option<&'static EmbeddedModule> {
        self.embedded
    }

    /// A module whose code is in the cache.
    pub(super) fn cached(digest: ModuleDigest) -> Self {
        Self { digest, embedded: None, linked: OnceLock::new(), loading: Mutex::new(()) }
    }

    /// A module whose code is loaded already.
    ///
    /// # Errors
    /// As [`Self::ready`].
    pub(super) fn linked(
        digest: ModuleDigest,
        linker: &Linker<GuestState>,
        code: &Module,
    ) -> Result<Self, WasmError> {
        let module = Self::cached(digest);
        module.ready(linker, |_| Ok(code.clone()))?;
        Ok(module)
    }

    /// Returns the module linked against WASI preview 1, which is all that guests may import. `load` is
    /// called once for the code; its argument is the module's own bytes.
    ///
    /// # Errors
    /// Those of `load`, and [`WasmError::Link`] for a module that has other imports.
    pub(super) fn ready(
        &self,
        linker: &Linker<GuestState>,
        load: impl FnOnce(Option<&'static [u8]>) -> Result<Module, WasmError>,
    ) -> Result<&LinkedModule, WasmError> {
        if let Some(linked) = self.linked.get() {
            return Ok(linked);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(linked) = self.linked.get() {
            return Ok(linked);
        }
        let code = load(self.embedded.map(|module| module.wasm))?;
        // The initial memory image is mapped from a memfd, which a confined worker could not create.
        code.initialize_copy_on_write_image().map_err(|source| WasmError::Compile { source })?;
        let linked = linker
            .instantiate_pre(&code)
            .map_err(|error| WasmError::Link { source: naming_all(linker, &code, error) })?;
        Ok(self.linked.get_or_init(|| LinkedModule(linked)))
    }
}

/// Lists all unknown imports of a module; the engine's own error names only the first. Returns an error of
/// another kind unchanged.
fn naming_all(linker: &Linker<GuestState>, code: &Module, error: wasmtime::Error) -> wasmtime::Error {
    let mut linker = linker.clone();
    let mut unknown = Vec::new();
    let mut last = error;
    while let Some(missing) = last.downcast_ref::<UnknownImportError>() {
        unknown.push(format!("`{}`", shown(&format!("{}::{}", missing.module(), missing.name()))));
        // Define a stand-in, so that the next attempt names the next import.
        let stood_in = match missing.ty() {
            ExternType::Func(ty) if unknown.len() < MAX_NAMED_IMPORTS => linker
                .func_new(missing.module(), missing.name(), ty, |_, _, _| {
                    Err(wasmtime::Error::msg("no guest gets this"))
                })
                .is_ok(),
            _ => false,
        };
        if !stood_in {
            unknown.push("…".to_owned());
            break;
        }
        match linker.instantiate_pre(code) {
            Ok(_) => break,
            Err(error) => last = error,
        }
    }
    if unknown.is_empty() {
        return last;
    }
    wasmtime::Error::msg(format!("it imports what no guest gets: {}", unknown.join(", ")))
}

/// Limit of the standard error that is quoted when a module does not describe itself, in characters.
const MAX_LAST_CHARS: usize = 512;

/// The end of a guest's standard error, where a panic's message is, as part of one line.
pub(super) fn last_words(stderr: &str) -> String {
    let stderr = stderr.trim();
    if stderr.is_empty() {
        return String::new();
    }
    let surplus = stderr.chars().count().saturating_sub(MAX_LAST_CHARS);
    let last: String =
        stderr.chars().skip(surplus).map(|sign| if sign == '\n' { ' ' } else { sign }).collect();
    format!("; it wrote: {}", portcullis_types::escape_for_display(&last))
}

/// A name from a module, shortened and escaped for one line.
pub(super) fn shown(name: &str) -> String {
    let short: String = name.chars().take(MAX_SHOWN_CHARS).collect();
    portcullis_types::escape_for_display(&short).to_string()
}

/// A module that is ready to be instantiated.
#[derive(Clone)]
pub(super) struct LinkedModule(pub(super) InstancePre<GuestState>);

impl fmt::Debug for LinkedModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkedModule")
    }
}

impl fmt::Debug for GuestModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestModule").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// Compiles a module's bytes: the slow path that the cache avoids.
pub(super) fn compile(engine: &Engine, wasm: &[u8]) -> Result<Module, WasmError> {
    check_size(wasm)?;
    Module::from_binary(engine, wasm).map_err(|source| WasmError::Compile { source })
}

pub(super) fn check_size(wasm: &[u8]) -> Result<(), WasmError> {
    if wasm.len() > MAX_MODULE_BYTES {
        return Err(WasmError::ModuleTooLarge { bytes: wasm.len(), limit: MAX_MODULE_BYTES });
    }
    Ok(())
}
