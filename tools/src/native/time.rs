//! `get_current_time`: the time, in a time zone of choice.

use std::time::Duration;

use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};
use portcullis_types::{
    DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolOutput, async_trait,
    display::near::{near, similarity},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::{declare, decode};

/// Returns the current time, as `datetime` (a text) or `timestamp` (whole seconds since 1970), together with its
/// `format` and `timezone`.
///
/// Time zones are IANA names from the database built into the program, so an answer depends on no file of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetCurrentTime;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeArguments {
    #[serde(default)]
    format: Option<Format>,
    #[serde(default)]
    timezone: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Iso8601,
    Unix,
    Human,
}

fn current_time(args: &str, now: Timestamp) -> Result<Value, ToolError> {
    let TimeArguments { format, timezone } = decode(args)?;
    let format = format.unwrap_or_default();
    let zone = parse_time_zone(timezone.as_deref().unwrap_or("UTC"))?;
    let name = zone.iana_name().unwrap_or("UTC").to_owned();
    let local = now.to_zoned(zone);
    Ok(match format {
        Format::Unix => json!({"timestamp": now.as_second(), "format": format, "timezone": name}),
        Format::Iso8601 => {
            let text = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
            json!({"datetime": text, "format": format, "timezone": name})
        }
        Format::Human => {
            let text = local.strftime("%A, %B %-d, %Y at %H:%M:%S %Z").to_string();
            json!({"datetime": text, "format": format, "timezone": name})
        }
    })
}

fn parse_time_zone(name: &str) -> Result<TimeZone, ToolError> {
    let database = TimeZoneDatabase::bundled();
    database.get(name).map_err(|error| {
        // A longer name gets no suggestion, because comparing it with every zone would cost too much.
        let short_name: String = name.chars().take(MAX_NAME_CHARS).flat_map(char::escape_debug).collect();
        let zones = (name.len() <= MAX_NAME_CHARS).then(|| database.available()).into_iter().flatten();
        let near_zones = near(zones, |zone_name| zone_similarity(name, zone_name.as_str()));
        let hint = near_zones.first().map(|zone| format!("; did you mean '{zone}'?")).unwrap_or_default();
        ToolError::invalid_arguments(format!(
            "field 'timezone': no time zone is named \"{short_name}\"{hint}"
        ))
        .with_operator_detail(error.to_string())
    })
}

/// Computes how similar a name is to a known name. A match of the city alone also counts, but slightly less.
fn zone_similarity(name: &str, zone_name: &str) -> f64 {
    let name = name.replace(' ', "_");
    let city = zone_name.rsplit('/').next().unwrap_or(zone_name);
    similarity(&name, zone_name).max(similarity(&name, city) * 0.95)
}

const MAX_NAME_CHARS: usize = 64;

#[async_trait]
impl Tool for GetCurrentTime {
    fn schema(&self) -> FunctionDecl {
        declare(
            "get_current_time",
            "Returns the current date and time.",
            &json!({
                "format": {
                    "type": "string",
                    "enum": ["iso8601", "unix", "human"],
                    "default": "iso8601",
                    "description": "How the time is written: a date and time, seconds since 1970, or words.",
                },
                "timezone": {
                    "type": "string",
                    "default": "UTC",
                    "description": "An IANA time zone name, such as Europe/Berlin.",
                },
            }),
            &[],
        )
    }

    /// Exactly one of `datetime` and `timestamp` is present, depending on the format.
    fn output_schema(&self) -> Option<JsonSchema> {
        Some(JsonSchema::new(json!({
            "type": "object",
            "properties": {
                "datetime": {"type": "string", "description": "The date and time, for the formats iso8601 and human."},
                "timestamp": {"type": "integer", "description": "Seconds since 1970, for the format unix."},
                "format": {"type": "string", "enum": ["iso8601", "unix", "human"]},
                "timezone": {"type": "string", "description": "The time zone's IANA name."},
            },
            "required": ["format", "timezone"],
            "additionalProperties": false,
        })))
    }

    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        current_time(args, Timestamp::now()).map(|result| result.to_string())
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }

    async fn call(&self, _ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        current_time(args.text(), Timestamp::now()).map(ToolOutput::structured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, expected: &Value) {
        let now = Timestamp::from_second(1_720_000_000).expect("in range");
        assert_eq!(&current_time(args, now).expect("has a time"), expected);
    }

    #[test]
    fn the_time_has_the_requested_format_and_zone() {
        check("", &json!({"datetime": "2024-07-03T09:46:40+00:00", "format": "iso8601", "timezone": "UTC"}));
        check(
            r#"{"timezone":"america/new_york"}"#,
            &json!({"datetime": "2024-07-03T05:46:40-04:00", "format": "iso8601", "timezone": "America/New_York"}),
        );
        check(
            r#"{"format":"unix","timezone":"Asia/Kolkata"}"#,
            &json!({"timestamp": 1_720_000_000, "format": "unix", "timezone": "Asia/Kolkata"}),
        );
        check(
            r#"{"format":"human","timezone":"Europe/Berlin"}"#,
            &json!({"datetime": "Wednesday, July 3, 2024 at 11:46:40 CEST", "format": "human", "timezone": "Europe/Berlin"}),
        );
    }

    #[test]
    fn an_unknown_zone_names_the_nearest() {
        #[track_caller]
        fn check(name: &str, message: &str) {
            let error = parse_time_zone(name).expect_err("no such zone");
            assert_eq!(error.to_string(), format!("field 'timezone': no time zone is named {message}"));
        }
        check("Europe/Berln", "\"Europe/Berln\"; did you mean 'Europe/Berlin'?");
        check("New York", "\"New York\"; did you mean 'America/New_York'?");
        check("../../etc/passwd\0", "\"../../etc/passwd\\0\"");
        check(&"x".repeat(1000), &format!("\"{}\"", "x".repeat(64)));
    }
}
