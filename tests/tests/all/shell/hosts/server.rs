//! A TLS server named `localhost`, with its own certificate authority, which serves the files of a folder.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
use tempfile::TempDir;

/// A server on a free port of this machine. It runs until the test program ends.
pub(super) struct Server {
    port: u16,
    folder: TempDir,
    authority: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn start() -> Self {
        let (config, authority) = tls();
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (opened, request_count, root) =
            (Arc::clone(&connections), Arc::clone(&requests), folder.path().to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                opened.fetch_add(1, Ordering::SeqCst);
                let (config, request_count, root) =
                    (Arc::clone(&config), Arc::clone(&request_count), root.clone());
                thread::spawn(move || serve(config, stream, &root, &request_count));
            }
        });
        Self { port, folder, authority, connections, requests }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.port)
    }

    /// Returns the authority's certificate, as PEM.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the number of connections so far, with or without TLS.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Returns the folder whose files are served.
    pub(super) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(path, content).expect("written");
    }
}

fn tls() -> (Arc<ServerConfig>, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("valid");
    // OpenSSL treats a certificate whose issuer has the certificate's own name as self-signed.
    params.distinguished_name.push(DnType::CommonName, "an authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("signed").pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(vec!["localhost".to_owned()]).expect("valid");
    let certificate = names.signed_by(&key, &issuer).expect("signed");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate");
    (Arc::new(config), authority)
}

/// Answers requests with files, until the client has sent all its requests.
fn serve(config: Arc<ServerConfig>, stream: TcpStream, root: &Path, request_count: &AtomicUsize) {
    let connection = ServerConnection::new(config).expect("a connection");
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match stream.read_line(&mut head) {
                Ok(read) if read > 0 => {}
                _ => return,
            }
        }
        request_count.fetch_add(1, Ordering::SeqCst);
        let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or_default();
        let path = path.trim_start_matches('/').replace("%2f", "/");
        let mut file = root.join(&path);
        if file.is_dir() {
            file.push("index.html");
        }
        let kind = match path.rsplit_once('.').map(|(_, end)| end) {
            Some("json") => "application/json",
            Some("html") | None if file.ends_with("index.html") => "text/html",
            _ => "application/octet-stream",
        };
        let (status, body) = match fs::read(&file) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        let writer = stream.get_mut();
        if writer.write_all(&[head.into_bytes(), body].concat()).and_then(|()| writer.flush()).is_err() {
            return;
        }
    }
}
