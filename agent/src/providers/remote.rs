//! [`RemoteProvider`]: a model behind HTTP. It sends a request, retries it, and streams the response.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Uri,
    header::{ACCEPT, CONTENT_TYPE},
};
use portcullis_types::async_trait;
use url::Url;

use super::{
    ProviderKind, ProviderSettings, StrictTools,
    connection::{self, ProviderClient},
    decoder::ResponseDecoder,
    failure::FailureContext,
    response::ResponseStream,
    retry::FailedRequest,
    settings,
    wire::{self, WireRequest},
};
use crate::{DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind};

/// A model behind HTTP.
#[derive(Debug)]
pub struct RemoteProvider {
    client: ProviderClient,
    base: Url,
    settings: ProviderSettings,
    identity: FailureContext,
}

impl RemoteProvider {
    /// Checks the settings and creates a client. Sends nothing yet.
    ///
    /// # Errors
    /// [`ProviderErrorKind::Configuration`] for an invalid address, a provider's own address without a key, a
    /// key that would travel without TLS, or a machine without certificates where TLS is needed.
    pub fn new(settings: ProviderSettings) -> Result<Self, ProviderError> {
        let base = settings.address()?;
        let client = connection::client(&base, &settings)?;
        let identity = FailureContext { kind: settings.kind, key: settings.key.clone() };
        Ok(Self { client, base, settings, identity })
    }

    /// Returns the settings of the provider.
    #[must_use]
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Sends one request, and waits until the response begins.
    async fn ask(
        &self,
        encoded: &EncodedRequest,
        request: &ModelRequest,
    ) -> Result<ResponseStream, FailedRequest> {
        let limits = &self.settings.limits;
        let send = self.client.post(encoded.uri.clone(), encoded.headers.clone(), encoded.body.clone());
        // Use one timeout for both waits: connecting has its own limit, and the idle limit starts after it.
        let response = tokio::time::timeout(limits.connect_timeout + limits.idle_timeout, send)
            .await
            .map_err(|_elapsed| self.identity.idle_timeout_failure(limits.idle_timeout))?
            .map_err(|error| {
                self.identity.connection_failure("cannot be reached, or broke the connection", error)
            })?;
        let response = self.identity.check_response(response).await?;
        let decoder = ResponseDecoder::new(self.identity.clone(), limits.response_bytes);
        let mut answer = ResponseStream::new(
            response,
            decoder,
            self.identity.clone(),
            limits.idle_timeout,
            request.cancel.clone(),
        );
        answer.begin().await?;
        Ok(answer)
    }

    /// Encodes a request: address, headers, body.
    fn encode(&self, request: &ModelRequest) -> Result<EncodedRequest, ProviderError> {
        let kind = self.settings.kind;
        let model = if request.model.is_empty() { &self.settings.model } else { &request.model };
        if model.is_empty() {
            return Err(ProviderError::new(
                ProviderErrorKind::Configuration,
                format!("{kind}: no model is named"),
            ));
        }
        let official = settings::is_official_address(kind, &self.base);
        let strict = match self.settings.strict_tools {
            StrictTools::WhereKnown => official && kind == ProviderKind::OpenAi,
            StrictTools::Always => true,
            StrictTools::Never => false,
        };
        let mut headers = wire::headers(kind, self.settings.key.as_ref());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(wire::media_type(kind)));
        Ok(EncodedRequest {
            uri: connection::uri(&wire::endpoint(kind, &self.base, model))?,
            headers,
            body: wire::body(kind, WireRequest { model, chat: request, strict, official })?.into(),
        })
    }
}

#[async_trait]
impl Provider for RemoteProvider {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let encoded = self.encode(&request)?;
        let cancel = request.cancel.clone();
        let asking = async {
            let mut attempts = 0_u32;
            loop {
                attempts = attempts.saturating_add(1);
                let failure = match self.ask(&encoded, &request).await {
                    Ok(answer) => return Ok(answer.into_stream()),
                    Err(failure) => failure,
                };
                // Without a source of randomness, wait for the whole time.
                let random = getrandom::u32().unwrap_or(0);
                match failure.wait(attempts, &self.settings.limits, random) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(failure.error),
                }
            }
        };
        tokio::select! {
            // `biased`: a request that is already cancelled is not sent.
            biased;
            () = cancel.cancelled() => Err(self.identity.cancelled_failure().error),
            answer = asking => answer,
        }
    }
}

/// The encoded request. Each retry sends the same one.
#[derive(Debug)]
struct EncodedRequest {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

#[cfg(test)]
mod tests {
    use portcullis_types::{CancellationToken, FunctionDecl, JsonSchema, Message};
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::ApiKey;

    /// Creates a provider with OpenAI's protocol at an address. It sends no request. Plain HTTP needs no
    /// certificates.
    fn provider_for(base_url: &str, key: Option<ApiKey>) -> Result<RemoteProvider, ProviderError> {
        let settings = ProviderSettings::new(ProviderKind::OpenAi, "m").with_base_url(base_url);
        RemoteProvider::new(ProviderSettings { key, key_without_tls: true, ..settings })
    }

    #[test]
    fn openai_specific_fields_are_sent_only_to_openai() {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let tool = FunctionDecl { name: "t".into(), description: None, parameters: JsonSchema::new(schema) };
        let request = ModelRequest {
            model: String::new(),
            messages: vec![Message::user("x")],
            tools: vec![tool],
            max_tokens: Some(7),
            temperature: None,
            cancel: CancellationToken::new(),
        };
        for (base_url, is_official) in [
            ("http://api.openai.com/v1", true),
            ("http://generativelanguage.googleapis.com/v1beta/openai", false),
            ("http://api.anthropic.com/v1", false),
            ("http://example.com/v1", false),
        ] {
            let provider =
                provider_for(base_url, Some(ApiKey::new("sk-x").expect("a key"))).expect("a provider");
            let encoded = provider.encode(&request).expect("a request");
            let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
            assert_eq!(body["tools"][0]["function"].get("strict").is_some(), is_official, "{base_url}");
            assert_eq!(body.get("max_completion_tokens").is_some(), is_official, "{base_url}");
            assert_eq!(body.get("max_tokens").is_some(), !is_official, "{base_url}");
            // A provider's own address needs a key in every protocol.
            assert_eq!(provider_for(base_url, None).is_ok(), base_url.contains("example.com"), "{base_url}");
        }
    }
}
