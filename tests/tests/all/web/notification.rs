//! `send_notification` against local servers, through the whole pipeline: policy, approval, confined client.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{Caller, new_call};
use portcullis_types::ToolErrorKind;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::{
    secrets::VALUE,
    server::{self, Server},
    tls::Authority,
};

/// A mail server on a free port of this machine. It accepts one mail for each connection, until the test
/// program ends.
struct MailServer {
    port: u16,
    lines: Arc<Mutex<Vec<String>>>,
}

impl MailServer {
    /// Starts a server that answers `reply` to the recipient.
    fn start(tls: Option<Arc<ServerConfig>>, reply: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                match &tls {
                    None => converse(connection, reply, &seen),
                    Some(config) => {
                        let session = ServerConnection::new(Arc::clone(config)).expect("a connection");
                        converse(StreamOwned::new(session, connection), reply, &seen);
                    }
                }
            }
        });
        Self { port, lines }
    }

    /// Returns the lines that clients have sent.
    fn said(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

/// Speaks SMTP until the client disconnects.
fn converse(stream: impl Read + Write, reply: &str, seen: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    let mut is_data = false;
    let say = |stream: &mut BufReader<_>, text: &str| {
        let stream: &mut _ = stream.get_mut();
        let _ =
            Write::write_all(stream, format!("{text}\r\n").as_bytes()).and_then(|()| Write::flush(stream));
    };
    say(&mut stream, "220 mail.example ESMTP");
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
        let said = std::mem::take(&mut line).trim_end().to_owned();
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(said.clone());
        let answer = match said.split(' ').next().unwrap_or_default() {
            "." if is_data => {
                is_data = false;
                "250 taken"
            }
            _ if is_data => continue,
            "EHLO" => "250-mail.example\r\n250 AUTH PLAIN LOGIN",
            "AUTH" => "235 welcome",
            "RCPT" => reply,
            "DATA" => {
                is_data = true;
                "354 go on"
            }
            "QUIT" => "221 bye",
            _ => "250 fine",
        };
        say(&mut stream, answer);
    }
}

/// Creates a fixture whose steps may reach this endpoint of this machine.
fn fixture(scheme: &str, port: u16, notify: &str) -> Fixture {
    Fixture::new()
        .with_policy_edit("allow_private = []", &format!("allow_private = [\"127.0.0.1:{port}\"]"))
        .with_policy(&format!(
            "[notify]\n{notify}\n\n[profiles.Notify]\nhosts = [\"{scheme}://127.0.0.1:{port}\"]\nmethods = [\"POST\"]\n\n\
             [tools.send_notification_request]\nprofile = \"Notify\"\n\n[tools.send_notification_mail]\nprofile = \"Notify\"\n\n"
        ))
}

fn with_secret(fixture: Fixture, origin: &str, header: &str) -> Fixture {
    let fixture = fixture.with_policy(&format!(
        "[secrets.notify]\nfrom = \"file:key\"\nhosts = [\"{origin}\"]\nheader = \"{header}\"\ntools = [\"send_notification\"]\n\n"
    ));
    let file = fixture.policy_file().with_file_name("key");
    fs::write(&file, VALUE).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    fixture
}

async fn send(fixture: &Fixture, arguments: Value) -> CallOutcome {
    CallOutcome::run(&fixture.registry().await, "send_notification", arguments).await
}

fn message(method: &str, recipient: &str) -> Value {
    json!({ "recipient": recipient, "subject": "Task Update", "body": "Done.\n.\nReally.", "method": method })
}

#[tokio::test]
async fn slack_and_discord_get_a_request_with_the_secret() {
    for (method, answer, path, header, id) in [
        ("slack", json!({"ok": true, "ts": "1.23"}), "/", "authorization: Bearer ", "1.23"),
        ("discord", json!({"id": "42"}), "/channels/7/messages", "authorization: Bot ", "42"),
    ] {
        let answer = answer.to_string();
        let server = Server::start(move |_| server::json(&answer));
        let origin = server.url("").trim_end_matches('/').to_owned();
        let plain = fixture("http", server.port(), &format!("{method} = \"{}\"", server.url("/")));
        let prefix = header.trim_start_matches("authorization: ");
        let fixture = with_secret(plain, &origin, &format!("Authorization: {prefix}{{secret}}"));
        let sent = send(&fixture, message(method, "7")).await;
        let structured = sent.0.outcome.output().expect("sent").structured.clone();
        assert_eq!(structured, Some(json!({ "success": true, "message_id": id })));
        let request = server.requests_seen().remove(0);
        assert!(request.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{request}");
        assert!(request.contains(&format!("{header}{VALUE}")), "{request}");
        let rows = fixture.rows();
        let step = rows.iter().rfind(|row| &*row.tool == "send_notification_request").expect("a row");
        assert_eq!(step.secrets.iter().map(|name| &**name).collect::<Vec<_>>(), ["notify"]);
    }
}

#[tokio::test]
async fn a_refusal_of_the_service_is_an_error() {
    let server = Server::start(|_| server::json(r#"{"ok":false,"error":"channel_not_found"}"#));
    let fixture = fixture("http", server.port(), &format!("slack = \"{}\"", server.url("/")));
    let message = send(&fixture, message("slack", "C1"))
        .await
        .assert_refused(ToolErrorKind::Failed, "notification_refused");
    assert!(message.contains("channel_not_found"), "{message}");
}

#[tokio::test]
async fn a_mail_is_sent_with_and_without_tls_and_login() {
    let authority = Authority::new();
    for tls in [None, Some(authority.config(&["127.0.0.1"]))] {
        let (judged, scheme) = if tls.is_some() { ("https", "smtps") } else { ("http", "smtp") };
        let server = MailServer::start(tls, "250 known");
        let notify = format!(
            "email = \"{scheme}://127.0.0.1:{}\"\nfrom = \"agent@mail.example\"\nuser = \"agent\"",
            server.port
        );
        let origin = format!("{judged}://127.0.0.1:{}", server.port);
        let mut fixture = with_secret(fixture(judged, server.port, &notify), &origin, "X-Password: {secret}");
        if judged == "https" {
            let ca = fixture.root().join("ca.pem");
            fs::write(&ca, &authority.pem).expect("written");
            fixture = fixture
                .with_policy_edit("# ca          = \"extra.pem\" ", &format!("ca = \"{}\" ", ca.display()));
        }
        let sent = send(&fixture, message("email", "user@example.com")).await;
        let output =
            sent.0.outcome.output().unwrap_or_else(|| panic!("{:?}: {}", sent.0.outcome, server.said()));
        let id = output.structured.as_ref().expect("data")["message_id"].as_str().expect("an id").to_owned();
        let said = server.said();
        for line in [
            "MAIL FROM:<agent@mail.example>",
            "RCPT TO:<user@example.com>",
            "Subject: Task Update",
            &format!("Message-ID: {id}"),
            "AUTH PLAIN ",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        // A line with only a dot would end the message.
        assert!(said.contains("Done.\n..\nReally."), "{said}");
        let rows = fixture.rows();
        let step = rows.iter().rfind(|row| &*row.tool == "send_notification_mail").expect("a row");
        assert_eq!(step.secrets.iter().map(|name| &**name).collect::<Vec<_>>(), ["notify"]);
        assert!(step.requests[0].address.is_some(), "{:?}", step.requests);
    }
}

#[tokio::test]
async fn a_refused_recipient_and_a_certificate_of_another_are_errors() {
    let refusing = MailServer::start(None, "550 no such user");
    let notify = format!("email = \"smtp://127.0.0.1:{}\"\nfrom = \"agent@mail.example\"", refusing.port);
    let world = fixture("http", refusing.port, &notify);
    let text = send(&world, message("email", "nobody@example.com"))
        .await
        .assert_refused(ToolErrorKind::Failed, "notification_refused");
    assert!(text.contains("no such user"), "{text}");
    let unknown = MailServer::start(Some(Authority::new().config(&["127.0.0.1"])), "250 known");
    let notify = format!("email = \"smtps://127.0.0.1:{}\"\nfrom = \"agent@mail.example\"", unknown.port);
    let world = fixture("https", unknown.port, &notify);
    send(&world, message("email", "user@example.com"))
        .await
        .assert_refused(ToolErrorKind::Failed, "mail_connection");
    assert!(unknown.said().is_empty());
}

#[tokio::test]
async fn ungranted_notifications_are_not_sent() {
    let server = MailServer::start(None, "250 known");
    let notify = format!("email = \"smtp://127.0.0.1:{}\"\nfrom = \"agent@mail.example\"", server.port);
    // The call asks, and there is no approver.
    let granted = fixture("http", server.port, &notify);
    let arguments = message("email", "user@example.com").to_string();
    let call = new_call("send_notification", arguments);
    let asked = granted.registry().await.execute_with_policy(call, &Caller::new("tester", "run")).await;
    CallOutcome(asked).assert_refused(ToolErrorKind::Denied, "approval_unavailable");
    // No profile grants the server.
    let ungranted = Fixture::new().with_policy(&format!("[notify]\n{notify}\n\n"));
    let refused = send(&ungranted, message("email", "user@example.com")).await;
    assert_eq!(refused.error().kind(), ToolErrorKind::Denied, "{:?}", refused.error());
    // There is no service of this name, and then no service at all.
    send(&granted, message("slack", "C1"))
        .await
        .assert_refused(ToolErrorKind::Unavailable, "notification_not_configured");
    assert!(Fixture::new().registry().await.get("send_notification").is_none());
    // After a read of the vault, the shipped flow rule denies every request.
    let registry = granted.registry().await;
    let caller = portcullis_testing::approving_caller();
    registry.add_run_labels(&caller, [("vault".parse().expect("a label"), "earlier".to_owned())]);
    let call = new_call("send_notification", message("email", "user@example.com").to_string());
    CallOutcome(registry.execute_with_policy(call, &caller).await)
        .assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert!(server.said().is_empty(), "{}", server.said());
}
