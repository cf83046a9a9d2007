//! A TLS server with a certificate for this machine's address, signed by the test's own authority.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

/// The certificate authority of a test's servers.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The authority's certificate, for `[egress] ca`.
    pub(super) pem: String,
}

/// A server on a free port of this machine. It runs until the test program ends.
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        self.serve_at(listener, &["127.0.0.1"], reply)
    }

    /// Starts a server for these names at another address.
    pub(super) fn serve_at(
        &self,
        listener: TcpListener,
        names: &[&str],
        reply: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> TlsServer {
        let config = self.config(names);
        let port = listener.local_addr().expect("an address").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (recorded_heads, reply) = (Arc::clone(&heads), Arc::new(reply));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (config, recorded_heads, reply) =
                    (Arc::clone(&config), Arc::clone(&recorded_heads), Arc::clone(&reply));
                thread::spawn(move || answer(connection, config, &recorded_heads, &*reply));
            }
        });
        TlsServer { port, heads }
    }

    /// Returns the settings of a server with a certificate for these names.
    pub(super) fn config(&self, names: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names and addresses");
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
    /// Returns the server's origin: scheme, address and port.
    pub(super) fn origin(&self) -> String {
        format!("https://{}", self.endpoint())
    }

    /// Returns the server's address and port.
    pub(super) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }

    /// Returns the heads of all requests since the last call of this function.
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
    // The client may have closed the connection.
    let _ignored = stream.write_all(&reply(&head)).and_then(|()| stream.flush());
    stream.conn.send_close_notify();
    let _ignored = stream.conn.complete_io(&mut stream.sock);
}
