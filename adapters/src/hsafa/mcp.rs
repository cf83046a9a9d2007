//! MCP servers of an agent, in the form of specification 003: `{"servers": [{"name", "url", "transport",
//! "allowedTools"}]}`.

use portcullis_tools::RemoteMcpServer;
use portcullis_types::ToolName;
use serde_json::{Map, Value};

use super::faults::{Faults, InvalidConfigurations};

/// The maximum number of servers of one agent: 16.
pub const MAX_MCP_SERVERS: usize = 16;

/// The maximum number of tools of one server: 64.
pub const MAX_ALLOWED_TOOLS: usize = 64;

/// The keys of a server.
const KEYS: [&str; 4] = ["name", "url", "transport", "allowedTools"];

/// A valid configuration of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpServerConfiguration {
    /// The server, by its name and URL.
    pub server: RemoteMcpServer,
    /// The tools of the server that the agent may have. Others are not offered.
    pub allowed_tools: Vec<ToolName>,
}

impl McpServerConfiguration {
    /// Reads the servers of an agent. No two servers or tools may have the same name.
    ///
    /// # Errors
    /// [`InvalidConfigurations`] with all mistakes together.
    pub fn read_all(value: &Value) -> Result<Vec<Self>, InvalidConfigurations> {
        let mut faults = Faults::default();
        let servers = read(value, &mut faults);
        if faults.0.is_empty() { Ok(servers) } else { Err(InvalidConfigurations(faults.0)) }
    }
}

fn read(value: &Value, faults: &mut Faults) -> Vec<McpServerConfiguration> {
    let Some(object) = value.as_object() else {
        faults.add("", "it is not an object with `servers`");
        return Vec::new();
    };
    faults.check_keys(object, &["servers"], "");
    let Some(servers) = object.get("servers").and_then(Value::as_array) else {
        faults.add("servers", "it is not a list of servers");
        return Vec::new();
    };
    if servers.len() > MAX_MCP_SERVERS {
        faults.add("servers", format!("an agent has at most {MAX_MCP_SERVERS} servers"));
        return Vec::new();
    }
    let mut names = Vec::new();
    let servers = servers.iter().enumerate();
    servers.filter_map(|(index, server)| read_server(server, index, &mut names, faults)).collect()
}

fn read_server(
    server: &Value,
    index: usize,
    names: &mut Vec<ToolName>,
    faults: &mut Faults,
) -> Option<McpServerConfiguration> {
    let location = format!("servers[{index}]");
    let Some(server) = server.as_object() else {
        faults.add(&location, "a server is a JSON object");
        return None;
    };
    faults.check_keys(server, &KEYS, &location);
    let name = faults.text(server, "name", &location);
    let name = name.and_then(|text| new_name(text, &format!("{location}.name"), names, faults));
    let url = faults.text(server, "url", &location);
    if let Some(transport) = faults.text(server, "transport", &location)
        && transport != "http"
    {
        faults.add(&format!("{location}.transport"), "the only transport is `http`");
    }
    let allowed_tools = allowed_tools(server, &location, names, faults);
    let server = match RemoteMcpServer::new(name?, url?) {
        Ok(server) => server,
        Err(mistakes) => {
            mistakes.into_iter().for_each(|mistake| {
                faults.add(&format!("{location}.{}", mistake.location()), mistake.to_string());
            });
            return None;
        }
    };
    Some(McpServerConfiguration { server, allowed_tools })
}

fn allowed_tools(
    server: &Map<String, Value>,
    location: &str,
    names: &mut Vec<ToolName>,
    faults: &mut Faults,
) -> Vec<ToolName> {
    let location = format!("{location}.allowedTools");
    let Some(tools) = server.get("allowedTools").and_then(Value::as_array) else {
        faults.add(&location, "it is not a list of names of tools");
        return Vec::new();
    };
    if !(1..=MAX_ALLOWED_TOOLS).contains(&tools.len()) {
        faults.add(&location, format!("a server has 1 to {MAX_ALLOWED_TOOLS} allowed tools"));
        return Vec::new();
    }
    let mut allowed = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let location = format!("{location}[{index}]");
        match tool.as_str() {
            Some(text) => allowed.extend(new_name(text, &location, names, faults)),
            None => faults.add(&location, "it is not a text"),
        }
    }
    allowed
}

/// Parses a name that no other server or tool of the agent's servers has.
fn new_name(text: &str, location: &str, names: &mut Vec<ToolName>, faults: &mut Faults) -> Option<ToolName> {
    let name = match ToolName::parse(text) {
        Ok(name) => name,
        Err(error) => {
            faults.add(location, portcullis_types::error_chain(&error));
            return None;
        }
    };
    if names.iter().any(|other| *other == name || other.is_same_but_for_case(&name)) {
        faults.add(location, format!("`{name}` is the name of another server or tool"));
        return None;
    }
    names.push(name.clone());
    Some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(further: &Value) -> Value {
        let mut server = json!({
            "name": "crm", "url": "https://mcp.example/mcp", "transport": "http", "allowedTools": ["find"],
        });
        server.as_object_mut().expect("an object").extend(further.as_object().expect("an object").clone());
        server
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let read =
            McpServerConfiguration::read_all(&json!({ "servers": [server(&json!({}))] })).expect("read");
        assert_eq!(read[0].server.name().as_str(), "crm");
        assert_eq!(read[0].allowed_tools.iter().map(ToolName::as_str).collect::<Vec<_>>(), ["find"]);
        assert!(McpServerConfiguration::read_all(&json!({ "servers": [] })).expect("read").is_empty());
    }

    #[test]
    fn all_mistakes_are_reported_with_their_locations() {
        let locations = |value: &Value| {
            let InvalidConfigurations(faults) = McpServerConfiguration::read_all(value).expect_err("refused");
            faults.into_iter().map(|fault| fault.location).collect::<Vec<_>>()
        };
        assert_eq!(locations(&json!([])), [""]);
        assert_eq!(locations(&json!({})), ["servers"]);
        assert_eq!(locations(&json!({"servers": [], "server": []})), ["server"]);
        assert_eq!(
            locations(&json!({ "servers": vec![server(&json!({})); MAX_MCP_SERVERS + 1] })),
            ["servers"]
        );
        for (further, location) in [
            (json!({"name": "a b"}), "servers[0].name"),
            (json!({"url": "ftp://a.example"}), "servers[0].url"),
            (json!({"url": "https://u:p@a.example"}), "servers[0].url"),
            (json!({"transport": "stdio"}), "servers[0].transport"),
            (json!({"allowedTools": []}), "servers[0].allowedTools"),
            (json!({"allowedTools": "find"}), "servers[0].allowedTools"),
            (json!({"allowedTools": ["find", "find"]}), "servers[0].allowedTools[1]"),
            (json!({"allowedTools": ["find", "Find"]}), "servers[0].allowedTools[1]"),
            (json!({"allowedTools": ["crm"]}), "servers[0].allowedTools[0]"),
            (json!({"allowedTools": ["*"]}), "servers[0].allowedTools[0]"),
            (json!({"allowedTools": [1]}), "servers[0].allowedTools[0]"),
            (json!({"token": "x"}), "servers[0].token"),
        ] {
            assert_eq!(locations(&json!({ "servers": [server(&further)] })), [location], "{further}");
        }
        let twice = json!({ "servers": [server(&json!({})), server(&json!({"allowedTools": ["other"]}))] });
        assert_eq!(locations(&twice), ["servers[1].name"]);
        assert_eq!(
            locations(&json!({"servers": [{"nmae": "x"}]})),
            [
                "servers[0].nmae",
                "servers[0].name",
                "servers[0].url",
                "servers[0].transport",
                "servers[0].allowedTools",
            ]
        );
    }
}
