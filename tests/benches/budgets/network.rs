//! Requests of tools: a fetch compared with curl and bare hyper, the policy's check, and pages in the guest
//! that reads them.

mod pdf;

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
    CancellationToken, DnsConfig, Egress, EgressConfig, Judge, Method, PoolIdentity, Refusal, Request,
    RequestLimits, SystemRoots, TrustedRoots, Url,
};
use portcullis_testing::{Fixture, approving_caller};
use portcullis_tools::{
    ToolRegistry,
    confine::{CanaryFile, Requirement},
    new_call,
    policy::{CallRequest, RunContext, UrlHost, WorkspaceSecurityPolicy},
};
use portcullis_types::ToolErrorKind;
use serde_json::json;

use crate::{
    report::Report,
    sample::{median_us, resident_bytes},
};

/// The body of a small fetch.
const SMALL_BODY_BYTES: usize = 10 << 10;
const FETCHES: usize = 500;
/// Fetches of one client in a row, so that each is measured while its own caches are warm.
const CONSECUTIVE_FETCHES: usize = 50;
const JUDGEMENTS: usize = 20_000;
const CONCURRENCY: usize = 100;
/// Rounds of [`CONCURRENCY`] fetches. The memory after the last round is compared with the memory after the second.
const ROUNDS: usize = 10;
const READS: usize = 5;

pub(crate) async fn network(report: &mut Report) {
    let pages = pages();
    let server = Server::start(pages.iter().map(|page| (page.path.to_owned(), page.body.clone())).collect());
    let port = server.port;
    let fixture = Fixture::new()
        .with_policy_edit("hosts = [\"https://*\"]", &format!("hosts = [\"http://127.0.0.1:{port}\"]"))
        .with_policy_edit("allow_private = []", &format!("allow_private = [\"127.0.0.1:{port}\"]"));
    let registry = Arc::new(fixture.registry().await);
    judgement(registry.policy(), &registry, &server, report);
    small_fetches(&fixture, &server, report).await;
    measure_reading(&fixture, &registry, &server, &pages, report).await;
    concurrent_fetches(&fixture, &server, report).await;
}

/// Measures the client alone, compared with bare hyper and with curl, each for a body of 10 KiB.
async fn small_fetches(fixture: &Fixture, server: &Server, report: &mut Report) {
    let url: Url = server.url("/small").parse().expect("a URL");
    let egress = egress(fixture, server);
    let judge: Arc<dyn Judge> = Arc::new(OpenJudge);
    let mut bare_client = BareClient::connect(server).await;
    let (mut confined, mut hyper, mut curl) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..FETCHES / CONSECUTIVE_FETCHES {
        for _ in 0..CONSECUTIVE_FETCHES {
            let start = Instant::now();
            let response =
                egress.send(Arc::clone(&judge), Request::get(url.clone()), CancellationToken::new());
            assert_eq!(response.await.expect("a response").body.len(), SMALL_BODY_BYTES);
            confined.push(start.elapsed());
        }
        for _ in 0..CONSECUTIVE_FETCHES {
            let start = Instant::now();
            assert_eq!(bare_client.get("/small").await.len(), SMALL_BODY_BYTES);
            hyper.push(start.elapsed());
        }
        curl.extend(curl_times(&server.url("/small")));
    }
    let (confined, hyper, curl) = (median_us(&mut confined), median_us(&mut hyper), median_us(&mut curl));
    report.add_reference("a fetch of 10 KiB, hyper alone over one connection, p50", hyper, "µs");
    report.add_reference("a fetch of 10 KiB, curl over one connection, p50", curl, "µs");
    report.check_at_most("a fetch of 10 KiB by the confined client, beside curl", confined / curl, 1.3, "×");
    report.check_at_most(
        "a fetch of 10 KiB by the confined client, more than hyper alone",
        confined - hyper,
        300.0,
        "µs",
    );
}

/// Measures the policy's check of a request and of its address.
fn judgement(
    policy: &WorkspaceSecurityPolicy,
    registry: &ToolRegistry,
    server: &Server,
    report: &mut Report,
) {
    let steps = registry.tools();
    let fetch = steps.iter().find(|tool| tool.decl().name == "web_fetch").expect("offered");
    let mut descriptor = fetch.descriptor().clone();
    descriptor.name = portcullis_types::ToolName::parse("web_fetch_request").expect("a name");
    descriptor.roles.clear();
    let request = CallRequest { tool: &descriptor, subjects: &[], run: &RunContext::default() };
    let grant = policy.authorize(&request).expect("granted");
    let url = server.url("/small");
    let (host, address) = (UrlHost::parse("127.0.0.1").expect("a host"), IpAddr::from([127, 0, 0, 1]));
    let start = Instant::now();
    for _ in 0..JUDGEMENTS {
        grant.judge_request("GET", &url).expect("granted");
        grant.judge_address(&host, server.port, address).expect("granted");
    }
    let each_us = start.elapsed().as_secs_f64() * 1e6 / JUDGEMENTS as f64;
    report.check_at_most("the judgement of a request and its address", each_us, 5.0, "µs");
}

/// Measures pages in the guest by the time in the read step's row, and hostile pages by the time of the whole
/// call.
async fn measure_reading(
    fixture: &Fixture,
    registry: &ToolRegistry,
    server: &Server,
    pages: &[Page],
    report: &mut Report,
) {
    for page in pages {
        let Some(limit) = page.limit else { continue };
        let rounds = if page.is_hostile { 1 } else { READS };
        let (mut call_times, mut read_times) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let call = new_call("web_fetch", json!({ "url": server.url(page.path) }).to_string());
            let start = Instant::now();
            let outcome = registry.execute_with_policy(call, &approving_caller()).await.into_result();
            call_times.push(start.elapsed());
            match outcome {
                Ok(output) => assert!(!output.joined_text().is_empty(), "{}", page.path),
                // Only the memory limit of the guest bounds a stream of objects.
                Err(error) => {
                    assert!(page.is_hostile && error.kind() == ToolErrorKind::ResourceLimit, "{error:?}");
                }
            }
            let rows = fixture.rows();
            let step = rows.iter().rev().find(|row| row.tool.starts_with("web_fetch_read")).expect("a row");
            read_times.push(Duration::from_micros(step.duration_us.expect("an end")));
        }
        let measured = if page.is_hostile { median_us(&mut call_times) } else { median_us(&mut read_times) };
        report.check_at_most(page.what, measured / 1000.0, limit, "ms");
    }
}

/// Measures the memory while many fetches run.
#[expect(clippy::disallowed_methods, reason = "a benchmark's own tasks")]
async fn concurrent_fetches(fixture: &Fixture, server: &Server, report: &mut Report) {
    let url: Url = server.url("/large").parse().expect("a URL");
    let egress = Arc::new(egress(fixture, server));
    let judge: Arc<dyn Judge> = Arc::new(OpenJudge);
    let mut second_round_bytes = 0;
    for round in 0..ROUNDS {
        let fetches = (0..CONCURRENCY).map(|_| {
            let (egress, judge, url) = (Arc::clone(&egress), Arc::clone(&judge), url.clone());
            tokio::spawn(async move {
                let response = egress.send(judge, Request::get(url), CancellationToken::new());
                response.await.expect("a response").body.len()
            })
        });
        for fetch in fetches.collect::<Vec<_>>() {
            assert!(fetch.await.expect("ran") > 1 << 20);
        }
        if round == 1 {
            second_round_bytes = resident_bytes(std::process::id());
        }
    }
    let growth_bytes = resident_bytes(std::process::id()).saturating_sub(second_round_bytes);
    let what = "growth of memory over 800 fetches of 1 MiB, 100 at a time";
    report.check_at_most(what, growth_bytes as f64 / 1e6, 16.0, "MB");
}

fn egress(fixture: &Fixture, server: &Server) -> Egress {
    std::fs::create_dir_all(fixture.state()).expect("a folder");
    Egress::start(EgressConfig {
        canary: CanaryFile::create(&fixture.state()).expect("a canary"),
        landlock: Requirement::Required,
        seccomp: Requirement::Required,
        ports: [server.port].into(),
        proxy: None,
        names: DnsConfig::with_servers(Vec::new()),
        roots: TrustedRoots::read(SystemRoots::Trust, &[]).expect("certificates"),
        threads: NonZeroUsize::MIN,
    })
    .expect("starts")
}

/// An egress check that allows everything, so that only the client is measured.
struct OpenJudge;

impl Judge for OpenJudge {
    fn judge_request(&self, _method: &Method, _url: &Url) -> Result<(), Refusal> {
        Ok(())
    }

    fn judge_address(&self, _host: &str, _port: u16, _address: IpAddr) -> Result<(), Refusal> {
        Ok(())
    }

    fn judge_redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Ok(())
    }

    fn pool_identity(&self) -> Option<PoolIdentity> {
        Some(PoolIdentity::new("one"))
    }

    fn limits(&self) -> RequestLimits {
        RequestLimits::default()
    }
}

/// hyper over one persistent connection.
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

/// Measures one curl process that fetches the same URL several times. The first fetch opens the connection.
#[expect(clippy::disallowed_methods, reason = "the program that we are compared with")]
fn curl_times(url: &str) -> Vec<Duration> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--write-out", "%{time_total}\\n"]).stdin(Stdio::null());
    for _ in 0..=CONSECUTIVE_FETCHES {
        curl.args(["--output", "/dev/null", url]);
    }
    let output = curl.output().expect("curl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    let seconds = text.lines().skip(1).map(|line| line.parse().expect("seconds"));
    seconds.map(Duration::from_secs_f64).collect()
}

/// A page of the server.
struct Page {
    path: &'static str,
    what: &'static str,
    body: Vec<u8>,
    /// The budget in milliseconds; `None` for a page that is fetched but not read.
    limit: Option<f64>,
    /// Whether the page is hostile: made to cost more work than its size.
    is_hostile: bool,
}

/// Returns the pages of the budgets: an article, and shapes on which some HTML parsers take excessive time.
fn pages() -> Vec<Page> {
    const HOSTILE_MS: f64 = 3000.0;
    let unread_page = |path, body| Page { path, what: "", body, limit: None, is_hostile: false };
    let hostile_file =
        |path, what, body| Page { path, what, body, limit: Some(HOSTILE_MS), is_hostile: true };
    let hostile_html = |path, what, html: String| hostile_file(path, what, html.into_bytes());
    vec![
        unread_page("/small", vec![b'x'; SMALL_BODY_BYTES]),
        unread_page("/large", vec![b'x'; (1 << 20) + 1]),
        Page {
            path: "/article",
            what: "an article of 1 MB to Markdown, in the guest",
            body: article(1_000_000).into_bytes(),
            limit: Some(120.0),
            is_hostile: false,
        },
        Page {
            path: "/pdf",
            what: "a PDF file of 200 pages to text, in the guest",
            body: pdf::text_pages(200),
            limit: Some(250.0),
            is_hostile: false,
        },
        hostile_file(
            "/pdf-content",
            "a PDF file whose content inflates a thousandfold",
            pdf::inflating_content(),
        ),
        hostile_file("/pdf-forms", "a PDF file of forms within forms", pdf::forms_of_forms()),
        hostile_file(
            "/pdf-objects",
            "a PDF file whose objects inflate a thousandfold",
            pdf::inflating_objects(),
        ),
        hostile_file("/pdf-pages", "a PDF file of a million pages", pdf::endless_pages()),
        hostile_html("/divs", "100 000 nested `div`", format!("<p>text</p>{}", "<div>".repeat(100_000))),
        hostile_html("/attributes", "an element of 100 000 attributes", attributes()),
        hostile_html("/entities", "200 000 entities", format!("<p>{}</p>", "&amp;".repeat(200_000))),
        hostile_html("/inline", "50 000 nested `b` and `i`", format!("<p>text{}", "<b><i>".repeat(50_000))),
        hostile_html(
            "/quotes",
            "20 000 nested `blockquote`",
            format!("text{}", "<blockquote>".repeat(20_000)),
        ),
        hostile_html("/tables", "25 nested tables", format!("text{}", "<table><tr><td>".repeat(25))),
        hostile_html("/unclosed", "3 000 unclosed `a` and `b`", format!("<p>text{}", "<a><b>".repeat(3000))),
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

/// A server that keeps its connections open.
struct Server {
    port: u16,
}

impl Server {
    fn start(pages: BTreeMap<String, Vec<u8>>) -> Self {
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

fn serve(connection: &TcpStream, pages: &BTreeMap<String, Vec<u8>>) {
    connection.set_nodelay(true).expect("settable");
    let mut lines = BufReader::new(connection).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
        let page = first.split(' ').nth(1).and_then(|path| pages.get(path)).map_or(&[][..], Vec::as_slice);
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        let mut writer = connection;
        // The client may have closed the connection.
        if writer.write_all(&[head.as_bytes(), page].concat()).is_err() {
            return;
        }
    }
}
