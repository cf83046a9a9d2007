//! The modules embedded in this program, with their digests and declarations.
//!
//! The digests are computed at build time, and the declarations are files beside this one. Startup therefore
//! neither hashes a module nor compiles it to query its tools; the module is compiled on the first call. A
//! test compares the files with the modules, and `UPDATE_GOLDEN=1 cargo test -p portcullis-tools embedded`
//! rewrites them.

use crate::sandbox::{EmbeddedModule, ModuleDigest};

/// A module, compiled from `guest-tools/` by this crate's build script.
macro_rules! embedded {
    ($name:literal, $path:literal, $digest:literal) => {
        EmbeddedModule {
            name: $name,
            wasm: include_bytes!(env!($path)),
            digest: ModuleDigest(*include_bytes!(env!($digest))),
            declarations: include_str!(concat!("embedded/", $name, ".json")),
        }
    };
}

/// The core tools.
pub(crate) static CORE: EmbeddedModule =
    embedded!("core", "PORTCULLIS_CORE_TOOLS", "PORTCULLIS_CORE_TOOLS_DIGEST");

/// The step of `web_fetch` that reads PDF files.
pub(crate) static PDF_STEPS: EmbeddedModule =
    embedded!("pdf", "PORTCULLIS_PDF_TOOLS", "PORTCULLIS_PDF_TOOLS_DIGEST");

/// The core tools that search.
pub(crate) static SEARCH: EmbeddedModule =
    embedded!("search", "PORTCULLIS_SEARCH_TOOLS", "PORTCULLIS_SEARCH_TOOLS_DIGEST");

/// The steps of `vault_copyto`.
pub(crate) static VAULT_STEPS: EmbeddedModule =
    embedded!("vault", "PORTCULLIS_VAULT_TOOLS", "PORTCULLIS_VAULT_TOOLS_DIGEST");

/// The steps of `web_fetch` and `web_search` that read the fetched bytes.
pub(crate) static WEB_STEPS: EmbeddedModule =
    embedded!("web", "PORTCULLIS_WEB_TOOLS", "PORTCULLIS_WEB_TOOLS_DIGEST");

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use portcullis_confine::Requirement;
    use portcullis_policy::ProtectedPaths;
    use serde_json::Value;

    use super::*;
    use crate::sandbox::{CompileLimits, HostWasmToolRunner, RunnerConfig, mounts::MountTable};

    #[tokio::test]
    async fn the_declaration_files_match_the_modules() {
        let state = tempfile::tempdir().expect("a folder");
        let runner = HostWasmToolRunner::new(RunnerConfig {
            state: state.path().to_owned(),
            cache: state.path().to_owned(),
            mounts: Arc::new(MountTable::default()),
            protected: Arc::new(ProtectedPaths::parse([]).expect("no pattern")),
            hidden: Arc::default(),
            landlock: Requirement::Waived,
            seccomp: Requirement::Waived,
            concurrency: 1,
            compiler: None,
            compile_limits: CompileLimits::default(),
        })
        .expect("a runner");
        for module in [&CORE, &PDF_STEPS, &SEARCH, &VAULT_STEPS, &WEB_STEPS] {
            assert_eq!(module.digest, ModuleDigest::compute(module.wasm), "{}", module.name);
            // Load the bytes like any trusted module, so that the declarations come from the module and not
            // from the file.
            let loaded = runner.load(module.wasm).expect("loads");
            let declarations = runner.describe(&loaded).await.expect("describes itself");
            let declared = serde_json::to_value(&declarations).expect("JSON");
            let name = module.name;
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/embedded/{name}.json"));
                let text = serde_json::to_string_pretty(&declared).expect("JSON");
                fs::write(path, text + "\n").expect("writable");
                continue;
            }
            let stored: Value = serde_json::from_str(module.declarations).expect("JSON");
            assert_eq!(stored, declared, "{name}: `UPDATE_GOLDEN=1` rewrites the file");
        }
    }
}
