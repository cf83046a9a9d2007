//! There is one evaluator: for random policies and calls, `explain`, the map of grants, a replay of the row
//! and the real call through a real guest give the same answer. Bytes that are read, written or sent show the
//! answer of the real call.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis::OwnSidecar;
use portcullis_testing::{Fixture, approving_caller, binary};
use portcullis_tools::{
    ExplainRequest, ExplainedTool, Explainer, Explanation, OVERLAY_FILE, PolicyFiles, Replay, ToolGrants,
    ToolRegistry,
    audit::Row,
    new_call,
    policy::{Approval, DEFAULT_POLICY, DenialCode, FlowLabel},
    runtime_builder,
    shell::ShellSource,
};
use portcullis_types::{RunnerBootstrapEnvelope, SandboxTier, ToolErrorKind};
use proptest::{
    prelude::Strategy,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::json;

use crate::support::snapshot;

/// The minimum number of random policies of a run, and of calls under each.
const POLICIES: usize = 16;
const CALLS: usize = 16;

/// The mounts and their folders below the workspace. Some names share a prefix, and one folder is nested
/// deeper.
const MOUNTS: [(&str, &str); 4] =
    [("shared", "shared"), ("tmp", "tmp"), ("tmp2", "outer/tmp2"), ("vault", "vault")];

/// Files with different contents.
const FILES: [&str; 12] = [
    "shared/a.txt",
    "shared/dir/b.txt",
    "shared/dir/key.pem",
    "shared/dir/.ENV",
    "shared/.git/hooks/x",
    "shared/.bashrc",
    "shared/Makefile",
    "tmp/t.txt",
    "tmp/dir/b.txt",
    "outer/tmp2/a.txt",
    "outer/tmp2/x/y/z.txt",
    "vault/key",
];

/// Links, and their targets.
const LINKS: [(&str, &str); 9] = [
    ("shared/fine", "a.txt"),
    ("shared/alias", "dir/key.pem"),
    ("shared/down", "dir"),
    ("shared/hooks", ".git/hooks"),
    ("shared/out", "/etc/hostname"),
    ("shared/up", "../tmp/t.txt"),
    ("shared/secret", "../vault/key"),
    ("shared/loop", "loop"),
    ("tmp/chain", "dir"),
];

const PATHS: &[&str] = &[
    "a.txt",
    "/shared/a.txt",
    "dir/b.txt",
    "dir/key.pem",
    "dir/KEY.PEM",
    "dir/.ENV",
    "dir/.env",
    ".git/hooks/x",
    ".git/HOOKS/new",
    ".bashrc",
    "sub/.bashrc",
    "Makefile",
    "new.txt",
    "new/deep/c.txt",
    "dir/../a.txt",
    "dir/./b.txt",
    "/tmp/t.txt",
    "/tmp/dir/b.txt",
    "/tmp/new.txt",
    "/tmp2/a.txt",
    "/tmp2/x/y/z.txt",
    "/tmp2/x/new.sh",
    "/vault/key",
    "/vault/new",
    "/tmp/../vault/key",
    "../vault/key",
    "/nope/x",
    "/TMP/t.txt",
    "fine",
    "alias",
    "down/b.txt",
    "down/key.pem",
    "hooks/x",
    "hooks/new",
    "out",
    "up",
    "secret",
    "loop",
    "/tmp/chain/b.txt",
    "/tmp/chain/../t.txt",
    "dir",
];

/// Paths that most policies grant. Three of four calls of file tools name one.
const ORDINARY_PATHS: &[&str] =
    &["a.txt", "dir/b.txt", "/tmp/t.txt", "/tmp/dir/b.txt", "/tmp2/a.txt", "/tmp/new.txt", "new.txt", "fine"];

/// Draws random values from a seed.
struct Draw {
    runner: TestRunner,
    seed: u64,
}

impl Draw {
    fn new() -> Self {
        let given = std::env::var("PORTCULLIS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = given.unwrap_or_else(|| {
            proptest::num::u64::ANY.new_tree(&mut TestRunner::default()).expect("a number").current()
        });
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self { runner: TestRunner::new_with_rng(Config::default(), rng), seed }
    }

    fn of<T: Clone + std::fmt::Debug + 'static>(&mut self, values: &[T]) -> T {
        proptest::sample::select(values.to_vec()).new_tree(&mut self.runner).expect("a value").current()
    }

    /// Returns true with a probability of one in `times`.
    fn once_in(&mut self, times: usize) -> bool {
        self.of(&(0..times).collect::<Vec<_>>()) == 0
    }
}

/// A local server that never answers. Each connection counts as a sent request.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for _connection in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { port, connections }
    }
}

/// Returns a line `mounts = { … }` with a random access to each of these mounts.
fn drawn_mounts(draw: &mut Draw, mounts: &[&str], accesses: &[&'static str]) -> String {
    let granted: Vec<String> = mounts
        .iter()
        .filter_map(|mount| match draw.of(accesses) {
            "" => None,
            access => Some(format!("{mount} = \"{access}\"")),
        })
        .collect();
    format!("mounts = {{ {} }}\n", granted.join(", "))
}

/// Draws a policy of the operator. The caller draws again if the policy is not valid.
fn drawn_operator(draw: &mut Draw, port: u16, has_shell: bool) -> String {
    let mut text = String::from("version = 1\n[mounts]\n");
    for (mount, folder) in MOUNTS {
        text += &format!("{mount} = \"{folder}\"\n");
    }
    let plain = ["shared", "tmp", "tmp2"];
    text += "[profiles.Reader]\n";
    let readable = ["read", "read", "read", "read", "read", ""];
    text += &if draw.once_in(2) {
        drawn_mounts(draw, &["shared", "tmp", "tmp2", "vault"], &readable)
    } else {
        drawn_mounts(draw, &plain, &["read", "read", "read", "write", "write", ""])
    };
    text += "[profiles.Writer]\n";
    text += &drawn_mounts(draw, &plain, &["write", "write", "write", "write", "write", "write", "read", ""]);
    let hosts = [
        String::new(),
        format!("hosts = [\"http://127.0.0.1:{port}\"]\n"),
        format!("hosts = [\"http://127.0.0.1:{port}\"]\n"),
        format!("hosts = [\"http://127.0.0.1:{port}\"]\n"),
        format!("hosts = [\"https://*\", \"http://*:{port}\"]\n"),
    ];
    text += &format!(
        "[profiles.Net]\n{}[tools.web_fetch_request]\nprofile = \"Net\"\napproval = \"allow\"\n",
        draw.of(&hosts)
    );
    let allowed = format!("\"127.0.0.1:{port}\"");
    let private = [String::new(), allowed.clone(), allowed];
    text += &format!("[egress]\nrobots = \"ignore\"\nallow_private = [{}]\n", draw.of(&private));
    for (tool, profile) in [("file_read", "Reader"), ("file_write", "Writer")] {
        let approval = if draw.once_in(16) { "deny" } else { draw.of(&["allow", "allow", "allow", "ask"]) };
        text += &format!("[tools.{tool}]\nprofile = \"{profile}\"\napproval = \"{approval}\"\n");
        if approval == "ask" && draw.once_in(2) {
            text += "unasked = { path = [\"dir/**\", \"/tmp/*.txt\", \"fine\"] }\n";
        }
        if draw.once_in(20) {
            text += "enabled = false\n";
        }
    }
    let approval = draw.of(&["allow", "allow", "ask"]);
    text += &format!("[tools.web_fetch]\nprofile = \"Nothing\"\napproval = \"{approval}\"\n");
    for step in ["web_fetch_robots", "web_fetch_read", "web_fetch_read_pdf"] {
        text += &format!("[tools.{step}]\nprofile = \"Nothing\"\napproval = \"allow\"\n");
    }
    text += draw.of(&[
        "",
        "[protect]\nexcept = [\".bashrc\"]\n",
        "[protect]\npaths = [\"dir/b.txt\", \"x/y\"]\n",
    ]);
    text += draw.of(&["", "[hide]\npaths = [\"*.pem\"]\n", "[hide]\npaths = [\".env\", \"key*\"]\n"]);
    text += draw.of(&[
        "",
        "[[flow]]\nafter = [\"mount:tmp\"]\nthen = [\"write:shared\"]\napproval = \"ask\"\n",
        "[[flow]]\nafter = [\"mount:tmp2\", \"vault\"]\nthen = [\"write:tmp\", \"network\"]\napproval = \"deny\"\n",
    ]);
    text += draw.of(&[
        "",
        "[[flow]]\nafter = [\"mount:tmp\", \"mount:tmp2\"]\nthen = [\"write:protected\", \"shell\"]\napproval = \"deny\"\n",
    ]);
    if has_shell {
        text += "[shell]\nmounts = { shared = \"write\", tmp = \"read\" }\n";
        text += draw.of(&["", "", "", "allow = [\"echo\", \"cat a.txt\"]\n", "allow = [\"cat\"]\n"]);
        text += draw.of(&["", "deny = [\"cat\"]\n", "deny = [\"rm\", \"sh\"]\n"]);
        text += draw.of(&["", "operators = [\">\", \"|\"]\n", "operators = []\n"]);
        text += draw.of(&["", "unasked = [\"cat *\", \"echo *\"]\n"]);
        let approval = draw.of(&["allow", "ask"]);
        text += &format!("[tools.shell_exec]\napproval = \"{approval}\"\n");
    }
    for tier in ["process", "container"] {
        if draw.once_in(4) {
            text += &format!("[sandbox.{tier}]\n{}", drawn_reduction(draw));
        }
    }
    text
}

/// Draws a line of a reduction. The caller draws again if the line would widen the policy.
fn drawn_reduction(draw: &mut Draw) -> &'static str {
    draw.of(&[
        "profiles.Writer.mounts.shared = \"read\"\n",
        "profiles.Writer.mounts.tmp = \"none\"\n",
        "profiles.Reader.mounts.tmp2 = \"none\"\n",
        "profiles.Net.hosts = []\n",
        "tools.file_write.approval = \"ask\"\n",
        "tools.file_read.enabled = false\n",
        "tools.web_fetch.approval = \"deny\"\n",
        "protect.paths = [\"a.txt\"]\n",
        "hide.paths = [\"b.txt\"]\n",
        "flow = [{ after = [\"mount:shared\"], then = [\"write:tmp2\"], approval = \"ask\" }]\n",
    ])
}

/// A random call.
struct Drawn {
    tool: &'static str,
    subject: String,
    /// The content of a write.
    token: String,
    /// The files that the run reads before the call.
    before: Vec<&'static str>,
}

fn drawn_call(draw: &mut Draw, number: usize, port: u16, has_shell: bool) -> Drawn {
    let token = format!("token-{number}-end");
    let before = if draw.once_in(4) {
        vec![draw.of(&["/shared/a.txt", "/tmp/t.txt", "/tmp2/a.txt", "/vault/key"])]
    } else {
        Vec::new()
    };
    let tools: &[&str] = if has_shell {
        &["shell_exec", "shell_exec", "file_read", "file_write", "web_fetch"]
    } else {
        &["file_read", "file_read", "file_read", "file_write", "file_write", "file_write", "web_fetch"]
    };
    let tool = draw.of(tools);
    let subject = match tool {
        "web_fetch" => {
            let other = port.wrapping_add(1);
            draw.of(&[
                format!("http://127.0.0.1:{port}/"),
                format!("http://127.0.0.1:{port}/?{token}"),
                format!("http://127.0.0.1:{port}/a"),
                format!("http://127.0.0.1:{port}/b"),
                format!("http://127.0.0.1:{other}/"),
                format!("https://127.0.0.1:{port}/"),
                format!("http://127.0.0.2:{port}/"),
                format!("http://0x7f.1:{port}/"),
                "http://169.254.169.254/".to_owned(),
                "ftp://127.0.0.1/".to_owned(),
            ])
        }
        "shell_exec" => draw.of(&[
            format!("echo {token} > made.txt"),
            format!("echo {token} | cat > made.txt"),
            format!("sh -c 'echo {token} > made.txt'"),
            "cat a.txt".to_owned(),
            "cat a.txt dir/b.txt".to_owned(),
            "cat /tmp/t.txt; cat a.txt".to_owned(),
            "rm -f none; cat a.txt".to_owned(),
        ]),
        _ if !draw.once_in(4) => draw.of(ORDINARY_PATHS).to_owned(),
        _ => draw.of(PATHS).to_owned(),
    };
    Drawn { tool, subject, token, before }
}

/// A random policy in a workspace, with everything that gives an answer.
struct World {
    fixture: Fixture,
    registry: ToolRegistry,
    explainer: Explainer,
    map: Vec<ToolGrants>,
    text: String,
}

impl World {
    async fn drawn(draw: &mut Draw, port: u16, has_shell: bool) -> Self {
        let (fixture, envelope, text, files) = loop {
            if let Some(drawn) = drawn_workspace(draw, port, has_shell) {
                break drawn;
            }
        };
        fixture.copy_compiled_modules_to(&fixture.state());
        let mut builder =
            runtime_builder(&envelope).await.unwrap_or_else(|error| panic!("{error:?}\n{text}"));
        if has_shell {
            builder = builder.shell(ShellSource::Own(Arc::new(OwnSidecar::new(binary()))));
        }
        let registry = builder.build().expect("builds");
        let explainer = Explainer::new(&envelope, &files).await.expect("explains");
        let tools: Vec<ExplainedTool> = ExplainedTool::all_shipped(explainer.policy()).collect();
        let map = explainer.grants_of(&tools);
        Self { fixture, registry, explainer, map, text }
    }

    /// Returns the last row of the call with this id.
    fn row_of(&self, call_id: &str) -> Row {
        let rows = self.fixture.rows();
        rows.into_iter().rfind(|row| &*row.call_id == call_id).expect("a row")
    }

    /// Returns the host path of a guest path.
    fn host_path(&self, path: &str) -> PathBuf {
        let absolute = if path.starts_with('/') { path.to_owned() } else { format!("/shared/{path}") };
        let (mount, rest) = absolute[1..].split_once('/').unwrap_or((&absolute[1..], ""));
        let folder = MOUNTS.iter().find(|(name, _)| *name == mount).map_or("none", |(_, folder)| folder);
        self.fixture.workspace().join(folder).join(rest)
    }

    /// Makes the call, and compares all answers. Returns the verdict.
    async fn check(&self, drawn: &Drawn, server: &Server, number: usize) -> Approval {
        let mut caller = approving_caller();
        caller.run_id = format!("run-{number}");
        let mut after = Vec::new();
        for path in &drawn.before {
            let read = new_call("file_read", json!({ "path": path }).to_string());
            if self.registry.execute_with_policy(read, &caller).await.outcome.is_output() {
                let mount = path.split('/').nth(1).expect("a mount");
                let label = if mount == "vault" { mount.to_owned() } else { format!("mount:{mount}") };
                after.push(label.parse::<FlowLabel>().expect("a label"));
            }
        }
        let tool = ExplainedTool::shipped(drawn.tool).expect("shipped");
        let request =
            ExplainRequest { subject: Some(&drawn.subject), writes: false, agent: "tester", after: &after };
        let explanation = self.explainer.explain(&tool, &request).expect("explained");
        let path = if drawn.tool == "shell_exec" { "a.txt" } else { &drawn.subject };
        let read = fs::read_to_string(self.host_path(path)).ok();
        let connections = server.connections.load(Ordering::SeqCst);

        let arguments = match drawn.tool {
            "shell_exec" => json!({ "command": drawn.subject }),
            "web_fetch" => json!({ "url": drawn.subject }),
            "file_write" => json!({ "path": drawn.subject, "content": drawn.token }),
            _ => json!({ "path": drawn.subject }),
        };
        let call = new_call(drawn.tool, arguments.to_string());
        let call_id = call.id.clone();
        let outcome = self.registry.execute_with_policy(call, &caller).await.into_result();
        let row = self.row_of(&call_id);
        let text = match &outcome {
            Ok(output) => output.joined_text(),
            Err(error) => error.to_string(),
        };

        // The call.
        let denied = outcome.as_ref().err().filter(|error| error.kind() == ToolErrorKind::Denied);
        let real = match (denied, row.approval.as_deref()) {
            (Some(_), _) => Approval::Deny,
            (None, Some("approved")) => Approval::Ask,
            (None, _) => Approval::Allow,
        };
        let code = denied.map(|error| error.code().to_owned());
        let context = || format!("{}\n{explanation:#?}\n{text}\n{row:?}", self.text);
        assert_eq!(
            (explanation.verdict, explanation.code.map(DenialCode::as_str)),
            (real, code.as_deref()),
            "{}",
            context()
        );
        // A call of a tool that is not enabled is refused before the flow rules are checked.
        if row.profile.is_some() {
            let labels: Vec<String> = after.iter().map(ToString::to_string).collect();
            let noted: Vec<String> = row.labels.iter().map(ToString::to_string).collect();
            assert_eq!(noted, labels, "{}", context());
        }
        self.check_bytes(drawn, &explanation, outcome.is_ok(), &text, read, &context);
        if drawn.tool == "web_fetch" {
            let sent = server.connections.load(Ordering::SeqCst) > connections;
            let is_local = drawn.subject.contains(&format!("http://127.0.0.1:{}/", server.port))
                || drawn.subject.contains("0x7f.1");
            assert_eq!(sent, real != Approval::Deny && is_local, "{}", context());
        }

        self.check_replay(drawn, &row, &explanation, &context);
        self.check_map(drawn, &explanation, &context);
        real
    }

    /// Checks that bytes were read or written if and only if the call was not refused.
    fn check_bytes(
        &self,
        drawn: &Drawn,
        explanation: &Explanation,
        has_result: bool,
        text: &str,
        read: Option<String>,
        context: &dyn Fn() -> String,
    ) {
        let is_denied = explanation.verdict == Approval::Deny;
        match drawn.tool {
            "file_read" => match read {
                Some(content) => {
                    assert_eq!(text.contains(&content), !is_denied && has_result, "{}", context());
                }
                None => assert!(!has_result, "{}", context()),
            },
            "file_write" if has_result => {
                let written = fs::read_to_string(self.host_path(&drawn.subject)).expect("written");
                assert_eq!(written, drawn.token, "{}", context());
            }
            "shell_exec" if !is_denied && drawn.subject.contains("made.txt") => {
                let made = fs::read_to_string(self.fixture.shared("made.txt")).expect("the file is readable");
                assert!(made.contains(&drawn.token), "{}", context());
            }
            "shell_exec" if drawn.subject.contains("cat a.txt") => {
                assert_eq!(text.contains(&read.expect("readable")), !is_denied, "{}", context());
            }
            _ => {}
        }
        if is_denied {
            let token = format!("{:?}", drawn.token.as_bytes());
            let token = token.trim_matches(['[', ']']);
            let holds = snapshot(&self.fixture.workspace()).values().any(|content| content.contains(token));
            assert!(!holds && !text.contains("content of "), "{}", context());
        }
    }

    /// Checks that a replay of the row by names gives the same answer. A link may make the call's answer
    /// stricter.
    fn check_replay(
        &self,
        drawn: &Drawn,
        row: &Row,
        explanation: &Explanation,
        context: &dyn Fn() -> String,
    ) {
        // An operation touches nothing itself, because its steps have separate rows.
        if drawn.tool == "web_fetch" {
            return;
        }
        let mut replay = Replay::new(self.explainer.policy());
        replay.add(row, None);
        let report = replay.into_report();
        assert_eq!(report.calls, 1, "{report:?}\n{}", context());
        let is_of_link = explanation.code == Some(DenialCode::HardLink) || leads_through_link(&drawn.subject);
        for group in report.changed.keys() {
            assert_eq!(group.was, explanation.verdict, "{group:?}\n{}", context());
            assert!(group.would < group.was && is_of_link, "{group:?}\n{}", context());
        }
    }

    /// Checks that the map has the mount or host of each call that is not refused, and lacks it if the grant
    /// is missing.
    fn check_map(&self, drawn: &Drawn, explanation: &Explanation, context: &dyn Fn() -> String) {
        let entries: Vec<&ToolGrants> = self.map.iter().filter(|entry| entry.tool == drawn.tool).collect();
        let is_denied = explanation.verdict == Approval::Deny;
        if entries.iter().any(|entry| entry.verdict == Approval::Deny) {
            assert!(is_denied, "{}", context());
        }
        if drawn.tool == "web_fetch" {
            let has_hosts = entries.iter().any(|entry| !entry.hosts.is_empty());
            assert!(is_denied || has_hosts, "{}", context());
            assert!(explanation.code != Some(DenialCode::EgressNotGranted) || !has_hosts, "{}", context());
            return;
        }
        let Some(subject) = &explanation.subject else { return };
        let mount = subject.split('/').nth(1).unwrap_or_default();
        let granted = entries.iter().flat_map(|entry| &entry.mounts).find(|grant| grant.mount == mount);
        let needed = if drawn.tool == "file_write" { "write" } else { "read" };
        let is_enough = granted.is_some_and(|grant| grant.access.as_str() >= needed);
        if drawn.tool != "shell_exec" {
            assert!(is_denied || is_enough, "{}", context());
        }
        if let Some(DenialCode::MountNotGranted | DenialCode::MountReadOnly | DenialCode::UnknownMount) =
            explanation.code
        {
            assert!(!is_enough, "{}", context());
        }
    }
}

fn leads_through_link(path: &str) -> bool {
    let path = path.strip_prefix("/shared/").or(path.strip_prefix('/')).unwrap_or(path);
    LINKS.iter().any(|(link, _)| {
        let link = link.strip_prefix("shared/").unwrap_or(link);
        path == link || path.starts_with(&format!("{link}/"))
    })
}

/// Creates a workspace with files, links, and a random policy. Returns `None` if the policy is not valid.
fn drawn_workspace(
    draw: &mut Draw,
    port: u16,
    has_shell: bool,
) -> Option<(Fixture, RunnerBootstrapEnvelope, String, PolicyFiles)> {
    let operator = drawn_operator(draw, port, has_shell);
    let overlay = draw.once_in(3).then(|| drawn_reduction(draw));
    let tier = draw.of(&[SandboxTier::Process, SandboxTier::Container]);
    let has_hard_link = draw.once_in(8);
    let fixture = Fixture::new().with_policy_edit(DEFAULT_POLICY, &operator);
    let workspace = fixture.workspace();
    if let Some(overlay) = overlay {
        fs::write(workspace.join(OVERLAY_FILE), overlay).expect("written");
    }
    let mut envelope = fixture.envelope();
    envelope.sandbox_tier = tier;
    let files = PolicyFiles::find(&envelope).expect("policy files");
    files.load(tier).ok()?;
    for file in FILES {
        let path = workspace.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(path, format!("content of {file}")).expect("written");
    }
    for (link, target) in LINKS {
        std::os::unix::fs::symlink(target, workspace.join(link)).expect("linked");
    }
    if has_hard_link {
        fs::hard_link(workspace.join("vault/key"), workspace.join("shared/new.txt")).expect("linked");
    }
    let text = format!("{operator}\n# overlay, for {tier}:\n{}", overlay.unwrap_or_default());
    Some((fixture, envelope, text, files))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanations_replays_the_map_and_real_calls_give_one_answer() {
    let mut draw = Draw::new();
    let seed = draw.seed;
    println!("PORTCULLIS_SEED={seed} draws these policies and calls again");
    // Compiles the core tools once, for all registries.
    drop(Fixture::new().registry().await);
    let server = Server::start();
    let mut verdicts: BTreeMap<Approval, usize> = BTreeMap::new();
    let mut policies = 0;
    // The strictness of the policies is random too. A run with many strict policies draws more of them.
    while policies < POLICIES || (!has_enough_of_each(&verdicts) && policies < 2 * POLICIES) {
        let has_shell = policies % 6 == 5;
        let world = World::drawn(&mut draw, server.port, has_shell).await;
        for call in 0..CALLS {
            let number = policies * CALLS + call;
            let drawn = drawn_call(&mut draw, number, server.port, has_shell);
            *verdicts.entry(world.check(&drawn, &server, number).await).or_default() += 1;
        }
        policies += 1;
    }
    println!("{verdicts:?} under {policies} policies");
    assert!(has_enough_of_each(&verdicts), "{verdicts:?}");
}

/// Returns whether a quarter of the calls ran without a question, and each other answer occurred.
fn has_enough_of_each(verdicts: &BTreeMap<Approval, usize>) -> bool {
    let all: usize = verdicts.values().sum();
    let count = |verdict| verdicts.get(&verdict).copied().unwrap_or_default();
    count(Approval::Allow) * 4 >= all && count(Approval::Ask) * 50 >= all && count(Approval::Deny) * 4 >= all
}
