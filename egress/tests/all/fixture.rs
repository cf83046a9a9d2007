//! Test fixtures: servers on threads of their own, a judge that records its questions, and confined clients.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test helpers: clippy.toml exempts only test functions"
)]

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use portcullis_confine::{CanaryFile, Layer, Requirement, probe_kernel};
use portcullis_egress::{
    CancellationToken, Credential, DnsConfig, Egress, EgressConfig, FetchError, Judge, Method, PoolIdentity,
    Refusal, Request, RequestLimits, Response, SystemRoots, TrustedRoots, Url,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A server on the loopback device.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server. `serve` gets the head of each request, and the connection.
    pub(crate) fn start(serve: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::listen(move |mut stream, requests| {
            let head = read_head(&mut stream);
            // A canary's attempt connects and sends nothing.
            if !head.is_empty() {
                requests.fetch_add(1, Ordering::SeqCst);
                serve(&head, &mut stream);
            }
        })
    }

    /// Starts a server that gives the same response to every request.
    pub(crate) fn answering(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |_head, stream| send(stream, &response))
    }

    /// Starts a server. `serve` gets each connection, and the counter of requests.
    pub(crate) fn listen(serve: impl Fn(TcpStream, &AtomicUsize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let (counter, serve) = (Arc::clone(&requests), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (counter, serve) = (Arc::clone(&counter), Arc::clone(&serve));
                thread::spawn(move || serve(stream.unwrap(), &counter));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request, or as much of it as comes.
pub(crate) fn read_head(stream: &mut impl Read) -> String {
    let (mut reader, mut head) = (BufReader::with_capacity(1, stream), String::new());
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
    head
}

/// Sends as many of the bytes as the client takes.
pub(crate) fn send(stream: &mut impl Write, bytes: &[u8]) {
    let _ignored = stream.write_all(bytes).and_then(|()| stream.flush());
}

/// A complete response with the status 200 and a length.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn redirect(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

/// A judge that refuses some addresses, allows everything else, and records its questions.
#[derive(Default)]
pub(crate) struct RecordingJudge {
    pub(crate) limits: RequestLimits,
    pub(crate) refused: Vec<IpAddr>,
    pub(crate) questions: Mutex<Vec<String>>,
    pub(crate) credentials: Vec<Credential>,
    /// The ports of the servers that get every credential.
    pub(crate) audience: Vec<u16>,
    /// Further known secrets. A test can add some while a request runs.
    pub(crate) known: Mutex<Vec<Credential>>,
    /// The identity of the grant. `None` if its requests keep no connection.
    pub(crate) key: Option<&'static str>,
}

impl RecordingJudge {
    fn record(&self, question: String) {
        self.questions.lock().unwrap().push(question);
    }
}

impl Judge for RecordingJudge {
    fn judge_request(&self, method: &Method, url: &Url) -> Result<(), Refusal> {
        self.record(format!("{method} {}", url.path()));
        Ok(())
    }

    fn judge_address(&self, host: &str, _port: u16, address: IpAddr) -> Result<(), Refusal> {
        self.record(format!("{host} {address}"));
        if self.refused.contains(&address) {
            return Err(Refusal { code: "address_private", reason: format!("{host} is private") });
        }
        Ok(())
    }

    fn judge_redirect(&self, from: &Url, to: &Url) -> Result<(), Refusal> {
        self.record(format!("{} to {}", from.path(), to.path()));
        Ok(())
    }

    fn credentials(&self) -> &[Credential] {
        &self.credentials
    }

    fn known_secrets(&self) -> Vec<Credential> {
        [&*self.credentials, &*self.known.lock().unwrap()].concat()
    }

    fn should_attach(&self, credential: &Credential, url: &Url) -> bool {
        self.record(format!("{} to {}", credential.name(), url.path()));
        url.port().is_some_and(|port| self.audience.contains(&port))
    }

    fn pool_identity(&self) -> Option<PoolIdentity> {
        self.key.map(PoolIdentity::new)
    }

    fn limits(&self) -> RequestLimits {
        self.limits.clone()
    }
}

/// A certificate authority, which issues the certificates of servers.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The TLS configuration of a server with a new certificate of this authority.
    pub(crate) fn issue(&self, params: &CertificateParams) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        server_config(certificate.der().clone(), &key)
    }
}

pub(crate) fn server_config(
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: &KeyPair,
) -> Arc<rustls::ServerConfig> {
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

/// A confined client that may connect to these ports, with the state folder that holds its canary.
pub(crate) struct Client {
    pub(crate) egress: Egress,
    _state: tempfile::TempDir,
}

impl Client {
    pub(crate) fn new(ports: &[u16]) -> Self {
        Self::with_settings(ports, DnsConfig::with_servers(Vec::new()), &Authority::new().pem)
    }

    pub(crate) fn with_settings(ports: &[u16], names: DnsConfig, authority: &str) -> Self {
        Self::start(ports, names, authority, None)
    }

    /// A client whose connections all go through a proxy on this port of the loopback device.
    pub(crate) fn behind_proxy(proxy: u16, ports: &[u16], authority: &str) -> Self {
        let proxy = format!("http://127.0.0.1:{proxy}").parse().unwrap();
        Self::start(ports, DnsConfig::with_servers(Vec::new()), authority, Some(proxy))
    }

    /// Like [`Self::behind_proxy`], but the proxy has a name.
    pub(crate) fn behind_named_proxy(name: &str, proxy: u16, ports: &[u16], names: DnsConfig) -> Self {
        let proxy = format!("http://{name}:{proxy}").parse().unwrap();
        Self::start(ports, names, &Authority::new().pem, Some(proxy))
    }

    fn start(ports: &[u16], names: DnsConfig, authority: &str, proxy: Option<Url>) -> Self {
        let state = tempfile::tempdir().unwrap();
        let settings = EgressConfig {
            canary: CanaryFile::create(state.path()).unwrap(),
            landlock: requirement(Layer::Landlock),
            seccomp: requirement(Layer::Seccomp),
            ports: ports.iter().copied().collect(),
            proxy,
            names,
            roots: TrustedRoots::read(SystemRoots::Ignore, &[authority.as_bytes()]).unwrap(),
            threads: NonZeroUsize::MIN,
        };
        Self { egress: Egress::start(settings).unwrap(), _state: state }
    }

    pub(crate) async fn get(&self, url: &str, judge: &Arc<RecordingJudge>) -> Result<Response, FetchError> {
        self.send(Request::get(url.parse().unwrap()), judge).await
    }

    pub(crate) async fn send(
        &self,
        request: Request,
        judge: &Arc<RecordingJudge>,
    ) -> Result<Response, FetchError> {
        self.egress.send(Arc::<RecordingJudge>::clone(judge), request, CancellationToken::new()).await
    }
}

/// Requires a layer if the kernel has it. Otherwise the tests run without the layer and print the reason, or fail where
/// the environment asks for every layer.
fn requirement(layer: Layer) -> Requirement {
    let kernel = probe_kernel();
    let Some(reason) = kernel.missing(layer) else {
        return Requirement::Required;
    };
    // The meaning of `kernel_is_required` in `testing/src/kernel.rs`, on which this crate does not depend.
    let is_required = ["CI", "PORTCULLIS_REQUIRE_KERNEL"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!is_required, "this machine must have every layer, but {reason}");
    println!("without {layer}: {reason}");
    Requirement::Waived
}

/// Sends a request, under these limits, to a server that always gives this response.
pub(crate) async fn ask(response: impl Into<Vec<u8>>, limits: RequestLimits) -> Result<Response, FetchError> {
    let server = Server::answering(response);
    let judge = Arc::new(RecordingJudge { limits, ..RecordingJudge::default() });
    Client::new(&[server.port]).get(&server.url("/"), &judge).await
}

/// Checks that a request failed with this code.
#[track_caller]
pub(crate) fn assert_code(result: Result<Response, FetchError>, code: &str) {
    match result {
        Ok(response) => panic!("{code} was expected, and {response:?} came"),
        Err(error) => assert_eq!(error.code(), code, "{error:?}"),
    }
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
