//! Each refusal names the lines that would allow the call, and these lines do allow it.

use std::fs;

use serde_json::{Value, json};

use super::Author;

/// Two tools: one that writes, one that is high risk.
const PROGRAM: &str = r##"//! Two tools.
use portcullis_sdk::{ToolError, export_tools, fs, http, tool};

/// Keeps a text.
#[tool(tier = SideEffecting, deny_unknown)]
async fn keep(#[arg(path = "write")] path: &str, text: &str) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    std::fs::write(fs::locate(&path)?, text).map_err(|error| fs::tool_error(error, "write", &path))?;
    Ok("kept".to_owned())
}

/// Says yes.
#[tool(tier = Privileged)]
async fn risk() -> &'static str {
    "yes"
}

/// Opens a path that has no role.
#[tool(tier = ReadOnly)]
async fn unrolled(name: &str) -> Result<String, ToolError> {
    let path = fs::parse(name)?;
    std::fs::read_to_string(fs::locate(&path)?).map_err(|_| ToolError::denied("refused"))
}

/// Says yes too.
#[tool]
async fn plain() -> &'static str {
    "yes"
}

/// Asks a server.
#[tool(tier = ReadOnly, hosts = ["http://127.0.0.1:9"])]
async fn reach() -> Result<String, ToolError> {
    Ok(http::get("http://127.0.0.1:9/x?y")?.text()?)
}

export_tools![keep, risk, unrolled, plain, reach];
"##;

fn author() -> Author {
    Author::with_crate("several", Some(PROGRAM))
}

/// Makes a call that is refused, applies exactly the lines shown, and makes the call again.
#[track_caller]
fn allowed_by_its_lines(author: &Author, tool: &str, arguments: &str, code: &str, expected: &[&str]) {
    let (answer, _) = author.try_tool(3, tool, arguments, &["--json"]);
    let refusal = serde_json::from_str::<Value>(&answer).expect("JSON")["refusal"].clone();
    assert_eq!(
        (refusal["code"].as_str(), &refusal["allow"]["lines"]),
        (Some(code), &json!(expected)),
        "{refusal}"
    );
    let (_, stderr_text) = author.try_tool(3, tool, arguments, &[]);
    let (_, lines) = stderr_text.split_once(":\n\n").expect("lines");
    let file = author.path("policy.toml");
    let policy = fs::read_to_string(&file).expect("the file is readable");
    let header = format!("[tools.{tool}]\n");
    let policy = if refusal["allow"]["section_exists"] == true {
        assert!(
            stderr_text.contains(&format!("write into the section [tools.{tool}] of `policy.toml`")),
            "{stderr_text}"
        );
        // Remove the lines that contradict the new ones, as a person would.
        let (head, entry) = policy.split_once(&header).expect("the section");
        let is_old = |line: &&str| expected.iter().any(|new| new.split(' ').next() == line.split(' ').next());
        let kept_lines: Vec<&str> = entry.lines().filter(|line| !is_old(line)).collect();
        format!("{head}{header}{lines}{}\n", kept_lines.join("\n"))
    } else {
        assert!(stderr_text.contains("add to `policy.toml`"), "{stderr_text}");
        assert!(lines.starts_with(&header), "{lines}");
        format!("{policy}\n{lines}")
    };
    fs::write(&file, policy).expect("written");
    author.try_tool(0, tool, arguments, &[]);
}

#[test]
fn the_lines_that_a_refusal_shows_allow_the_call() {
    let author = author();
    let keep = r#"{"path": "/shared/a.txt", "text": "x"}"#;
    author.write_policy("");
    allowed_by_its_lines(&author, "keep", keep, "mount_not_granted", &["profile = \"FileReadWrite\""]);
    assert_eq!(fs::read_to_string(author.path("workspace/shared/a.txt")).expect("the file is readable"), "x");
    author.write_policy("[tools.keep]\nprofile = \"WorkspaceRead\"\ntimeout = \"3s\"\n");
    allowed_by_its_lines(&author, "keep", keep, "mount_read_only", &["profile = \"FileReadWrite\""]);
    author.write_policy("[tools.keep]\nprofile = \"FileReadWrite\"\napproval = \"ask\"\n");
    allowed_by_its_lines(&author, "keep", keep, "approval_unavailable", &["approval = \"allow\""]);
    author.write_policy("[tools.keep]\nprofile = \"Nothing\"\napproval = \"deny\"\n");
    allowed_by_its_lines(
        &author,
        "keep",
        keep,
        "approval_denied",
        &["profile = \"FileReadWrite\"", "approval = \"allow\""],
    );
    author.write_policy("[tools.keep]\nprofile = \"FileReadWrite\"\nenabled = false\n");
    allowed_by_its_lines(&author, "keep", keep, "tool_disabled", &["enabled = true"]);
    // Without an entry the tool's profile suffices, but the call needs an approval and there is no approver. The
    // shown lines add an entry that does not ask.
    author.write_policy("");
    allowed_by_its_lines(&author, "plain", "{}", "approval_unavailable", &["approval = \"allow\""]);
}

/// The refused request has its own row; the tool reports the refusal as its own error.
#[test]
fn a_refused_request_shows_the_lines_that_grant_its_host() {
    let author = author();
    let entry = "approval = \"allow\"\n";
    let refusal = || {
        let (answer, _) = author.try_tool(3, "reach", "{}", &["--json"]);
        serde_json::from_str::<Value>(&answer).expect("JSON")["refusal"].clone()
    };
    author.write_policy(&format!("[tools.reach]\nprofile = \"Nothing\"\n{entry}"));
    let refused = refusal();
    assert_eq!(refused["code"], "egress_not_granted", "{refused}");
    assert_eq!(refused["subject"], "http://127.0.0.1:9/x?y");
    let hosts = "hosts = [\"http://127.0.0.1:9\"]";
    assert_eq!(
        (&refused["allow"]["section"], &refused["allow"]["lines"]),
        (&json!("[profiles.reach]"), &json!([hosts]))
    );
    let also = &refused["allow_also"][0];
    assert_eq!(
        (&also["section"], &also["section_exists"], &also["lines"]),
        (&json!("[tools.reach]"), &json!(true), &json!(["profile = \"reach\""]))
    );
    let (_, stderr_text) = author.try_tool(3, "reach", "{}", &[]);
    assert!(stderr_text.contains(&format!("[profiles.reach]\n{hosts}")), "{stderr_text}");

    // If the tool has a separate profile, one line in that profile is enough.
    author.write_policy(&format!(
        "[profiles.Reach]\nhosts = [\"https://a.example\"]\n[tools.reach]\nprofile = \"Reach\"\n{entry}"
    ));
    let refused = refusal();
    assert_eq!((&refused["code"], &refused["allow_also"]), (&json!("host_not_granted"), &json!([])));
    assert_eq!(refused["allow"]["lines"], json!(["hosts = [\"https://a.example\", \"http://127.0.0.1:9\"]"]));

    // The lines do grant the host: the request is now refused for the host's address.
    author.write_policy(&format!("[profiles.reach]\n{hosts}\n[tools.reach]\nprofile = \"reach\"\n{entry}"));
    let refused = refusal();
    assert_eq!((&refused["code"], &refused["allow"]), (&json!("address_not_public"), &Value::Null));
    let advice = refused["advice"].as_str().unwrap_or_default();
    assert!(advice.contains("allow_private"), "{refused}");
}

#[test]
fn advice_says_why_no_policy_line_would_help() {
    let author = author();
    author.write_policy(
        "[tools.keep]\nprofile = \"FileReadWrite\"\n[tools.unrolled]\nprofile = \"WorkspaceRead\"\n",
    );
    let keep = |path: &str| json!({"path": path, "text": "x"}).to_string();
    for (tool, arguments, code, advice) in [
        ("keep", keep("/data/x"), "unknown_mount", "`[mounts]` names"),
        ("keep", keep("/shared/../../x"), "path_escapes_mount", "no policy allows"),
        ("keep", keep("/shared/.bashrc"), "protected_path", "`[protect] paths`"),
        ("keep", keep("/vault/x"), "mount_not_granted", "write one in `[profiles]`"),
        ("risk", "{}".to_owned(), "approval_unavailable", "--approve"),
        ("unrolled", r#"{"name": "/vault/x"}"#.to_owned(), "denied", "the tool reported this itself"),
    ] {
        let (_, stderr_text) = author.try_tool(3, tool, &arguments, &[]);
        assert!(stderr_text.contains(&format!("code     {code}\n")), "{stderr_text}");
        let line = stderr_text
            .lines()
            .find(|line| line.starts_with("advice "))
            .unwrap_or_else(|| panic!("{stderr_text}"));
        assert!(line.contains(advice), "{line}");
        assert!(!stderr_text.contains("\nallow "), "{stderr_text}");
    }
    assert_eq!(author.try_tool(0, "risk", "{}", &["--approve"]).0, "yes");
}

#[test]
fn a_call_refused_before_the_policy_names_the_problem() {
    let author = author();
    let (_, stderr_text) = author.try_tool(1, "kept", "{}", &[]);
    assert!(
        stderr_text.contains("the crate has no tool `kept`; it has: keep, plain, reach, risk, unrolled"),
        "{stderr_text}"
    );
    // A registered tool, but not a tool of the crate.
    let (_, stderr_text) = author.try_tool(1, "file_read", "{}", &[]);
    assert!(stderr_text.contains("the crate has no tool `file_read`"), "{stderr_text}");
    for (arguments, message) in [
        ("{\"path\":", "arguments"),
        ("{}", "missing required field 'path'"),
        ("{\"path\":\"a\",\"text\":\"b\",\"more\":1}", "more"),
    ] {
        let (answer, stderr_text) = author.try_tool(1, "keep", arguments, &[]);
        assert_eq!(answer, "");
        assert!(
            stderr_text.contains("code     invalid_arguments") && stderr_text.contains(message),
            "{stderr_text}"
        );
    }
}
