//! A tool that asks an API: the weather of a city.

use portcullis_sdk::{
    ToolError, http,
    serde::{self, Deserialize},
    tool,
};

/// The API's address. The tool's attribute declares the host, and a request also needs a policy that grants the host
/// to the tool's profile.
const API: &str = "https://api.weather.example";

/// The API's answer.
#[derive(Deserialize)]
#[serde(crate = "self::serde")]
struct Report {
    fahrenheit: f64,
    sky: String,
}

/// Get current weather for a city.
#[tool(
    name = "get_weather",
    label = "Weather",
    tier = ReadOnly,
    timeout = "10s",
    hosts = ["api.weather.example"],
)]
async fn get_weather(
    /// City name
    city: &str,
) -> Result<String, ToolError> {
    let url = format!("{API}/v1/now?city={}", http::encode(city));
    let report: Report = http::get(&url)?.error_for_status()?.json()?;
    Ok(format!("Weather in {city}: {}°F, {}", report.fahrenheit, report.sky))
}

portcullis_sdk::export_tools![get_weather];
