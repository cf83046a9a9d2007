//! Requests: outcomes, limits, and the hosts that get the token.

use std::{error::Error, iter};

use axum::{
    Json, Router,
    body::Body,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{any, get},
};
use futures_util::{StreamExt as _, stream};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{
    Delivery,
    testing::{self, FakeGateway, TOKEN, refusal},
};

/// Returns the error with all its sources, as a program would log it.
fn everything(error: &ClientError) -> String {
    let chain = iter::successors(Some(error as &dyn Error), |&error| error.source());
    chain.map(|error| format!("{error} {error:?}\n")).collect()
}

async fn submitted(response: Response) -> Result<Submission, ClientError> {
    let fake = FakeGateway::start();
    fake.noted().submission_responses.push_back(Some(response));
    let outcome = fake.client().submit("run_1", "cal_1", &json!({ "ok": true })).await;
    let expected = ("run_1".to_owned(), json!({ "callId": "cal_1", "result": { "ok": true } }));
    assert_eq!(fake.noted().submissions, [expected]);
    if let Err(error) = &outcome {
        assert!(!everything(error).contains(TOKEN), "{error:?}");
    }
    outcome
}

#[tokio::test]
async fn a_submission_ends_as_the_gateway_says() {
    let taken = |delivery| {
        Json(json!({ "callId": "cal_1", "status": "resolved", "delivery": delivery })).into_response()
    };
    let cases = [
        (taken("inline"), Submission::Delivered(Delivery::Inline)),
        (taken("inbox"), Submission::Delivered(Delivery::Inbox)),
        (refusal(409, "conflict", "the call has another result already"), Submission::AlreadyAnswered),
        (refusal(410, "gone", "the call is expired"), Submission::Closed),
        (refusal(404, "not_found", "there is no call"), Submission::Unknown),
    ];
    for (response, expected) in cases {
        assert_eq!(submitted(response).await.expect("judged"), expected);
    }
}

#[tokio::test]
async fn other_refusals_are_errors_with_the_code_of_the_gateway() {
    for (status, code, is_transient) in [
        (400, "bad_request", false),
        (401, "unauthorized", false),
        (403, "forbidden", false),
        (422, "invalid", false),
        (429, "too_many", true),
        (500, "internal", true),
        (503, "unavailable", true),
        // The code does not belong to the status.
        (404, "forbidden", false),
    ] {
        let error = submitted(refusal(status, code, "a reason")).await.expect_err("refused");
        assert_eq!(error.is_transient(), is_transient, "{error:?}");
        let ClientError::Refused { status: seen, code: word, message } = error else { panic!("{error:?}") };
        assert_eq!((seen, word.as_str(), message.as_str()), (status, code, "a reason"));
    }
}

#[tokio::test]
async fn the_404_of_another_server_says_nothing_about_the_call() {
    let page = (StatusCode::NOT_FOUND, "<h1>Not Found\u{202e}</h1>\r\n").into_response();
    let error = submitted(page).await.expect_err("refused");
    let expected = "the gateway refused the request: 404 unknown: <h1>Not Found\\u{202e}</h1>\\r\\n";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_token_that_the_server_repeats_is_in_no_error() {
    for response in [
        refusal(401, TOKEN, &format!("Bearer {TOKEN} is unknown")),
        (StatusCode::BAD_GATEWAY, format!("authorization: Bearer {TOKEN}")).into_response(),
    ] {
        let error = submitted(response).await.expect_err("refused");
        assert!(everything(&error).contains("[token]"), "{error:?}");
    }
    let gateway = FakeGateway::start().client();
    assert_eq!(format!("{gateway:?}"), "Gateway { address: \"http://localhost/\", .. }");
    let faulty = Gateway::new("http://localhost", "pct_with\nline").expect_err("refused");
    assert!(!everything(&faulty).contains("pct_with"), "{faulty:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_unreadable() {
    for response in ["", "{", r#"{"delivery":"pigeon"}"#] {
        let error = submitted(response.into_response()).await.expect_err("unreadable");
        assert!(matches!(error, ClientError::Unreadable { subject: "response", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_result_beyond_the_limit_is_not_sent() {
    let fake = FakeGateway::start();
    let error = fake.client().submit("run_1", "cal_1", &"x".repeat(1 << 20)).await.expect_err("too large");
    assert!(matches!(error, ClientError::ResultTooLarge { .. }) && !error.is_transient(), "{error:?}");
    assert!(fake.noted().submissions.is_empty());
    let almost = "x".repeat((1 << 20) - 100);
    assert!(fake.client().submit("run_1", "cal_1", &almost).await.expect("taken").is_delivered());
}

#[tokio::test]
async fn ids_that_would_name_another_path_are_not_sent() {
    let gateway = FakeGateway::start().client();
    for id in ["", "..", "a b"] {
        let error = gateway.submit(id, "cal_1", &()).await.expect_err(id);
        assert!(matches!(error, ClientError::Id { subject: "run" }), "{error:?}");
        let error = gateway.events(id, None).await.expect_err(id);
        assert!(matches!(error, ClientError::Id { subject: "agent" }), "{error:?}");
        let error = gateway.open_calls(id).next().await.expect("an error").expect_err(id);
        assert!(matches!(error, ClientError::Id { subject: "agent" }), "{error:?}");
    }
    let error = gateway.events("agt_1", Some("1\r\nx: y")).await.expect_err("no id");
    assert!(matches!(error, ClientError::Id { subject: "event" }), "{error:?}");
}

#[tokio::test]
async fn open_calls_are_those_of_all_pages() {
    let fake = FakeGateway::start();
    let with_status = |number: usize, status: &str| {
        let mut call = testing::call(&format!("cal_{number}"), "fetch", &Value::Null);
        call["status"] = status.into();
        call
    };
    let calls = (0..45).map(|number| with_status(number, "waiting")).chain([
        with_status(45, "expired"),
        with_status(46, "pending"),
        with_status(47, "resolved"),
    ]);
    fake.noted().calls = calls.collect();
    let gateway = fake.client();
    let ids: Vec<String> =
        gateway.open_calls("agt_1").map(|call| call.expect("a call").call_id).collect().await;
    let expected: Vec<String> = (0..45).chain([46]).map(|number| format!("cal_{number}")).collect();
    assert_eq!(ids, expected);
    let lists = [
        "agentId=agt_1&status=waiting&limit=20",
        "agentId=agt_1&status=waiting&limit=20&after=20",
        "agentId=agt_1&status=waiting&limit=20&after=40",
        "agentId=agt_1&status=pending&limit=20",
    ];
    assert_eq!(fake.noted().lists, lists);
}

#[tokio::test]
async fn a_listing_ends_with_its_first_error() {
    let fake = FakeGateway::start();
    fake.noted().list_responses.push_back(refusal(503, "unavailable", "try again"));
    let gateway = fake.client();
    let calls: Vec<_> = gateway.open_calls("agt_1").collect().await;
    assert!(matches!(&*calls, [Err(ClientError::Refused { status: 503, .. })]), "{calls:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_a_stream_of_events_is_refused() {
    let fake = FakeGateway::start();
    fake.noted().streams.push_back("<h1>Sign in</h1>".into_response());
    let error = fake.client().events("agt_1", None).await.expect_err("a page");
    assert!(matches!(error, ClientError::Unreadable { subject: "response", .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_answer_is_left_after_30_seconds() {
    let fake = FakeGateway::start();
    // The head arrives, but the body never ends.
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    fake.noted().submission_responses.push_back(Some(body.into_response()));
    let begun = Instant::now();
    let error = fake.client().submit("run_1", "cal_1", &()).await.expect_err("no answer");
    assert!(matches!(error, ClientError::TimedOut { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let fake = FakeGateway::start();
    let chunk = Bytes::from(vec![b' '; 1 << 20]);
    let body = Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone())));
    fake.noted().list_responses.push_back(body.into_response());
    let gateway = fake.client();
    let error = gateway.open_calls("agt_1").next().await.expect("an error").expect_err("too large");
    assert!(matches!(error, ClientError::TooLarge { subject: "response", .. }), "{error:?}");
}

/// Starts a server on a loopback socket, and returns its address.
async fn over_tcp(router: Router) -> (JoinSet<()>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let mut server = JoinSet::new();
    server.spawn(async { axum::serve(listener, router).await.expect("serves") });
    (server, address)
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (sent, mut got) = mpsc::unbounded_channel();
    let elsewhere = any(move |headers: HeaderMap| {
        sent.send(headers).expect("the test waits");
        async {}
    });
    let (_elsewhere, target) = over_tcp(Router::new().fallback(elsewhere)).await;
    for status in [301, 302, 303, 307, 308] {
        let status_code = StatusCode::from_u16(status).expect("a status");
        let target = target.clone();
        let redirect = any(move || async move { (status_code, [("location", target)]) });
        let (_server, address) = over_tcp(Router::new().fallback(redirect)).await;
        let gateway = Gateway::new(&address, TOKEN).expect("a gateway");
        let submitted = gateway.submit("run_1", "cal_1", &()).await.expect_err("a redirect");
        let listened = gateway.events("agt_1", None).await.expect_err("a redirect");
        for error in [submitted, listened] {
            assert!(matches!(error, ClientError::Redirected { status: seen } if seen == status), "{error:?}");
            assert!(!error.is_transient());
        }
    }
    got.try_recv().expect_err("no request came there");
}

#[tokio::test]
async fn requests_go_below_the_path_of_the_address() {
    let page = get(async |headers: HeaderMap| {
        assert_eq!(headers["authorization"], format!("Bearer {TOKEN}").as_str());
        assert!(headers["user-agent"].to_str().expect("text").starts_with("portcullis-client/"));
        Json(json!({ "items": [testing::call("cal_1", "fetch", &Value::Null)], "next": null }))
    });
    let (_server, address) = over_tcp(Router::new().route("/gateway/api/calls", page)).await;
    let gateway = Gateway::new(&format!("{address}/gateway/"), TOKEN).expect("a gateway");
    let call = gateway.open_calls("agt_1").next().await.expect("a call").expect("listed");
    assert_eq!(call.call_id, "cal_1");
}

#[tokio::test]
async fn a_port_without_a_gateway_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let gateway = Gateway::new(&address, TOKEN).expect("a gateway");
    let error = gateway.events("agt_1", None).await.expect_err("no gateway");
    assert!(matches!(error, ClientError::Connection { .. }) && error.is_transient(), "{error:?}");
    assert!(!everything(&error).contains(TOKEN), "{error:?}");
}

/// Returns a gateway at an address with TLS, or `None` on a machine whose certificates cannot be read.
fn with_tls(address: &str) -> Option<Gateway> {
    match Gateway::new(&address.replace("http://", "https://"), TOKEN) {
        Ok(gateway) => Some(gateway),
        Err(error) => {
            assert!(matches!(error, ClientError::Tls { .. }), "{error:?}");
            println!("skipped: {error}: the certificates of this machine cannot be read");
            None
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_gets_no_request_of_an_address_with_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let Some(gateway) = with_tls(&address) else { return };
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut bytes = vec![0; 4096];
        let count = stream.read(&mut bytes).await.expect("read");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("sent");
        bytes.truncate(count);
        bytes
    };
    let (outcome, bytes) = tokio::join!(gateway.events("agt_1", None), server);
    assert!(matches!(outcome, Err(ClientError::Connection { .. })), "{outcome:?}");
    assert_eq!(bytes[..2], [0x16, 0x03], "a handshake of TLS");
    assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN));
}

#[tokio::test]
async fn an_untrusted_certificate_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = format!("http://localhost:{}", listener.local_addr().expect("an address").port());
    let Some(gateway) = with_tls(&address) else { return };
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("a configuration");
    let server = async {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut received = Vec::new();
        match TlsAcceptor::from(Arc::new(config)).accept(stream).await {
            // In TLS 1.3, the server's part of the handshake can finish before the client refuses the
            // certificate.
            Ok(mut stream) => _ = stream.read_to_end(&mut received).await,
            Err(refused) => println!("{refused}"),
        }
        received
    };
    let (outcome, received) = tokio::join!(gateway.events("agt_1", None), server);
    let error = outcome.expect_err("not trusted");
    assert!(everything(&error).contains("certificate"), "{error:?}");
    assert_eq!(received, b"");
}
