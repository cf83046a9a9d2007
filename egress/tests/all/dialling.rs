//! Connections that a dialler hands out: from a confined thread, and only to the configured origins.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use portcullis_confine::{Layer, Requirement, probe_kernel};
use portcullis_egress::{DialError, Dialler, DiallerSettings, Url};

use crate::fixture::{Server, ok};

fn dialler(origins: &[&Url]) -> Dialler {
    let support = probe_kernel();
    let requirement = |layer| match support.missing(layer) {
        None => Requirement::Required,
        Some(_) => Requirement::Waived,
    };
    let settings = DiallerSettings {
        landlock: requirement(Layer::Landlock),
        seccomp: requirement(Layer::Seccomp),
        connect_timeout: Duration::from_secs(10),
        folder: None,
    };
    Dialler::new(origins.iter().copied(), settings)
}

fn url(text: &str) -> Url {
    text.parse().expect("a URL")
}

fn code(error: &DialError) -> &'static str {
    match error {
        DialError::Connect(error) => error.code(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_connection_to_a_named_origin_is_handed_out() {
    let server = Server::answering(ok("hi"));
    let origin = url(&server.url("/v1?key"));
    let dialler = dialler(&[&origin]);
    for _again in 0..2 {
        let mut stream = dialler.dial(origin.clone()).await.expect("a connection");
        stream.set_nonblocking(false).expect("the stream can block");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("writes");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("reads");
        assert!(response.ends_with("\r\n\r\nhi"), "{response}");
    }
    // A dialler also connects to `localhost` by name, without a name server.
    let url_by_name = url(&format!("http://localhost:{}", server.port));
    self::dialler(&[&url_by_name]).dial(url_by_name.clone()).await.expect("a connection");
}

#[tokio::test]
async fn no_other_origin_is_connected_to() {
    let (server, other) = (Server::answering(ok("hi")), Server::answering(ok("hi")));
    let origin = url(&server.url("/"));
    let dialler = dialler(&[&origin]);
    for wrong_origin in
        [other.url("/"), format!("http://localhost:{}", server.port), "http://127.0.0.1/".to_owned()]
    {
        let error = dialler.dial(url(&wrong_origin)).await.expect_err("refused");
        assert_eq!(code(&error), "origin_not_configured", "{wrong_origin}");
    }
    assert_eq!((server.requests(), other.requests()), (0, 0));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let closed_address =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let origin = url(&format!("http://{closed_address}"));
    let error = dialler(&[&origin]).dial(origin.clone()).await.expect_err("nobody listens");
    assert_eq!(code(&error), "connect_failed");
}
