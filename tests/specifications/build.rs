//! Extracts the examples of the specifications beside the repository, and writes each to a file that the
//! crate includes. Sets `specifications` if all of them exist.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

#[path = "src/extract.rs"]
mod extract;

use extract::{
    block_after, block_with, decode_mojibake, fill_gap, paragraphs, require_undamaged, restore, text_before,
};

/// Beside the repository, three levels above this folder.
const FOLDER: &str = "../../../shared/specs";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(specifications)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/extract.rs");
    let folder = Path::new(FOLDER);
    if !folder.is_dir() {
        // `rerun-if-changed` with a missing path would run this script at every build.
        return;
    }
    println!("cargo::rerun-if-changed={FOLDER}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    match examples(folder) {
        Ok(examples) => {
            for (name, code) in examples {
                if let Err(error) = fs::write(out.join(name), code) {
                    println!("cargo::error=cannot write `{name}`: {error}");
                }
            }
            println!("cargo::rustc-cfg=specifications");
        }
        Err(problem) => {
            // The build continues; a test reports the problem.
            let line = problem.replace('\n', " ");
            println!("cargo::rustc-env=PORTCULLIS_SPECIFICATIONS_PROBLEM={line}");
        }
    }
}

/// Returns every example with the name of its file.
fn examples(folder: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let everruns = read(folder, "000_")?;
    let yoagent = decode_mojibake(&read(folder, "002_")?)?;
    let portcullis = read(folder, "004_")?;

    let registry = paragraphs(block_with(&everruns, "ToolRegistry::with_defaults()")?);
    let [defaults, custom, agent_loop] = registry.as_slice() else {
        return Err("the registry's lines are not three paragraphs".to_owned());
    };
    let parameters = "config: Config, emitter: Emitter, store: Store, llm: Llm";
    let data_processor =
        fill_gap(block_with(&yoagent, "struct DataProcessorTool")?, "// ...", "supplied_methods!();")?;
    let file_read = fill_gap(
        block_with(&portcullis, "async fn file_read")?,
        "// implementation",
        "supplied_body(path).await",
    )?;
    // The sign before a failure lost a byte: U+274C has the byte 0x9d, which Windows-1252 does not define.
    let deploy = restore(block_with(&yoagent, "struct DeployTool")?, "\u{fffd} {} failed", "❌ {} failed")?;
    let agent = |lines: &str, provider: &str, function_name: &str| {
        format!("pub(super) fn {function_name}(provider: {provider}) -> Agent {{\n{lines}\nagent\n}}\n")
    };
    let examples = vec![
        ("000_trait.rs", block_with(&everruns, "pub trait Tool: Send + Sync")?.to_owned()),
        ("000_defaults.rs", format!("pub(super) fn defaults() -> Built {{\n{defaults}\nregistry\n}}\n")),
        (
            "000_custom.rs",
            format!(
                "pub(super) fn custom({parameters}) -> AgentLoop {{\n{custom}\n{agent_loop}\nagent_loop\n}}\n"
            ),
        ),
        ("002_trait.rs", block_with(&yoagent, "pub trait AgentTool: Send + Sync")?.to_owned()),
        ("002_context.rs", block_with(&yoagent, "pub struct ToolContext")?.to_owned()),
        ("002_result.rs", block_with(&yoagent, "pub struct ToolResult ")?.to_owned()),
        ("002_error.rs", block_with(&yoagent, "pub enum ToolError")?.to_owned()),
        ("002_update.rs", block_with(&yoagent, "pub type ToolUpdateFn")?.to_owned()),
        ("002_weather.rs", block_with(&yoagent, "pub struct WeatherTool")?.to_owned()),
        ("002_data_processor.rs", data_processor),
        ("002_deploy.rs", text_before(&deploy, "#[tokio::main]")?.to_owned()),
        ("002_program.rs", deploy),
        ("002_transcript.txt", block_after(&yoagent, "Running this produces:")?.to_owned()),
        (
            "002_registered.rs",
            agent(block_with(&yoagent, "use yoagent::tools::default_tools;")?, "Llm", "registered"),
        ),
        (
            "002_strategies.rs",
            agent(
                block_with(&yoagent, "ToolExecutionStrategy::Sequential")?,
                "AnthropicProvider",
                "strategies",
            ),
        ),
        ("004_trait.rs", block_with(&portcullis, "pub trait Tool: Send + Sync")?.to_owned()),
        ("004_tier.rs", block_with(&portcullis, "pub enum SafetyTier")?.to_owned()),
        ("004_schema.rs", block_with(&portcullis, "pub struct FunctionDecl")?.to_owned()),
        ("004_file_read.rs", file_read),
    ];
    examples.into_iter().map(|(name, code)| Ok((name, require_undamaged(code)?))).collect()
}

/// Reads the only file whose name has this prefix.
fn read(folder: &Path, beginning: &str) -> Result<String, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("cannot list the specifications: {error}"))?;
    let mut matching_files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.starts_with(beginning).then(|| entry.path())
    });
    let path = matching_files.next().ok_or_else(|| format!("there is no specification `{beginning}…`"))?;
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(&path).map_err(|error| format!("cannot read specification `{beginning}…`: {error}"))
}
