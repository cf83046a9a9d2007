//! Requests of tools: a fetch against curl and bare hyper, the gate's judgement, and pages in the guest that reads.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, TcpListener, TcpStream},
    num::NonZeroUsize,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use portcullis_egress::{
    CancellationToken, Egress, EgressSettings, GrantKey, Judge, Limits, Method, NameSettings, Refusal,
    Request, SystemRoots, TrustedRoots, Url,
};
use portcullis_testing::{World, approving};
use portcullis_tools::{
    ToolRegistry,
    confine::{Canary, Requirement},
    new_call,
    policy::{CallRequest, Host, RunFacts, WorkspaceSecurityPolicy},
};
use serde_json::json;

use crate::{
    report::Report,
    sample::{median_us, resident_bytes},
};

/// The body of a small fetch.
const SMALL: usize = 10 << 10;
const FETCHES: usize = 500;
/// Fetches of one client in a row, so that each is measured while its own caches are warm.
const IN_A_ROW: usize = 50;
const JUDGEMENTS: usize = 20_000;
const AT_A_TIME: usize = 100;
/// Rounds of [`AT_A_TIME`] fetches: the memory of the last is compared with that of the second.
const ROUNDS: usize = 10;
const READS: usize = 5;

pub(crate) async fn network(report: &mut Report) {
    let pages = pages();
    let server = Server::start(pages.iter().map(|page| (page.path.to_owned(), page.html.clone())).collect());
    let port = server.port;
    let world = World::new()
        .with_policy_edit("hosts = [\"https://*\"]", &format!("hosts = [\"http://127.0.0.1:{port}\"]"))
        .with_policy_edit("allow_private = []", &format!("allow_private = [\"127.0.0.1:{port}\"]"));
    let registry = Arc::new(world.registry().await);
    judgement(registry.policy(), &registry, &server, report);
    small_fetches(&world, &server, report).await;
    reading(&world, &registry, &server, &pages, report).await;
    many_at_a_time(&world, &server, report).await;
}

/// The client alone, beside the least that hyper needs and beside curl, each with a body of 10 KiB.
async fn small_fetches(world: &World, server: &Server, report: &mut Report) {
    let url: Url = server.url("/small").parse().expect("a URL");
    let egress = egress(world, server);
    let judge: Arc<dyn Judge> = Arc::new(OpenJudge);
    let mut bare = BareClient::connect(server).await;
    let (mut ours, mut hyper, mut curl) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..FETCHES / IN_A_ROW {
        for _ in 0..IN_A_ROW {
            let start = Instant::now();
            let sent = egress.send(Arc::clone(&judge), Request::get(url.clone()), CancellationToken::new());
            assert_eq!(sent.await.expect("a response").body.len(), SMALL);
            ours.push(start.elapsed());
        }
        for _ in 0..IN_A_ROW {
            let start = Instant::now();
            assert_eq!(bare.get("/small").await.len(), SMALL);
            hyper.push(start.elapsed());
        }
        curl.extend(curl_times(&server.url("/small")));
    }
    let (ours, hyper, curl) = (median_us(&mut ours), median_us(&mut hyper), median_us(&mut curl));
    report.reference("a fetch of 10 KiB, hyper alone over one connection, p50", hyper, "µs");
    report.reference("a fetch of 10 KiB, curl over one connection, p50", curl, "µs");
    report.at_most("a fetch of 10 KiB by the confined client, beside curl", ours / curl, 1.3, "×");
    report.at_most("a fetch of 10 KiB by the confined client, over hyper alone", ours - hyper, 300.0, "µs");
}

/// The policy's judgement of a request and of its address.
fn judgement(
    policy: &WorkspaceSecurityPolicy,
    registry: &ToolRegistry,
    server: &Server,
    report: &mut Report,
) {
    let steps = registry.tools();
    let fetch = steps.iter().find(|tool| tool.decl().name == "web_fetch").expect("offered");
    let mut facts = fetch.facts().clone();
    facts.name = portcullis_types::ToolName::parse("web_fetch_request").expect("a name");
    facts.roles.clear();
    let request = CallRequest { tool: &facts, subjects: &[], run: &RunFacts::default() };
    let grant = policy.authorize(&request).expect("granted");
    let url = server.url("/small");
    let (host, address) = (Host::parse("127.0.0.1").expect("a host"), IpAddr::from([127, 0, 0, 1]));
    let start = Instant::now();
    for _ in 0..JUDGEMENTS {
        grant.judge_request("GET", &url).expect("granted");
        grant.judge_address(&host, server.port, address).expect("granted");
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / JUDGEMENTS as f64;
    report.at_most("the judgement of a request and its address", each, 5.0, "µs");
}

/// Pages in the guest, by the time of the read step's row; hostile pages by the time of the whole call.
async fn reading(
    world: &World,
    registry: &ToolRegistry,
    server: &Server,
    pages: &[Page],
    report: &mut Report,
) {
    for page in pages {
        let Some(limit) = page.limit else { continue };
        let times = if page.is_hostile { 1 } else { READS };
        let (mut whole, mut read) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let call = new_call("web_fetch", json!({ "url": server.url(page.path) }).to_string());
            let start = Instant::now();
            let outcome = registry.execute_with_policy(call, &approving()).await.outcome;
            whole.push(start.elapsed());
            assert!(!outcome.expect("fetched").joined_text().is_empty(), "{}", page.path);
            let rows = world.rows();
            let step = rows.iter().rev().find(|row| &*row.tool == "web_fetch_read").expect("a row");
            read.push(Duration::from_micros(step.duration_us.expect("an end")));
        }
        let measured = if page.is_hostile { median_us(&mut whole) } else { median_us(&mut read) };
        report.at_most(page.what, measured / 1000.0, limit, "ms");
    }
}

/// Memory with many fetches under way.
#[expect(clippy::disallowed_methods, reason = "a benchmark's own tasks")]
async fn many_at_a_time(world: &World, server: &Server, report: &mut Report) {
    let url: Url = server.url("/large").parse().expect("a URL");
    let egress = Arc::new(egress(world, server));
    let judge: Arc<dyn Judge> = Arc::new(OpenJudge);
    let mut second = 0;
    for round in 0..ROUNDS {
        let fetches = (0..AT_A_TIME).map(|_| {
            let (egress, judge, url) = (Arc::clone(&egress), Arc::clone(&judge), url.clone());
            tokio::spawn(async move {
                let sent = egress.send(judge, Request::get(url), CancellationToken::new());
                sent.await.expect("a response").body.len()
            })
        });
        for fetch in fetches.collect::<Vec<_>>() {
            assert!(fetch.await.expect("ran") > 1 << 20);
        }
        if round == 1 {
            second = resident_bytes(std::process::id());
        }
    }
    let grown = resident_bytes(std::process::id()).saturating_sub(second);
    let what = "growth of memory over 800 fetches of 1 MiB, 100 at a time";
    report.at_most(what, grown as f64 / 1e6, 16.0, "MB");
}

fn egress(world: &World, server: &Server) -> Egress {
    std::fs::create_dir_all(world.state()).expect("a folder");
    Egress::start(EgressSettings {
        canary: Canary::create(&world.state()).expect("a canary"),
        landlock: Requirement::Required,
        seccomp: Requirement::Required,
        ports: [server.port].into(),
        proxy: None,
        names: NameSettings::of_servers(Vec::new()),
        roots: TrustedRoots::read(SystemRoots::Trust, &[]).expect("certificates"),
        threads: NonZeroUsize::MIN,
    })
    .expect("starts")
}

/// Lets everything through, so that the client alone is measured.
struct OpenJudge;

impl Judge for OpenJudge {
    fn request(&self, _method: &Method, _url: &Url) -> Result<(), Refusal> {
        Ok(())
    }

    fn address(&self, _host: &str, _port: u16, _address: IpAddr) -> Result<(), Refusal> {
        Ok(())
    }

    fn redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Ok(())
    }

    fn grant_key(&self) -> Option<GrantKey> {
        Some(GrantKey::new("one"))
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// hyper over one connection that stays open.
struct BareClient {
    sender: hyper::client::conn::http1::SendRequest<Empty<Bytes>>,
}

impl BareClient {
    #[expect(clippy::disallowed_methods, reason = "a benchmark's own task")]
    async fn connect(server: &Server) -> Self {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.expect("connects");
        stream.set_nodelay(true).expect("settable");
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("agrees");
        tokio::spawn(connection);
        Self { sender }
    }

    async fn get(&mut self, path: &str) -> Bytes {
        self.sender.ready().await.expect("open");
        let request = hyper::Request::get(path).header("host", "127.0.0.1").body(Empty::new());
        let response = self.sender.send_request(request.expect("a request")).await.expect("a response");
        response.into_body().collect().await.expect("a body").to_bytes()
    }
}

/// The times of one curl process that fetches the same address several times; the first opens the connection.
#[expect(clippy::disallowed_methods, reason = "the program that we are compared with")]
fn curl_times(url: &str) -> Vec<Duration> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--write-out", "%{time_total}\\n"]).stdin(Stdio::null());
    for _ in 0..=IN_A_ROW {
        curl.args(["--output", "/dev/null", url]);
    }
    let output = curl.output().expect("curl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let seconds = text.lines().skip(1).map(|line| line.parse().expect("seconds"));
    seconds.map(Duration::from_secs_f64).collect()
}

/// A page of the server.
struct Page {
    path: &'static str,
    what: &'static str,
    html: String,
    /// The budget in milliseconds; none for what is fetched without being read.
    limit: Option<f64>,
    /// Whether the page is made to cost more than it is worth.
    is_hostile: bool,
}

/// The pages of the budgets: an article, and the shapes on which parsers of HTML were seen to run away.
fn pages() -> Vec<Page> {
    const HOSTILE_MS: f64 = 3000.0;
    let plain = |path, html| Page { path, what: "", html, limit: None, is_hostile: false };
    let hostile = |path, what, html| Page { path, what, html, limit: Some(HOSTILE_MS), is_hostile: true };
    vec![
        plain("/small", "x".repeat(SMALL)),
        plain("/large", "x".repeat((1 << 20) + 1)),
        Page {
            path: "/article",
            what: "an article of 1 MB to Markdown, in the guest",
            html: article(1_000_000),
            limit: Some(120.0),
            is_hostile: false,
        },
        hostile("/divs", "100 000 nested `div`", format!("<p>text</p>{}", "<div>".repeat(100_000))),
        hostile("/attributes", "an element of 100 000 attributes", attributes()),
        hostile("/entities", "200 000 entities", format!("<p>{}</p>", "&amp;".repeat(200_000))),
        hostile("/inline", "50 000 nested `b` and `i`", format!("<p>text{}", "<b><i>".repeat(50_000))),
        hostile("/quotes", "20 000 nested `blockquote`", format!("text{}", "<blockquote>".repeat(20_000))),
        hostile("/tables", "25 nested tables", format!("text{}", "<table><tr><td>".repeat(25))),
        hostile("/unclosed", "3 000 unclosed `a` and `b`", format!("<p>text{}", "<a><b>".repeat(3000))),
    ]
}

fn article(bytes: usize) -> String {
    let paragraph = "<p>The northern gate was built first, and it is the only one that <a href=/still>still</a> has its \
        portcullis. A winch in the room above lifts it; <em>two people</em> are needed for that, and a third who \
        watches the chain.</p>\n<ul><li>the winch</li><li>the chain</li></ul>\n";
    let body = paragraph.repeat(bytes / paragraph.len());
    format!(
        "<!doctype html><html><head><title>Gates</title></head><body><article><h1>Gates</h1>{body}</article>"
    )
}

fn attributes() -> String {
    let attributes: String = (0..100_000).map(|number| format!(" a{number}")).collect();
    format!("<p{attributes}>text</p>")
}

/// A server whose connections stay open.
struct Server {
    port: u16,
}

impl Server {
    fn start(pages: BTreeMap<String, String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let pages = Arc::new(pages);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let pages = Arc::clone(&pages);
                thread::spawn(move || serve(&connection, &pages));
            }
        });
        Self { port }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn serve(connection: &TcpStream, pages: &BTreeMap<String, String>) {
    connection.set_nodelay(true).expect("settable");
    let mut lines = BufReader::new(connection).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
        let page = first.split(' ').nth(1).and_then(|path| pages.get(path)).map_or("", String::as_str);
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        let mut writer = connection;
        // The client may have gone.
        if writer.write_all(&[head.as_bytes(), page.as_bytes()].concat()).is_err() {
            return;
        }
    }
}
