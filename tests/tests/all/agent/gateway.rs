//! `portcullis gateway`, through the real binary.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use portcullis_client::Worker;
use portcullis_testing::{Fixture, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::model::{Model, calls, text};
use crate::{
    modules::{stderr, stdout},
    web::mcp_tools::customers_server,
};

/// Writes a script in place of the program, which adds the fixture's options.
fn program(fixture: &Fixture) -> PathBuf {
    let program = fixture.root().join("portcullis");
    let options: Vec<String> =
        fixture.options().iter().map(|option| format!("'{}'", option.to_string_lossy())).collect();
    let binary = portcullis_testing::binary();
    let wrapper = format!("#!/bin/sh\nexec '{}' {} \"$@\"\n", binary.display(), options.join(" "));
    fs::write(&program, wrapper).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    program
}

/// Writes an `agent.toml` with this model, and returns its folder.
fn config(fixture: &Fixture, model: &Model) -> PathBuf {
    let config = fixture.root().join("config");
    fs::create_dir_all(config.join("portcullis")).expect("the folder can be made");
    let settings = format!("[agent]\nmodel = \"m\"\nbase_url = \"{}\"\n", model.address());
    fs::write(config.join("portcullis/agent.toml"), settings).expect("written");
    config
}

/// Returns an unused address.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    listener.local_addr().expect("an address").to_string()
}

/// Returns whether another program that the test needs is installed.
#[expect(clippy::disallowed_methods, reason = "the test asks for a program of the host")]
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Returns the commands below the heading of docs/gateway.md, unchanged except for the address.
fn documented_commands(address: &str) -> String {
    let document = include_str!("../../../../docs/gateway.md");
    let (_, rest) = document.split_once("## From nothing to an answer\n\n```sh\n").expect("a block");
    let (commands, _) = rest.split_once("```\n").expect("an end");
    let commands = commands.replace("127.0.0.1:8810", address);
    commands.replace("gateway --token-file", &format!("gateway --http {address} --token-file"))
}

#[expect(clippy::disallowed_methods, reason = "the shell of the document's commands")]
fn run_script(fixture: &Fixture, model: &Model, script: &str) -> String {
    let program = program(fixture);
    let folder = program.parent().expect("a folder");
    let output = Command::new("bash")
        .arg("-c")
        .arg(format!("set -eu -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n{script}"))
        .current_dir(fixture.root())
        .env("XDG_CONFIG_HOME", config(fixture, model))
        // A job of the shell must be the program itself, so that its end ends the program.
        .env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path")))
        .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// The steps of a person with the document's token: write a message, and wait for the agent's run.
const PERSON: &str = r#"
token_of() { ask --json "{\"subject\": \"$1\", \"id\": \"$2\"}" $api/tokens | sed 's/.*"token":"\([^"]*\)".*/\1/'; }
person=$(token_of user "$ada")
say() { curl -sS --fail-with-body -H "Authorization: Bearer $person" --json "{\"text\": \"$1\"}" "$api/spaces/$space/messages"; }
completed() { curl -sS -H "Authorization: Bearer $person" "$api/runs?agentId=$1" | grep -c '"status":"completed"'; }
"#;

#[test]
fn the_commands_of_the_document_lead_to_an_agent_that_answers() {
    if !is_installed("curl") {
        return;
    }
    let fixture = Fixture::new();
    let model = Model::answering(vec![text("Nothing to do.")]);
    let script = format!(
        "{}\n{PERSON}\nsay 'Good morning'\nuntil completed $agent; do sleep 1; done",
        documented_commands(&free_address())
    );
    let shown = run_script(&fixture, &model, &script);
    assert!(shown.contains("\"token\":\"pct_"), "{shown}");
    let requests = model.requests();
    let request = requests[0].to_string();
    for expected in ["Good morning", "enter_space", "confirmAction", "file_read", "Help people to travel."] {
        assert!(request.contains(expected), "{expected}: {request}");
    }
}

/// Returns the script of a researcher in the document's space, from a message to the completed run. A program
/// answers its call.
fn research(address: &str, start_program: &str) -> String {
    let definition = json!({"name": "Researcher", "tools": [{
        "name": "fetchExternalData",
        "description": "Asks another system.",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
        "executionType": "external",
        "visible": false,
        "timeout": 120_000,
    }]});
    format!(
        "{}\n{PERSON}\nresearcher=$(ask --json '{definition}' $api/agents | id)\n\
         ask -X PUT \"$api/spaces/$space/members/$researcher\"\n\
         ask -X DELETE \"$api/spaces/$space/members/$agent\"\n\
         {start_program}\n\
         say 'Look it up'\nuntil completed $researcher; do sleep 1; done",
        documented_commands(address)
    )
}

/// Starts the model of the researcher.
fn researching_model() -> Model {
    Model::answering(vec![calls(&[("fetchExternalData", r#"{"query":"projects"}"#)]), text("Found.")])
}

#[test]
fn the_client_in_python_submits_results() {
    if !is_installed("curl") || !is_installed("python3") {
        return;
    }
    let fixture = Fixture::new();
    let model = researching_model();
    fs::write(
        fixture.root().join("client.py"),
        "import sys\nfrom portcullis_gateway import Gateway\ngateway = Gateway(sys.argv[1], sys.argv[2])\n\
         @gateway.tool('fetchExternalData')\ndef fetch(args):\n    return {'found': args['query'].upper()}\n\
         gateway.run(sys.argv[3])\n",
    )
    .expect("written");
    let address = free_address();
    let client =
        format!("python3 client.py http://{address} \"$(token_of agent \"$researcher\")\" \"$researcher\" &");
    run_script(&fixture, &model, &research(&address, &client));
    let requests = model.requests();
    assert!(requests[1].to_string().contains("PROJECTS"), "{}", requests[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_in_rust_submits_results() {
    if !is_installed("curl") {
        return;
    }
    let fixture = Arc::new(Fixture::new());
    let model = Arc::new(researching_model());
    let address = free_address();
    // The client of this process reads its agent and its token from a file. The rename makes the complete
    // file visible.
    let client = "echo \"$researcher $(token_of agent \"$researcher\")\" >client; mv client client-of";
    let script = research(&address, client);
    let (of_script, of_model) = (Arc::clone(&fixture), Arc::clone(&model));
    let mut script = tokio::task::spawn_blocking(move || run_script(&of_script, &of_model, &script));
    let client = async {
        let file = fixture.root().join("client-of");
        tokio::task::block_in_place(|| wait_until("the script has made the agent", || file.exists()));
        let line = fs::read_to_string(file).expect("complete");
        let (agent, token) = line.trim().split_once(' ').expect("an agent and a token");
        let gateway =
            portcullis_client::Gateway::new(&format!("http://{address}"), token).expect("an address");
        let worker = Worker::new(gateway).tool("fetchExternalData", async |args: Value| {
            let query = args["query"].as_str().unwrap_or_default().to_uppercase();
            Ok::<_, std::io::Error>(json!({"found": query}))
        });
        worker.run(agent, std::future::pending()).await
    };
    tokio::select! {
        ended = &mut script => { ended.expect("the script succeeds"); }
        ended = client => panic!("the client ended first: {ended:?}"),
    }
    let requests = model.requests();
    assert!(requests[1].to_string().contains("PROJECTS"), "{}", requests[1]);
}

#[test]
fn an_agent_calls_the_allowed_tools_of_an_mcp_server() {
    if !is_installed("curl") {
        return;
    }
    let server = customers_server();
    let (url, endpoint) = (server.url("/mcp"), format!("127.0.0.1:{}", server.port()));
    // The policy may name a definition's tool only at the next start, so the gateway starts twice.
    let policy = format!(
        "[profiles.Remote]\nhosts = [\"http://{endpoint}\"]\nmethods = [\"POST\"]\n\
         [tools.crm]\nprofile = \"Remote\"\n[tools.find]\nprofile = \"Remote\"\napproval = \"allow\"\n"
    );
    let fixture =
        Fixture::new().with_policy_edit("allow_private = []", &format!("allow_private = [\"{endpoint}\"]"));
    let model =
        Model::answering(vec![calls(&[("find", r#"{"name":"Ada"}"#), ("fail", "{}")]), text("Found.")]);
    let definition = json!({
        "name": "Seller",
        "capabilities": [],
        "mcp": {"servers": [{"name": "crm", "url": url, "transport": "http", "allowedTools": ["find", "hidden"]}]},
    });
    let address = free_address();
    let start = format!("portcullis gateway --http {address} --token-file operator-token &");
    let script = format!(
        "{}\n{PERSON}\nseller=$(ask --json '{definition}' $api/agents | id)\n\
         ask -X PUT \"$api/spaces/$space/members/$seller\"\n\
         ask -X DELETE \"$api/spaces/$space/members/$agent\"\n\
         kill %1; wait %1 || true; cat >>'{}' <<'POLICY'\n{policy}POLICY\n{start}\n\
         until curl -sf http://{address}/healthz >/dev/null; do sleep 1; done\n\
         say 'Who is Ada?'\nuntil completed $seller; do sleep 1; done\n\
         curl -sS -H \"Authorization: Bearer $person\" \"$api/spaces/$space/messages\"",
        documented_commands(&address),
        fixture.policy_file().display(),
    );
    let shown = run_script(&fixture, &model, &script);
    assert!(!shown.contains("found"), "a tool of a server is not visible: {shown}");
    let requests = model.requests();
    let offered = requests[0]["tools"].to_string();
    assert!(offered.contains("\"find\"") && !offered.contains("\"fail\""), "{offered}");
    assert!(!offered.contains("\"crm\""), "the listing is hidden: {offered}");
    let results = requests[1].to_string();
    assert!(results.contains("found") && results.contains("Ada"), "{results}");
    let called = server.requests_seen().iter().filter(|request| request.contains("tools/call")).count();
    assert_eq!(called, 1, "a tool that is not allowed is not called");
}

/// The gateway of the demonstration.
struct Demo {
    child: Child,
    address: String,
    token: String,
}

impl Demo {
    #[expect(clippy::disallowed_methods, reason = "the test ends the program itself")]
    fn start(fixture: &Fixture) -> Self {
        let mut child = Command::new(portcullis_testing::binary())
            .args(["gateway", "--demo", "--http", "127.0.0.1:0"])
            .current_dir(fixture.root())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.starts_with("open http://"));
        let line = line.expect("a link");
        let (address, token) =
            line.trim_start_matches("open http://").split_once("/#token=").expect("a link");
        let (address, token) = (address.to_owned(), token.to_owned());
        Self { child, address, token }
    }

    fn get(&self, path: &str, token: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n",
            self.address
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        answer
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Ignore the errors: the program may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_demonstration_serves_a_page_and_ends_in_order() {
    let fixture = Fixture::new();
    let mut demo = Demo::start(&fixture);
    let page = demo.get("/", "");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for expected in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "nosniff",
        "<title>",
        "no-referrer",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains("unsafe-inline"), "{page}");
    assert!(demo.get("/assets/extensions.js", "").starts_with("HTTP/1.1 200"), "an empty script");
    assert!(demo.get("/assets/../Cargo.toml", "").starts_with("HTTP/1.1 404"));
    assert!(demo.get("/api/spaces", "").starts_with("HTTP/1.1 401"));
    let spaces = demo.get("/api/spaces", &demo.token);
    assert!(spaces.contains("Travel"), "{spaces}");
    kill_process(Pid::from_child(&demo.child), Signal::TERM).expect("asked to end");
    assert_eq!(demo.child.wait().expect("ended").code(), Some(0));
}

#[test]
fn an_address_that_others_reach_must_be_allowed() {
    let fixture = Fixture::new();
    let output = crate::modules::portcullis(&fixture, &["gateway", "--http", "0.0.0.0:0", "--model", "m"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--allow-remote"), "{}", stderr(&output));
}
