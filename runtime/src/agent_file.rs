//! [`AgentFile`]: `agent.toml` beside the policy, with the operator's default model, the agent's capabilities
//! and the prices of models.
//!
//! The file names the server that keys and conversations are sent to. It is therefore read like a policy:
//! only if no other user can change it, and never from a project's folder.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use portcullis_agent::{ProviderKind, Usage};
use portcullis_tools::{
    confine::{
        bounded,
        trusted::{self, TrustError},
    },
    native::Capability,
};
use serde::{Deserialize, Deserializer, de::Error as _};
use thiserror::Error;

use crate::{output::text, setup};

/// The maximum size of the file that is read.
pub(crate) const MAX_AGENT_FILE_BYTES: u64 = 64 << 10;

/// The file's name in the folder of the operator's files.
const FILE: &str = "agent.toml";

/// The number of tokens that a price is for.
const PRICED_TOKENS: f64 = 1_000_000.0;

/// The content of the file. Without a file, everything is unset.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentFile {
    /// The default model.
    #[serde(default)]
    pub(crate) agent: AgentSection,
    /// The prices of models, by the models' names.
    #[serde(default)]
    pub(crate) prices: BTreeMap<String, Price>,
    /// Questions about calls.
    #[serde(default)]
    pub(crate) approvals: ApprovalsSection,
}

/// The section `[approvals]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalsSection {
    /// The program with its arguments that is started when a call waits for an approval. Empty for none.
    #[serde(default)]
    pub(crate) notify: Vec<String>,
}

/// The section `[agent]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentSection {
    /// The provider's protocol.
    #[serde(default, deserialize_with = "provider")]
    pub(crate) provider: Option<ProviderKind>,
    /// The model's name.
    pub(crate) model: Option<String>,
    /// The provider's address, if it is not the default.
    pub(crate) base_url: Option<String>,
    /// The file with the key for that address, as an absolute path.
    pub(crate) key_file: Option<PathBuf>,
    /// The capabilities of the agent. Unset: all tools that the policy offers.
    #[serde(default, deserialize_with = "capabilities")]
    pub(crate) capabilities: Option<Vec<Capability>>,
}

/// The price of a model's tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    /// The price of a million tokens of requests.
    #[serde(deserialize_with = "amount")]
    input: f64,
    /// The price of a million tokens of answers.
    #[serde(deserialize_with = "amount")]
    output: f64,
    /// The currency, as it is shown.
    currency: String,
}

impl AgentFile {
    /// Reads the file in the operator's folder. A missing file leaves everything unset.
    ///
    /// # Errors
    /// [`AgentFileError`] if there is a file that cannot be used.
    pub(crate) fn read() -> Result<Self, AgentFileError> {
        Self::default_path().map_or_else(|| Ok(Self::default()), |path| Self::read_from(&path))
    }

    /// Returns the path of the file, or `None` if no variable names a folder.
    pub(crate) fn default_path() -> Option<PathBuf> {
        Some(setup::config_folder()?.join(FILE))
    }

    fn read_from(path: &Path) -> Result<Self, AgentFileError> {
        let failed = |source| AgentFileError::Read { path: path.to_owned(), source };
        let file = match trusted::open_file(path) {
            Ok(file) => file,
            Err(error) if error.is_missing() => return Ok(Self::default()),
            Err(TrustError::Unusable { source, .. }) => return Err(failed(source)),
            Err(source) => return Err(AgentFileError::Untrusted { path: path.to_owned(), source }),
        };
        let text = bounded::read_text(file, MAX_AGENT_FILE_BYTES).map_err(failed)?;
        let file: Self = toml::from_str(&text).map_err(|source| AgentFileError::Malformed {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        match &file.agent.key_file {
            Some(key_file) if !key_file.is_absolute() => {
                Err(AgentFileError::RelativeKeyFile { path: path.to_owned(), key_file: key_file.clone() })
            }
            _ => Ok(file),
        }
    }
}

impl Price {
    /// Formats the cost of these tokens for people.
    pub(crate) fn cost(&self, usage: Usage) -> String {
        // No run has 2^53 tokens, so the conversion is exact.
        let [input, output] = [usage.input_tokens, usage.output_tokens].map(|tokens| tokens as f64);
        let cost = (input * self.input + output * self.output) / PRICED_TOKENS;
        format!("{cost:.4} {}", text::inline(&self.currency))
    }
}

/// The reason why the file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum AgentFileError {
    /// Another user could change the file.
    #[error("the file of the default model `{}` is not trusted", path.display())]
    Untrusted { path: PathBuf, source: TrustError },
    /// The file cannot be read.
    #[error("cannot read the file of the default model `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The text has a fault.
    #[error("the file of the default model `{}` has a fault", path.display())]
    Malformed { path: PathBuf, source: Box<toml::de::Error> },
    /// A relative path would depend on the current folder.
    #[error(
        "the file of the default model `{}` has `key_file = \"{}\"`, which is not an absolute path",
        path.display(), key_file.display()
    )]
    RelativeKeyFile { path: PathBuf, key_file: PathBuf },
}

fn provider<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ProviderKind>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

fn capabilities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Capability>>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    names
        .iter()
        .map(|name| Capability::available(name).map_err(D::Error::custom))
        .collect::<Result<_, _>>()
        .map(Some)
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let amount = f64::deserialize(deserializer)?;
    if amount.is_finite() && amount >= 0.0 {
        Ok(amount)
    } else {
        Err(D::Error::custom("a price is a number that is not negative"))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn read(text: &str) -> Result<AgentFile, AgentFileError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        fs::write(&path, text).expect("written");
        AgentFile::read_from(&path)
    }

    #[test]
    fn the_file_names_model_and_prices() {
        let file = read(
            "[agent]\nprovider = \"anthropic\"\nmodel = \"m\"\nkey_file = \"/k\"\n\n\
             [prices.\"m-1.5\"]\ninput = 3\noutput = 15.5\ncurrency = \"USD\"\n",
        );
        let file = file.expect("reads");
        assert_eq!(file.agent.provider, Some(ProviderKind::Anthropic));
        assert_eq!((file.agent.model.as_deref(), file.agent.base_url), (Some("m"), None));
        let usage = Usage { input_tokens: 1_000_000, output_tokens: 100_000 };
        assert_eq!(file.prices["m-1.5"].cost(usage), "4.5500 USD");
        assert_eq!(read("").expect("reads"), AgentFile::default());
        let capabilities = |text: &str| read(text).expect("reads").agent.capabilities;
        assert_eq!(capabilities("[agent]\ncapabilities = []\n"), Some(Vec::new()));
        let given = capabilities("[agent]\ncapabilities = [\"Sandbox\", \"FileSystem\"]\n");
        assert_eq!(given, Some(vec![Capability::Sandbox, Capability::FileSystem]));
    }

    #[test]
    fn the_manuals_example_is_a_file() {
        let manual = include_str!("../../docs/agent.md");
        let (_, example) = manual.split_once("```toml\n[agent]").expect("an example");
        let (example, _) = example.split_once("```").expect("its end");
        let file = read(&format!("[agent]{example}")).expect("reads");
        assert!(file.prices.contains_key(&file.agent.model.expect("a model")));
    }

    #[test]
    fn a_fault_is_named_with_its_place() {
        for (text, word) in [
            ("[agent]\nmodle = \"m\"\n", "modle"),
            ("[agent]\nmodel = 3\n", "string"),
            ("[agent]\nprovider = \"openia\"\n", "openia"),
            ("[prices.m]\ninput = 1\noutput = -1\ncurrency = \"EUR\"\n", "negative"),
            ("[prices.m]\ninput = 1\noutput = 1\n", "currency"),
            ("model = \"m\"\n", "model"),
            ("[agent]\ncapabilities = [\"WebFech\"]\n", "WebFetch"),
            ("[agent]\ncapabilities = [\"Research\"]\n", "no tools yet"),
        ] {
            let error = read(text).expect_err(text);
            let AgentFileError::Malformed { source, .. } = &error else { panic!("{error:?}") };
            let message = source.to_string();
            assert!(message.contains(word) && message.contains("line "), "{message}");
        }
        assert!(matches!(read("[agent]\nkey_file = \"key\"\n"), Err(AgentFileError::RelativeKeyFile { .. })));
        let long = "#".repeat(64 << 10) + "\n";
        assert!(matches!(read(&long), Err(AgentFileError::Read { .. })));
    }

    #[test]
    fn a_file_writable_by_others_is_refused_a_missing_one_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        assert_eq!(AgentFile::read_from(&path).expect("nothing"), AgentFile::default());
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set");
        assert!(matches!(AgentFile::read_from(&path), Err(AgentFileError::Untrusted { .. })));
    }
}
