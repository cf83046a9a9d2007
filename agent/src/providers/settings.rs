//! [`ProviderSettings`]: the model, its address, and the limits of a response.

use std::{path::PathBuf, str::FromStr, time::Duration};

use portcullis_egress::Requirement;
use url::{Host, Url};

use super::ApiKey;
use crate::{ProviderError, ProviderErrorKind};

portcullis_types::word_enum! {
    /// A provider's protocol.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ProviderKind {
        /// OpenAI's chat completions, which most servers support: llama.cpp, vLLM, LM Studio, gateways.
        OpenAi = "openai",
        /// Anthropic's Messages API.
        Anthropic = "anthropic",
        /// Google's Gemini API.
        Gemini = "gemini",
        /// Ollama's own chat API.
        Ollama = "ollama",
    }
}

impl ProviderKind {
    /// Returns the default base URL, which the settings may override.
    #[must_use]
    pub const fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// Returns the environment variable from which the provider's own programs read the key, or `None` for a
    /// provider that usually has no key.
    #[must_use]
    pub const fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }

    /// Returns the environment variable from which the provider's own programs read another base URL, or
    /// `None` if there is no such variable.
    #[must_use]
    pub const fn base_url_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("OPENAI_BASE_URL"),
            Self::Anthropic => Some("ANTHROPIC_BASE_URL"),
            Self::Gemini => Some("GOOGLE_GEMINI_BASE_URL"),
            Self::Ollama => None,
        }
    }
}

impl FromStr for ProviderKind {
    type Err = ProviderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            configuration_error(format!("there is no provider {text:?}; there are {}", known.join(", ")))
        })
    }
}

/// When tools are declared in the provider's strict mode, which makes the model's arguments follow the tools'
/// schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StrictTools {
    /// Only at OpenAI itself, for each tool whose schema OpenAI's strict mode can express. Other servers of the
    /// same protocol do not know the mode. Anthropic's strict mode accepts only a few tools.
    #[default]
    WhereKnown,
    /// For each tool whose schema the provider's strict mode can express. It has no effect for a provider
    /// without the mode.
    Always,
    /// For no tool.
    Never,
}

/// Limits of one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderLimits {
    /// The timeout of a connect. Default: 10 s.
    pub connect_timeout: Duration,
    /// How long the provider may be silent, before the response begins and between its pieces. Default: 300 s,
    /// because a local model may take minutes to read a long conversation.
    pub idle_timeout: Duration,
    /// The maximum length of a response's text, thinking, names and arguments together, in bytes; each piece of a call
    /// counts 32 more. It bounds the memory that a model, or a server that poses as one, can make the caller
    /// use. Default: 8 MiB.
    pub response_bytes: usize,
    /// The maximum number of retries of a request. Default: 3.
    pub retries: u32,
    /// The wait before the first retry. It doubles with each further retry, and is shortened at random by up to
    /// a half. Default: 500 ms.
    pub retry_wait: Duration,
    /// The maximum pause before a retry, whether computed or asked for by the provider (`Retry-After`). If a provider
    /// asks for a longer wait, the request is not retried. Default: 30 s.
    pub retry_wait_max: Duration,
}

impl Default for ProviderLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            response_bytes: 8 * 1024 * 1024,
            retries: 3,
            retry_wait: Duration::from_millis(500),
            retry_wait_max: Duration::from_secs(30),
        }
    }
}

/// The settings of a provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// The provider's protocol.
    pub kind: ProviderKind,
    /// The model for requests that name no model.
    pub model: String,
    /// The provider's address. Default: [`ProviderKind::default_base_url`].
    pub base_url: Option<String>,
    /// The key. Default: none. The providers' own addresses require a key.
    pub key: Option<ApiKey>,
    /// Whether a key may go to another machine without TLS, so that every machine on the way can read it.
    /// Default: no.
    pub key_without_tls: bool,
    /// Whether the model must follow the tools' schemas. Default: [`StrictTools::WhereKnown`].
    pub strict_tools: StrictTools,
    /// Limits of one response.
    pub limits: ProviderLimits,
    /// Whether Landlock must restrict the thread that opens the provider's connections to the provider's
    /// port. Default: [`Requirement::Required`].
    pub landlock: Requirement,
    /// Whether that thread must have a seccomp filter. Default: [`Requirement::Required`].
    pub seccomp: Requirement,
    /// A folder that only this user may write to. The confined thread must fail to open a file there, which
    /// proves its confinement. Default: none, which creates a temporary folder.
    pub state: Option<PathBuf>,
}

impl ProviderSettings {
    /// Creates settings for the provider's own address, without a key, with the default limits.
    #[must_use]
    pub fn new(kind: ProviderKind, model: impl Into<String>) -> Self {
        Self {
            kind,
            model: model.into(),
            base_url: None,
            key: None,
            key_without_tls: false,
            strict_tools: StrictTools::default(),
            limits: ProviderLimits::default(),
            landlock: Requirement::Required,
            seccomp: Requirement::Required,
            state: None,
        }
    }

    /// Sets another address.
    #[must_use]
    pub fn with_base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = Some(base_url.into());
        self
    }

    /// Sets a key.
    #[must_use]
    pub fn with_key(mut self, key: ApiKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: ProviderLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the scheme, host and port of the provider's address, or `None` if the address is not a usable
    /// URL.
    #[must_use]
    pub fn origin(&self) -> Option<String> {
        self.address().ok().map(|url| url.origin().ascii_serialization())
    }

    /// Parses and checks the address.
    pub(super) fn address(&self) -> Result<Url, ProviderError> {
        let text = self.base_url.as_deref().unwrap_or_else(|| self.kind.default_base_url());
        // The address may contain a password, so no error shows it until that is ruled out.
        let url = Url::parse(text).map_err(|error| {
            configuration_error(format!("the {} base URL is not a URL", self.kind)).with_source(error)
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(configuration_error(
                "the base URL contains a user name or a password; give the key separately".to_owned(),
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(configuration_error(
                "the base URL has a query or a fragment; it ends with its path".to_owned(),
            ));
        }
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(configuration_error(format!("the base URL {url} is neither http nor https")));
        }
        let is_plaintext = url.scheme() == "http" && !is_this_machine(&url);
        if is_plaintext && self.key.is_some() && !self.key_without_tls {
            return Err(configuration_error(format!(
                "the key would go to {url} without TLS; use https, or allow it in the settings"
            )));
        }
        if self.key.is_none() && is_any_official_address(&url) {
            let hint = self.kind.key_variable().unwrap_or("the settings");
            return Err(configuration_error(format!("{url} needs a key, and there is none ({hint})")));
        }
        Ok(url)
    }
}

/// Returns whether the address belongs to any provider that has keys. Such an address needs a key in every
/// protocol.
fn is_any_official_address(url: &Url) -> bool {
    ProviderKind::ALL
        .into_iter()
        .filter(|kind| kind.key_variable().is_some())
        .any(|kind| is_official_address(kind, url))
}

/// Returns whether the address is the provider's own. A compatible server does not count, even if another
/// provider runs it, as Google does for OpenAI's protocol.
pub(super) fn is_official_address(kind: ProviderKind, url: &Url) -> bool {
    Url::parse(kind.default_base_url()).is_ok_and(|official| official.host() == url.host())
}

/// Returns whether the address is a loopback address or `localhost`.
pub(super) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn configuration_error(message: String) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_for(base_url: &str) -> ProviderSettings {
        ProviderSettings::new(ProviderKind::OpenAi, "m").with_base_url(base_url)
    }

    fn key() -> ApiKey {
        ApiKey::new("sk-secret").expect("a key")
    }

    #[track_caller]
    fn address_error(settings: &ProviderSettings) -> String {
        let error = settings.address().expect_err("refused");
        assert_eq!(error.kind(), ProviderErrorKind::Configuration);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        error.to_string()
    }

    #[test]
    fn a_kind_is_known_by_its_name() {
        for kind in ProviderKind::ALL {
            assert_eq!(kind.as_str().parse::<ProviderKind>().expect("known"), kind);
            Url::parse(kind.default_base_url()).expect("a URL");
        }
        let error = "openia".parse::<ProviderKind>().expect_err("unknown");
        assert_eq!(
            error.to_string(),
            "there is no provider \"openia\"; there are openai, anthropic, gemini, ollama"
        );
    }

    #[test]
    fn a_text_that_is_not_an_address_is_refused() {
        for text in ["", "localhost:8080", "ftp://x/", "/v1", "http://", "http://x/?a=1", "http://x/#a"] {
            address_error(&settings_for(text));
        }
    }

    #[test]
    fn an_address_with_a_password_is_refused_and_not_shown() {
        address_error(&settings_for("https://me:secret@example.com/v1"));
        address_error(&settings_for("https://secret@example.com/v1"));
    }

    #[test]
    fn a_key_leaves_the_machine_under_tls_alone() {
        address_error(&settings_for("http://example.com/v1").with_key(key()));
        address_error(&settings_for("http://10.0.0.1:8000").with_key(key()));
        address_error(&settings_for("http://localhost.example.com/").with_key(key()));
        for text in ["https://example.com/v1", "http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost:1"]
        {
            settings_for(text).with_key(key()).address().expect(text);
        }
        settings_for("http://example.com/v1").address().expect("without a key there is nothing to read");
        let mut settings = settings_for("http://example.com/v1").with_key(key());
        settings.key_without_tls = true;
        settings.address().expect("allowed");
    }

    #[test]
    fn official_addresses_require_a_key() {
        for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Gemini] {
            let settings = ProviderSettings::new(kind, "m");
            assert!(address_error(&settings).contains(kind.key_variable().expect("has one")));
            settings.with_key(key()).address().expect("with a key");
        }
        ProviderSettings::new(ProviderKind::Ollama, "m").address().expect("needs none");
    }

    #[test]
    fn every_spelling_of_an_official_address_is_recognized() {
        let official = |text: &str| is_any_official_address(&Url::parse(text).expect("a URL"));
        assert!(official("https://api.openai.com/") && official("https://API.anthropic.com:443/v1"));
        assert!(!official("https://api.openai.com.example.com/v1") && !official("http://127.0.0.1:11434"));
    }

    #[test]
    fn no_debug_output_of_settings_shows_the_key() {
        let settings = settings_for("https://example.com").with_key(key());
        assert!(!format!("{settings:?}").contains("secret"));
    }
}
