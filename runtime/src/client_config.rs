//! The configuration with which a client starts this server: `serve --print-config`.

use std::{ffi::OsString, path::PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};

/// A client whose configuration can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigClient {
    /// Claude Desktop: claude_desktop_config.json
    ClaudeDesktop,
    /// Claude Code: .mcp.json
    ClaudeCode,
    /// Cursor: ~/.cursor/mcp.json or .cursor/mcp.json
    Cursor,
    /// Visual Studio Code: .vscode/mcp.json
    Vscode,
    /// Codex: ~/.codex/config.toml
    Codex,
    /// Windsurf: ~/.codeium/windsurf/mcp_config.json
    Windsurf,
    /// Gemini CLI: ~/.gemini/settings.json
    GeminiCli,
    /// Zed: settings.json
    Zed,
}

/// A command that starts the server.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The absolute path of the program.
    pub(crate) program: PathBuf,
    /// The program's arguments.
    pub(crate) arguments: Vec<OsString>,
}

/// Returns the text for the client's configuration file, with a final newline. `None` if a path is not UTF-8,
/// because the file can hold only text.
pub(crate) fn snippet(client: ConfigClient, launch: &Launch) -> Option<String> {
    let command = launch.program.to_str()?;
    let arguments: Vec<&str> =
        launch.arguments.iter().map(|argument| argument.to_str()).collect::<Option<_>>()?;
    let untyped_entry = json!({ "command": command, "args": arguments });
    let stdio_entry = json!({ "type": "stdio", "command": command, "args": arguments });
    let config = match client {
        ConfigClient::ClaudeDesktop
        | ConfigClient::Cursor
        | ConfigClient::Windsurf
        | ConfigClient::GeminiCli => json!({ "mcpServers": { "portcullis": untyped_entry } }),
        ConfigClient::ClaudeCode => json!({ "mcpServers": { "portcullis": stdio_entry } }),
        ConfigClient::Vscode => json!({ "servers": { "portcullis": stdio_entry } }),
        ConfigClient::Zed => {
            json!({ "context_servers": { "portcullis": { "source": "custom", "command": command, "args": arguments } } })
        }
        ConfigClient::Codex => return Some(toml(command, &arguments)),
    };
    serde_json::to_string_pretty(&config).ok().map(|text| text + "\n")
}

fn toml(command: &str, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|argument| toml_string(argument)).collect();
    format!(
        "[mcp_servers.portcullis]\ncommand = {}\nargs = [{}]\n",
        toml_string(command),
        arguments.join(", ")
    )
}

/// Returns a text as a TOML basic string. It is a JSON string, except that JSON does not escape U+007F.
pub(crate) fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(workspace: &str) -> Launch {
        let arguments = ["serve", "--workspace", workspace].map(OsString::from).to_vec();
        Launch { program: "/usr/bin/portcullis".into(), arguments }
    }

    #[test]
    fn every_client_gets_program_and_arguments() {
        for client in ConfigClient::value_variants() {
            let text = snippet(*client, &launch("/home/me/my \"work\"")).expect("text");
            assert!(text.contains("\"/usr/bin/portcullis\""), "{text}");
            assert!(text.contains(r#""/home/me/my \"work\"""#), "{text}");
        }
    }

    #[test]
    fn a_snippet_is_what_the_clients_manual_shows() {
        assert_eq!(
            snippet(ConfigClient::Codex, &launch("/w")).expect("text"),
            "[mcp_servers.portcullis]\ncommand = \"/usr/bin/portcullis\"\nargs = [\"serve\", \"--workspace\", \"/w\"]\n"
        );
        let text = snippet(ConfigClient::Vscode, &launch("/w")).expect("text");
        let expected = json!({"servers": {"portcullis": {
            "type": "stdio", "command": "/usr/bin/portcullis", "args": ["serve", "--workspace", "/w"]
        }}});
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);
    }

    #[test]
    fn the_manual_shows_what_is_printed() {
        let manual = include_str!("../../docs/mcp.md");
        let arguments = ["serve", "--workspace", "/home/me/work"].map(OsString::from).to_vec();
        let launch = Launch { program: "/usr/local/bin/portcullis".into(), arguments };
        for client in [ConfigClient::ClaudeCode, ConfigClient::Codex] {
            let text = snippet(client, &launch).expect("text");
            assert!(manual.contains(&text), "{text}");
        }
        for client in ConfigClient::value_variants() {
            let value = client.to_possible_value().expect("a name");
            assert!(manual.contains(&format!("| `{}` |", value.get_name())));
        }
    }

    #[test]
    fn a_path_that_is_not_text_has_no_snippet() {
        use std::os::unix::ffi::OsStringExt as _;
        let arguments = vec![OsString::from_vec(vec![0xff])];
        let launch = Launch { program: "/p".into(), arguments };
        assert_eq!(snippet(ConfigClient::Zed, &launch), None);
    }
}
