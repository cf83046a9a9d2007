//! Hand-written modules that no compiler emits.

use portcullis_testing::Fixture;
use portcullis_tools::{BootstrapError, ToolRegistry, policy::ToolOrigin};

/// A module that answers `describe`, and runs the given code on `call`.
///
/// Memory: arguments at 16 and 64, the success frame at 512, the description at 1024. `$say` writes to
/// standard output.
pub(crate) struct WatGuest {
    pub(crate) describe: String,
    /// The exported memory: `(memory (export "memory") 2)`.
    pub(crate) memory: String,
    /// Further imports.
    pub(crate) imports: String,
    /// Further functions, memories and tables.
    pub(crate) fields: String,
    /// The code of a call.
    pub(crate) call: String,
}

const ANSWER: &str = "{\"ok\":\"done\"}\n";

impl WatGuest {
    /// Creates a guest with one tool without parameters, which answers `done`.
    pub(crate) fn new(tool: &str) -> Self {
        Self {
            describe: format!(
                "{{\"v\":1,\"tools\":[{{\"name\":\"{tool}\",\"parameters\":{{\"type\":\"object\"}}}}]}}"
            ),
            memory: "(memory (export \"memory\") 2)".to_owned(),
            imports: String::new(),
            fields: String::new(),
            call: "(call $answer)".to_owned(),
        }
    }

    pub(crate) fn describing(describe: &str) -> Self {
        Self { describe: describe.to_owned(), ..Self::new("unused") }
    }

    /// Returns the module's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { describe, memory, imports, fields, call } = self;
        let text = format!(
            r#"(module
                (import "wasi_snapshot_preview1" "args_get"
                    (func $args_get (param i32 i32) (result i32)))
                (import "wasi_snapshot_preview1" "fd_write"
                    (func $fd_write (param i32 i32 i32 i32) (result i32)))
                {imports}
                {memory}
                (data (i32.const 512) "{answer}")
                (data (i32.const 1024) "{described}")
                (func $say (param $at i32) (param $len i32)
                    (i32.store (i32.const 0) (local.get $at))
                    (i32.store (i32.const 4) (local.get $len))
                    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
                (func $answer (call $say (i32.const 512) (i32.const {answer_len})))
                {fields}
                (func (export "_start")
                    (drop (call $args_get (i32.const 16) (i32.const 64)))
                    (if (i32.eq (i32.load8_u (i32.const 69)) (i32.const 100))
                        (then (call $say (i32.const 1024) (i32.const {described_len})))
                        (else {call}))))"#,
            answer = escaped(ANSWER),
            answer_len = ANSWER.len(),
            described = escaped(describe),
            described_len = describe.len(),
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Creates a registry with this guest as a foreign module.
    pub(crate) async fn registry(&self, fixture: &Fixture) -> ToolRegistry {
        self.try_registry(fixture).await.expect("bootstraps")
    }

    pub(crate) async fn try_registry(&self, fixture: &Fixture) -> Result<ToolRegistry, BootstrapError> {
        load(fixture, &self.bytes()).await
    }
}

/// Creates a registry with a foreign module.
pub(crate) async fn load(fixture: &Fixture, module: &[u8]) -> Result<ToolRegistry, BootstrapError> {
    fixture.builder().await?.module("outside", module, ToolOrigin::ForeignModule).await?.build()
}

/// Escapes text for a WAT string.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}
