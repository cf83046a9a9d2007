//! A server that speaks TLS, with a certificate for this machine's address by an authority of its own.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

/// The authority of a test's servers.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, for `[egress] ca`.
    pub(super) pem: String,
}

/// A server on a free port of this machine, until the test program ends.
pub(super) struct TlsServer {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("signs").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Starts a server. `reply` gets the head of a request.
    pub(super) fn serve(&self, reply: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> TlsServer {
        let config = self.config();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (kept, reply) = (Arc::clone(&heads), Arc::new(reply));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (config, kept, reply) = (Arc::clone(&config), Arc::clone(&kept), Arc::clone(&reply));
                thread::spawn(move || answer(connection, config, &kept, &*reply));
            }
        });
        TlsServer { port, heads }
    }

    fn config(&self) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        let certificate = params.signed_by(&key, &self.issuer).expect("signs");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.expect("a certificate"))
    }
}

impl TlsServer {
    /// Scheme, address and port.
    pub(super) fn origin(&self) -> String {
        format!("https://{}", self.endpoint())
    }

    /// Address and port.
    pub(super) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }

    /// The heads of all requests since the last time.
    pub(super) fn take_heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer(
    connection: TcpStream,
    config: Arc<ServerConfig>,
    heads: &Mutex<Vec<String>>,
    reply: &(dyn Fn(&str) -> Vec<u8> + Send + Sync),
) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).expect("a connection"), connection);
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
        head.push(byte[0]);
    }
    if head.is_empty() {
        return;
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    // The client may have gone.
    let _gone = stream.write_all(&reply(&head)).and_then(|()| stream.flush());
    stream.conn.send_close_notify();
    let _gone = stream.conn.complete_io(&mut stream.sock);
}
