//! The shipped policy on the public internet: `https://*`, names from a name server, public addresses, port 443.
//!
//! A network namespace simulates the internet. Its loopback device has a public address. The outer test
//! starts this test program again in the namespace, and that process runs [`inside`] as its only test.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::Command,
    thread,
};

use portcullis_testing::Fixture;
use portcullis_types::ToolErrorKind;

use super::{fetch, server, tls::Authority};

/// The variable that is set in the namespace.
const INSIDE_VARIABLE: &str = "PORTCULLIS_TEST_PUBLIC_NETWORK";

/// An address that counts as public in every list of special addresses.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// The script that sets up the namespace and runs the program. `$0` is the resolver configuration, `$@` the program.
/// The exit code 77 means that the network could not be set up.
const SCRIPT: &str = r#"ip link set lo up && ip address add 93.184.216.34/32 dev lo &&
    mount --bind "$0" /etc/resolv.conf || exit 77
    exec "$@""#;

#[test]
#[expect(clippy::disallowed_methods, reason = "namespaces are entered by a program of the system")]
fn the_shipped_policy_reaches_public_hosts_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let resolver = folder.path().join("resolv.conf");
    fs::write(&resolver, "nameserver 127.0.0.1\n").expect("written");
    let result = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", SCRIPT])
        .arg(&resolver)
        .arg(env::current_exe().expect("this program"))
        .args(["--exact", "web::public::inside", "--nocapture"])
        .env(INSIDE_VARIABLE, "1")
        .output();
    let Ok(output) = result else {
        eprintln!("skipped: there is no unshare");
        return;
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || stderr.starts_with("unshare:") {
        eprintln!("skipped: no network of our own can be made: {stderr}");
        return;
    }
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[tokio::test]
async fn inside() {
    // There is nothing to check outside the namespace. The test above runs this test again inside it.
    if env::var_os(INSIDE_VARIABLE).is_none() {
        return;
    }
    thread::spawn(answer_names);
    let authority = Authority::new();
    let listener = TcpListener::bind((PUBLIC, 443)).expect("the namespace's address");
    let server = authority.serve_at(listener, &["public.test", "mixed.test"], |head| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let reply = match path {
            "/private" => server::redirect("https://private.test/"),
            "/plain" => server::redirect("http://public.test/"),
            "/port" => server::redirect("https://public.test:8443/"),
            "/robots.txt" => server::status("404 Not Found"),
            _ => server::answer("text/plain", b"from the public host"),
        };
        reply.expect("an answer")
    });
    let fixture = Fixture::new().with_shared_modules().with_policy_edit(
        "# ca          = \"extra.pem\"        # further",
        "ca = \"extra.pem\"        # further",
    );
    fs::write(fixture.root().join("extra.pem"), &authority.pem).expect("written");
    let registry = fixture.registry().await;

    let answer = fetch(&registry, "https://public.test/page").await;
    assert!(answer.text().contains("from the public host"), "{}", answer.text());
    let row = fixture.rows().into_iter().rfind(|row| *row.tool == *"web_fetch_request").expect("a row");
    let addresses: Vec<Option<&str>> =
        row.requests.iter().map(|request| request.address.as_deref()).collect();
    assert_eq!(addresses, [Some("93.184.216.34:443")]);
    server.take_heads();

    for (url, code) in [
        // A name is refused if one of its addresses is private.
        ("https://mixed.test/", "address_not_public"),
        ("https://private.test/", "address_not_public"),
        ("https://metadata.test/", "address_not_public"),
        ("https://93.184.216.34:8443/", "host_not_granted"),
        ("https://public.test:8443/", "host_not_granted"),
        ("http://public.test/", "host_not_granted"),
        ("https://127.0.0.1/", "address_not_public"),
    ] {
        let refused = fetch(&registry, url).await;
        refused.assert_refused(ToolErrorKind::Denied, code);
        assert!(server.take_heads().is_empty(), "{url}: nothing is sent");
    }
    for (path, kind, code) in [
        ("/private", ToolErrorKind::Denied, "address_not_public"),
        ("/port", ToolErrorKind::Denied, "host_not_granted"),
        ("/plain", ToolErrorKind::Failed, "redirect_downgrade"),
    ] {
        fetch(&registry, &format!("https://public.test{path}")).await.assert_refused(kind, code);
    }
    let unknown = fetch(&registry, "https://unknown.test/").await;
    let error = unknown.0.outcome.error().expect("no such name");
    assert_eq!(error.code(), "name_unresolved", "{error}");
}

/// Answers DNS queries over TCP on port 53.
fn answer_names() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 53)).expect("the namespace's port");
    for connection in listener.incoming().flatten() {
        thread::spawn(move || answer_connection(connection));
    }
}

/// Answers the queries of one connection. Each message has a length prefix of two bytes (RFC 1035, 4.1 and
/// 4.2.2).
fn answer_connection(mut connection: TcpStream) {
    let mut length = [0; 2];
    while connection.read_exact(&mut length).is_ok() {
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        if connection.read_exact(&mut question).is_err() {
            return;
        }
        // The name begins after the header of 12 bytes, with the length of its first label.
        let label = question.get(13..13 + usize::from(question[12])).unwrap_or_default();
        let is_ipv4_question = question.windows(4).any(|end| end == [0, 1, 0, 1]);
        let addresses: Option<&[Ipv4Addr]> = match label {
            b"public" => Some(&[PUBLIC]),
            b"mixed" => Some(&[PUBLIC, Ipv4Addr::LOCALHOST]),
            b"private" => Some(&[Ipv4Addr::new(10, 0, 0, 1)]),
            b"metadata" => Some(&[Ipv4Addr::new(169, 254, 169, 254)]),
            _ => None,
        };
        let records = addresses.filter(|_| is_ipv4_question).unwrap_or_default();
        let end = question[12..].iter().position(|byte| *byte == 0).map_or(question.len(), |at| 12 + at + 5);
        let mut reply = question[..end].to_vec();
        // The flags of a response. The code 3 means that a name does not exist.
        (reply[2], reply[3]) = (0x81, if addresses.is_some() { 0x80 } else { 0x83 });
        reply[6..12].copy_from_slice(&[0, u8::try_from(records.len()).expect("few"), 0, 0, 0, 0]);
        for address in records {
            // The name of the question, type A, class IN, a time to live of one minute, four bytes.
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            reply.extend(address.octets());
        }
        let length = u16::try_from(reply.len()).expect("short").to_be_bytes();
        if connection.write_all(&[&length[..], &reply].concat()).is_err() {
            return;
        }
    }
}
