//! The models of a gateway's agents, all from one provider.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use portcullis_agent::{ProviderError, ProviderSettings, RemoteProvider};
use portcullis_gateway::{ChosenModel, Models};
use portcullis_runs::ModelIdentity;
use portcullis_types::{RunnerBootstrapEnvelope, async_trait};

use crate::{
    agent_file::AgentFile,
    cli::ModelChoice,
    command::agent::{confined_as_tools, model},
    error::CliError,
    setup,
};

/// The maximum number of cached models.
const MAX_READY: usize = 64;

/// The models of one provider. An agent's definition can name another model than the gateway's.
pub(super) struct RemoteModels {
    settings: ProviderSettings,
    opened_models: Mutex<HashMap<String, ChosenModel>>,
}

impl RemoteModels {
    pub(super) fn new(
        choice: &ModelChoice,
        file: &AgentFile,
        envelope: &RunnerBootstrapEnvelope,
    ) -> Result<Self, CliError> {
        let provider = RemoteProvider::new(model::settings(choice, file)?)?;
        let policy = setup::policy_files(envelope)?.load(envelope.sandbox_tier)?;
        let settings = confined_as_tools(&provider, &policy, envelope);
        Ok(Self { settings, opened_models: Mutex::default() })
    }
}

#[async_trait]
impl Models for RemoteModels {
    async fn choose(&self, _agent: &str, model: Option<&str>) -> Result<ChosenModel, ProviderError> {
        let model = model.unwrap_or(&self.settings.model);
        if let Some(ready) = self.opened_models.lock().get(model) {
            return Ok(ready.clone());
        }
        let settings = ProviderSettings { model: model.to_owned(), ..self.settings.clone() };
        let identity = ModelIdentity { name: model.to_owned(), address: settings.origin() };
        let provider = RemoteProvider::new(settings)?;
        let chosen = ChosenModel { provider: Arc::new(provider), identity };
        let mut ready = self.opened_models.lock();
        if ready.len() < MAX_READY {
            ready.insert(model.to_owned(), chosen.clone());
        }
        Ok(chosen)
    }
}
