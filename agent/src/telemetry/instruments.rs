//! [`Instruments`]: the histograms, with the buckets that the conventions recommend.

use std::time::Duration;

use opentelemetry::{
    KeyValue,
    metrics::{Histogram, Meter},
};

use super::{
    super::Usage,
    TelemetrySettings,
    attribute_names::{
        AGENT_NAME, CHAT, ERROR_TYPE, MODEL, OPERATION, OTHER, PROVIDER, TOKEN_TYPE, TOOL_NAME, TOOL_TYPE,
    },
};

const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const OPERATION_SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const AGENT_SECONDS: [f64; 13] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6];

/// The histograms of a meter.
#[derive(Debug)]
pub(super) struct Instruments {
    agent: Histogram<f64>,
    chat: Histogram<f64>,
    tokens: Histogram<u64>,
    tool: Histogram<f64>,
}

impl Instruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, description: &'static str, bounds: &[f64]| {
            let builder = meter.f64_histogram(name).with_unit("s").with_description(description);
            builder.with_boundaries(bounds.to_vec()).build()
        };
        let tokens = meter.u64_histogram("gen_ai.client.token.usage").with_unit("{token}");
        Self {
            agent: seconds(
                "gen_ai.invoke_agent.duration",
                "Duration of a single agent invocation.",
                &AGENT_SECONDS,
            ),
            chat: seconds(
                "gen_ai.client.operation.duration",
                "GenAI operation duration.",
                &OPERATION_SECONDS,
            ),
            tokens: tokens
                .with_description("Number of input and output tokens used.")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            tool: seconds(
                "gen_ai.execute_tool.duration",
                "Duration of a single tool execution.",
                &OPERATION_SECONDS,
            ),
        }
    }

    /// Records the end of a run.
    pub(super) fn agent(
        &self,
        settings: &TelemetrySettings,
        agent: &str,
        took: Duration,
        error: Option<&str>,
    ) {
        let mut attributes = vec![KeyValue::new(AGENT_NAME, agent.to_owned())];
        attributes.extend(model(settings));
        attributes.extend(error_attribute(error));
        self.agent.record(took.as_secs_f64(), &attributes);
    }

    /// Records the end of a turn's response.
    pub(super) fn chat(&self, settings: &TelemetrySettings, took: Duration, error: Option<&str>) {
        let mut attributes = request_attributes(settings);
        attributes.extend(error_attribute(error));
        self.chat.record(took.as_secs_f64(), &attributes);
    }

    /// Records the tokens of a turn.
    pub(super) fn tokens(&self, settings: &TelemetrySettings, usage: Usage) {
        for (kind, count) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            let mut attributes = request_attributes(settings);
            attributes.push(KeyValue::new(TOKEN_TYPE, kind));
            self.tokens.record(count, &attributes);
        }
    }

    /// Records a call's end. `tool` is `None` unless the name is known to be a tool's: a name that the model
    /// invented must not become a metric attribute.
    pub(super) fn tool(&self, agent: &str, tool: Option<&str>, took: Duration, error: Option<&str>) {
        let mut attributes = vec![
            KeyValue::new(TOOL_NAME, tool.unwrap_or(OTHER).to_owned()),
            KeyValue::new(TOOL_TYPE, "function"),
            KeyValue::new(AGENT_NAME, agent.to_owned()),
        ];
        attributes.extend(error_attribute(error));
        self.tool.record(took.as_secs_f64(), &attributes);
    }
}

/// Returns the attributes of a request to the model, for metrics and spans.
pub(super) fn request_attributes(settings: &TelemetrySettings) -> Vec<KeyValue> {
    let mut attributes =
        vec![KeyValue::new(OPERATION, CHAT), KeyValue::new(PROVIDER, settings.provider.clone())];
    attributes.extend(model(settings));
    attributes
}

/// Returns the model attribute, if a model is named.
pub(super) fn model(settings: &TelemetrySettings) -> Option<KeyValue> {
    (!settings.model.is_empty()).then(|| KeyValue::new(MODEL, settings.model.clone()))
}

fn error_attribute(error: Option<&str>) -> Option<KeyValue> {
    error.map(|error| KeyValue::new(ERROR_TYPE, error.to_owned()))
}
