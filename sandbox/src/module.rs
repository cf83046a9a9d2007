//! [`GuestModule`]: a guest module with its compiled and linked code.

use std::{fmt, sync::OnceLock};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use wasmtime::{Engine, ExternType, InstancePre, Linker, Module, UnknownImportError};

use super::{WasmError, guest::GuestState};

/// The maximum size of a module: 16 MiB.
pub const MAX_MODULE_BYTES: usize = 16 << 20;

/// The maximum number of unknown imports that a refusal names.
const MAX_NAMED_IMPORTS: usize = 32;

/// The maximum length of an import's name in a refusal, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// The SHA-256 of a module's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleDigest(pub [u8; 32]);

impl ModuleDigest {
    /// Computes the digest of some bytes.
    #[must_use]
    pub fn compute(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A module that is embedded in this program.
#[derive(Debug)]
pub struct EmbeddedModule {
    /// A short name for listings and faults.
    pub name: &'static str,
    /// The module's bytes.
    pub wasm: &'static [u8],
    /// The digest of the bytes.
    pub digest: ModuleDigest,
    /// The module's answer to `describe`, as JSON.
    pub declarations: &'static str,
}

/// A module that can be called. Its code is loaded on first use, because most processes call few of the
/// modules that they know.
pub struct GuestModule {
    digest: ModuleDigest,
    /// The embedded module, if this program contains it.
    embedded: Option<&'static EmbeddedModule>,
    linked: OnceLock<LinkedModule>,
    /// Held while the code is loaded, so that two concurrent calls load it only once.
    loading: Mutex<()>,
}

impl GuestModule {
    /// Returns the module's digest.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.digest
    }

    /// Wraps a module that is embedded in this program.
    pub(super) fn from_embedded(module: &'static EmbeddedModule) -> Self {
        Self { embedded: Some(module), ..Self::cached(module.digest) }
    }

    /// Returns the embedded module, if this program contains it.
    pub(super) fn embedded(&self) -> Option<&'static EmbeddedModule> {
        self.embedded
    }

    /// Wraps a module whose code is in the cache.
    pub(super) fn cached(digest: ModuleDigest) -> Self {
        Self { digest, embedded: None, linked: OnceLock::new(), loading: Mutex::new(()) }
    }

    /// Wraps a module whose code is already loaded.
    ///
    /// # Errors
    /// As in [`Self::ready`].
    pub(super) fn linked(
        digest: ModuleDigest,
        linker: &Linker<GuestState>,
        code: &Module,
    ) -> Result<Self, WasmError> {
        let module = Self::cached(digest);
        module.ready(linker, |_| Ok(code.clone()))?;
        Ok(module)
    }

    /// Returns whether the code is already loaded, so that a call need not wait for it.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.linked.get().is_some()
    }

    /// Returns the module linked against WASI preview 1 and the functions for HTTP requests and locks.
    /// Guests can import nothing else. `load` is called once to load the code. Its argument holds the
    /// module's bytes if the module is embedded.
    ///
    /// # Errors
    /// The errors of `load`, and [`WasmError::Link`] for a module that has other imports.
    pub(super) fn ready(
        &self,
        linker: &Linker<GuestState>,
        load: impl FnOnce(Option<&'static [u8]>) -> Result<Module, WasmError>,
    ) -> Result<&LinkedModule, WasmError> {
        if let Some(linked) = self.linked.get() {
            return Ok(linked);
        }
        let _loading = self.loading.lock();
        // Check again, because another call may have loaded the code while this one waited for the lock.
        if let Some(linked) = self.linked.get() {
            return Ok(linked);
        }
        let code = load(self.embedded.map(|module| module.wasm))?;
        // The initial memory image is mapped from a memfd, which a confined worker cannot create.
        code.initialize_copy_on_write_image().map_err(|source| WasmError::Compile { source })?;
        let linked = linker
            .instantiate_pre(&code)
            .map_err(|error| WasmError::Link { source: list_unknown_imports(linker, &code, error) })?;
        Ok(self.linked.get_or_init(|| LinkedModule(linked)))
    }
}

/// Names all unknown imports of a module in one error, because the engine's own error names only the first.
/// Any other error is returned unchanged.
fn list_unknown_imports(
    linker: &Linker<GuestState>,
    code: &Module,
    error: wasmtime::Error,
) -> wasmtime::Error {
    let mut linker = linker.clone();
    let mut unknown = Vec::new();
    let mut last_error = error;
    while let Some(missing) = last_error.downcast_ref::<UnknownImportError>() {
        unknown.push(format!("`{}`", escape_truncated(&format!("{}::{}", missing.module(), missing.name()))));
        // Define a stub, so that the next attempt names the next import.
        let is_stubbed = match missing.ty() {
            ExternType::Func(ty) if unknown.len() < MAX_NAMED_IMPORTS => linker
                .func_new(missing.module(), missing.name(), ty, |_, _, _| {
                    Err(wasmtime::Error::msg("this import is not available to guests"))
                })
                .is_ok(),
            _ => false,
        };
        if !is_stubbed {
            unknown.push("…".to_owned());
            break;
        }
        match linker.instantiate_pre(code) {
            Ok(_) => break,
            Err(error) => last_error = error,
        }
    }
    if unknown.is_empty() {
        return last_error;
    }
    wasmtime::Error::msg(format!("it imports functions that guests cannot have: {}", unknown.join(", ")))
}

/// The maximum length of the standard error that is quoted if a module fails to describe itself, in
/// characters.
const MAX_LAST_CHARS: usize = 512;

/// Returns the end of a guest's standard error, which contains a panic's message, as part of one line.
pub(super) fn stderr_tail(stderr: &str) -> String {
    let stderr = stderr.trim();
    if stderr.is_empty() {
        return String::new();
    }
    let surplus = stderr.chars().count().saturating_sub(MAX_LAST_CHARS);
    let last_output: String = stderr
        .chars()
        .skip(surplus)
        .map(|character| if character == '\n' { ' ' } else { character })
        .collect();
    format!("; it wrote: {}", portcullis_types::escape_for_display(&last_output))
}

/// Returns a name from a module, truncated and escaped for one line.
pub(super) fn escape_truncated(name: &str) -> String {
    let short: String = name.chars().take(MAX_SHOWN_CHARS).collect();
    portcullis_types::escape_for_display(&short).to_string()
}

/// A module that is ready to be instantiated.
#[derive(Clone)]
pub(super) struct LinkedModule(pub(super) InstancePre<GuestState>);

impl LinkedModule {
    /// Returns whether the module imports a function from this host module.
    pub(super) fn imports_from(&self, host_module: &str) -> bool {
        self.0.module().imports().any(|import| import.module() == host_module)
    }
}

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

/// Compiles a module's bytes. The cache avoids this slow path.
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
