//! Chooses the model, its address and its key. Options take precedence over the environment, and the
//! environment over the operator's file.

use std::path::PathBuf;

use portcullis_agent::{ApiKey, ProviderKind, ProviderSettings};

use crate::{agent_file::AgentFile, cli::ModelChoice, error::CliError};

/// Returns the settings of the chosen model, with its key.
///
/// # Errors
/// [`CliError::NoModel`] if no model is named, [`CliError::Provider`] if the key cannot be read.
pub(in crate::command) fn settings(
    options: &ModelChoice,
    file: &AgentFile,
) -> Result<ProviderSettings, CliError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let ResolvedModel { kind, model, base_url, key } = choose(options, file, variable)?;
    let mut settings = ProviderSettings::new(kind, model);
    settings.base_url = base_url;
    settings.key = match key {
        ProviderKeySource::File(file) => Some(ApiKey::from_file(&file)?),
        ProviderKeySource::Variable(variable) => Some(ApiKey::from_env(variable)?),
        ProviderKeySource::None => None,
    };
    Ok(settings)
}

/// A model with its address and the source of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResolvedModel {
    kind: ProviderKind,
    model: String,
    /// `None` means the provider's own address.
    base_url: Option<String>,
    key: ProviderKeySource,
}

/// The source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProviderKeySource {
    File(PathBuf),
    /// The environment variable that the provider's own programs use.
    Variable(&'static str),
    None,
}

/// Chooses the model. A key is sent only to an address from the same source. The environment's key is sent to
/// the provider itself and to the environment's address. The file's key is sent to the file's address. An
/// address of the command line needs `--key-file`. No file of a project or workspace is read here, so no
/// repository can name the address that a key is sent to.
fn choose(
    options: &ModelChoice,
    file: &AgentFile,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<ResolvedModel, CliError> {
    let kind = options.provider.or(file.agent.provider).unwrap_or(ProviderKind::OpenAi);
    // The file's other settings belong to the file's provider.
    let is_kind_of_file = file.agent.provider.unwrap_or(ProviderKind::OpenAi) == kind;
    let section = is_kind_of_file.then_some(&file.agent);
    let model = options.model.clone().or_else(|| section?.model.clone());
    let model = model.ok_or_else(|| CliError::NoModel { file: file_name() })?;
    let key_option = options.key_file.clone().map(ProviderKeySource::File);
    let key_variable = kind.key_variable().filter(|name| variable(name).is_some());
    if let Some(base_url) = &options.base_url {
        // The keys of the environment and of the file belong to other addresses.
        let key = key_option.unwrap_or(ProviderKeySource::None);
        return Ok(ResolvedModel { kind, model, base_url: Some(base_url.clone()), key });
    }
    if let Some(base_url) = kind.base_url_variable().and_then(&variable) {
        let key =
            key_option.or(key_variable.map(ProviderKeySource::Variable)).unwrap_or(ProviderKeySource::None);
        return Ok(ResolvedModel { kind, model, base_url: Some(base_url), key });
    }
    let key_in_file = || section.and_then(|section| section.key_file.clone()).map(ProviderKeySource::File);
    if let Some(base_url) = section.and_then(|section| section.base_url.clone()) {
        let key = key_option.or_else(key_in_file).unwrap_or(ProviderKeySource::None);
        return Ok(ResolvedModel { kind, model, base_url: Some(base_url), key });
    }
    // Without any key, keep the variable's name, so that the error can name the missing variable.
    let key = key_option
        .or(key_variable.map(ProviderKeySource::Variable))
        .or_else(key_in_file)
        .or(kind.key_variable().map(ProviderKeySource::Variable))
        .unwrap_or(ProviderKeySource::None);
    Ok(ResolvedModel { kind, model, base_url: None, key })
}

/// Returns the name of the operator's file, for an error.
fn file_name() -> String {
    AgentFile::default_path().map_or_else(
        || "portcullis/agent.toml in the folder that XDG_CONFIG_HOME names".to_owned(),
        |file| format!("`{}`", file.display()),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    const FILE: &str = "[agent]\nprovider = \"anthropic\"\nmodel = \"claude\"\n";
    const FILE_WITH_ADDRESS: &str =
        "[agent]\nmodel = \"local\"\nbase_url = \"http://127.0.0.1:1/v1\"\nkey_file = \"/file-key\"\n";

    fn chosen(
        words: &str,
        file: &str,
        variables: &[(&str, &str)],
    ) -> Result<(ProviderKind, String, Option<String>, ProviderKeySource), CliError> {
        let words = ["portcullis", "agent"].into_iter().chain(words.split_whitespace());
        let CliCommand::Agent(options) = Cli::try_parse_from(words).expect("parses").command else {
            panic!("not an agent")
        };
        let file: AgentFile = toml::from_str(file).expect("a file");
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let ResolvedModel { kind, model, base_url, key } = choose(&options.model.choice, &file, variable)?;
        Ok((kind, model, base_url, key))
    }

    #[track_caller]
    fn check(
        words: &str,
        file: &str,
        variables: &[(&str, &str)],
        (kind, model, base_url, key): (ProviderKind, &str, Option<&str>, ProviderKeySource),
    ) {
        let expected = (kind, model.to_owned(), base_url.map(str::to_owned), key);
        assert_eq!(chosen(words, file, variables).expect("chosen"), expected, "{words}");
    }

    #[test]
    fn options_come_first_then_the_environment_then_the_file() {
        use ProviderKind::{Anthropic, OpenAi};
        let anthropic_key = ProviderKeySource::Variable("ANTHROPIC_API_KEY");
        check("", FILE, &[], (Anthropic, "claude", None, anthropic_key.clone()));
        check("--model other", FILE, &[], (Anthropic, "other", None, anthropic_key.clone()));
        let base = [("ANTHROPIC_BASE_URL", "https://a/v1")];
        check("", FILE, &base, (Anthropic, "claude", Some("https://a/v1"), ProviderKeySource::None));
        let with_key = [base[0], ("ANTHROPIC_API_KEY", "k")];
        check("", FILE, &with_key, (Anthropic, "claude", Some("https://a/v1"), anthropic_key));
        let local = Some("http://127.0.0.1:1/v1");
        check(
            "",
            FILE_WITH_ADDRESS,
            &base,
            (OpenAi, "local", local, ProviderKeySource::File("/file-key".into())),
        );
        let other = [("OPENAI_BASE_URL", "http://b")];
        check("", FILE_WITH_ADDRESS, &other, (OpenAi, "local", Some("http://b"), ProviderKeySource::None));
    }

    #[test]
    fn a_key_goes_only_to_the_address_of_its_own_place() {
        use ProviderKind::OpenAi;
        let key = [("OPENAI_API_KEY", "k")];
        let by_option = (OpenAi, "m", Some("http://c"), ProviderKeySource::None);
        check("--model m --base-url http://c", "", &key, by_option.clone());
        check("--model m --base-url http://c", FILE_WITH_ADDRESS, &key, by_option);
        let (_, _, base_url, source) = chosen("", FILE_WITH_ADDRESS, &key).expect("chosen");
        assert_eq!(source, ProviderKeySource::File("/file-key".into()), "{base_url:?}");
        let file = "[agent]\nmodel = \"m\"\nbase_url = \"https://d\"\n";
        check("", file, &key, (OpenAi, "m", Some("https://d"), ProviderKeySource::None));
        check(
            "--key-file /k",
            file,
            &key,
            (OpenAi, "m", Some("https://d"), ProviderKeySource::File("/k".into())),
        );
    }

    #[test]
    fn a_file_about_another_provider_does_not_count() {
        let error = chosen("--provider openai", FILE, &[]).expect_err("no model");
        assert!(matches!(error, CliError::NoModel { .. }), "{error}");
        assert!(error.to_string().contains("--model NAME"), "{error}");
        let (_, model, base_url, key) =
            chosen("--provider ollama --model m", FILE_WITH_ADDRESS, &[]).expect("chosen");
        assert_eq!((model.as_str(), base_url, key), ("m", None, ProviderKeySource::None));
    }
}
