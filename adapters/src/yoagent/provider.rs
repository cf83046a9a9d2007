//! Providers for programs of Yoagent.

use std::env;

use portcullis_agent::{ApiKey, Provider, ProviderError, ProviderKind, ProviderSettings, RemoteProvider};

/// Connects to a provider with a key and a model. Every [`Provider`] that implements `Clone` implements this
/// trait. Such a provider already has its key and model, and ignores the arguments of
/// [`StreamProvider::connect`].
pub trait StreamProvider: Send + Sync {
    /// Connects for one run.
    ///
    /// # Errors
    /// [`ProviderError`] if the settings are not usable.
    fn connect(&self, api_key: &str, model: &str) -> Result<Box<dyn Provider>, ProviderError>;
}

impl<P: Provider + Clone + 'static> StreamProvider for P {
    fn connect(&self, _api_key: &str, _model: &str) -> Result<Box<dyn Provider>, ProviderError> {
        Ok(Box::new(self.clone()))
    }
}

/// Anthropic's Messages API. The environment variable `ANTHROPIC_BASE_URL` overrides the default base URL.
#[derive(Debug, Clone, Copy)]
pub struct AnthropicProvider;

impl StreamProvider for AnthropicProvider {
    fn connect(&self, api_key: &str, model: &str) -> Result<Box<dyn Provider>, ProviderError> {
        let mut settings = ProviderSettings::new(ProviderKind::Anthropic, model);
        settings.base_url = env::var(BASE_URL).ok().filter(|url| !url.is_empty());
        if !api_key.is_empty() {
            settings.key = Some(ApiKey::new(api_key)?);
        }
        Ok(Box::new(RemoteProvider::new(settings)?))
    }
}

/// The variable from which the provider's own programs read the base URL.
const BASE_URL: &str = "ANTHROPIC_BASE_URL";
