//! The declaration of `shell_exec`: its description for models, and the schema of its arguments.

use portcullis_policy::ShellPolicy;
use portcullis_types::{FunctionDecl, JsonSchema};
use serde_json::json;

use super::tool::SHELL_EXEC;

/// Returns the declaration. The description names the hosts that commands can reach.
pub(super) fn declaration(shell: Option<&ShellPolicy>) -> FunctionDecl {
    let network = network(shell);
    FunctionDecl {
        name: SHELL_EXEC.to_owned(),
        description: Some(format!(
            "Runs a command with bash in a confined session and returns what it wrote, both streams in order of arrival, then `[exit code: N]` if that is not 0. Working directory, variables, functions and options carry over to the next command of the same session. {network} Files are in `/shared` (the working directory at first) and `/tmp`, or below `$PORTCULLIS_SHARED` and `$PORTCULLIS_TMP` where these names are not there. A command that takes too long is killed with all that it has started; the session lives on. What background jobs (`command &`) write after their command has ended comes with the result of the session's next command, such as `sleep 1`; `wait` does not wait for them."
        )),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "The command, as it would be typed: `cargo test 2>&1 | tail -20`." },
                "timeout": { "type": "integer", "minimum": 1, "description": "The number of seconds after which it is killed. Default: as long as the policy allows." },
                "session": {
                    "type": "string",
                    "pattern": "^[A-Za-z0-9_-]{1,64}$",
                    "default": "default",
                    "description": "The session to run in; a new name begins a new one.",
                },
                "workdir": { "type": "string", "description": "Where to run it, such as `/shared/src`; relative paths start at `/shared`. Default: the directory in which the session's last command ended." },
                "stdin": { "type": "string", "description": "What the command reads from its standard input. Default: nothing." },
            },
            "required": ["command"],
            "additionalProperties": false,
        })),
    }
}

/// Returns the sentence about the network.
fn network(shell: Option<&ShellPolicy>) -> String {
    let hosts = shell.map(|shell| &shell.hosts).filter(|hosts| !hosts.is_empty());
    let Some(hosts) = hosts else { return "There is no network.".to_owned() };
    let host_texts: Vec<String> = hosts.iter().take(MAX_LISTED).map(|rule| format!("`{rule}`")).collect();
    let more_mark = if hosts.len() > MAX_LISTED { ", …" } else { "" };
    format!(
        "The network reaches these hosts and nothing else: {}{more_mark}, by HTTPS through the proxy that the environment names; git, curl, cargo, pip and npm find it by themselves.",
        host_texts.join(", ")
    )
}

/// The maximum number of hosts that the description lists.
const MAX_LISTED: usize = 20;
