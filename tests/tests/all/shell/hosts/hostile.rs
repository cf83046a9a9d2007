//! Hostile commands. The forwarder allows only TLS to a granted host, and no command can bypass the
//! forwarder.

use serde_json::json;

use super::{Server, Shell, connections, fixture, programs::has_program, shell, tunnel_command};

/// Runs a command that sends this request to the forwarder, and returns the first line of the answer.
async fn answer(shell: &Shell, target: &str) -> String {
    let text = shell.text(&tunnel_command(target)).await;
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn other_hosts_ports_and_addresses_are_refused() {
    let server = Server::start();
    let shell = shell(&server).await;
    let port = server.port();
    for (target, status, code) in [
        ("evil.test:443".to_owned(), "403", "host_not_granted"),
        ("localhost:443".to_owned(), "403", "host_not_granted"),
        ("localhost:22".to_owned(), "403", "host_not_granted"),
        (format!("sub.localhost:{port}"), "403", "host_not_granted"),
        (format!("127.0.0.1:{port}"), "400", "tunnel_to_address"),
        (format!("[::1]:{port}"), "400", "tunnel_to_address"),
        (format!("2130706433:{port}"), "400", "tunnel_to_address"),
        ("169.254.169.254:80".to_owned(), "400", "tunnel_to_address"),
        ("metadata.google.internal:80".to_owned(), "403", "host_not_granted"),
        (format!("localhost@evil.test:{port}"), "400", "tunnel_request_invalid"),
        ("localhost".to_owned(), "400", "tunnel_request_invalid"),
        (format!("localhost:{port} HTTP/1.1\\r\\nHost: evil.test"), "400", "tunnel_request_invalid"),
        (
            format!("localhost:{port} HTTP/1.1\\r\\nTransfer-Encoding: chunked"),
            "400",
            "tunnel_request_invalid",
        ),
    ] {
        let line = answer(&shell, &target).await;
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {line}");
        assert_eq!(connections(&shell, code).len(), 1, "{target}: {:?}", shell.last_row().connections);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_refusal_is_in_the_result_and_the_row() {
    let server = Server::start();
    let shell = shell(&server).await;
    let text = shell.text(&tunnel_command("evil.test:443")).await;
    let line = "`hosts = [\"https://evil.test\"]` under `[shell]` in the policy";
    let note =
        format!("[no connection to evil.test:443 (host_not_granted); an operator allows it with {line}]");
    assert!(text.ends_with(&note), "{text}");
    let refused = connections(&shell, "host_not_granted");
    assert_eq!((refused[0].host.as_deref(), refused[0].port), (Some("evil.test"), Some(443)));
    assert_eq!((refused[0].address.as_deref(), refused[0].sent, refused[0].received), (None, 0, 0));
    // A connection that has ended is in one row only.
    shell.text("true").await;
    assert!(shell.last_row().connections.is_empty());
    // The answer's body also has the line, for the program.
    let body = shell.text(&tunnel_command("evil.test:443").replace("exec 3>&-", "cat <&3; exec 3>&-")).await;
    assert!(
        body.contains("host_not_granted") && body.contains(&format!("an operator allows it with {line})")),
        "{body}"
    );
    let wild = shell.text(&tunnel_command("*:443")).await;
    assert!(!wild.contains("https://*"), "a program proposes no wildcard: {wild}");
}

#[tokio::test]
async fn private_addresses_of_granted_names_are_refused() {
    let server = Server::start();
    let fixture = fixture(&server).with_policy_edit(&format!("\"127.0.0.1:{}\", ", server.port()), "");
    let shell = Shell::with_fixture(fixture).await;
    let line = answer(&shell, &format!("localhost:{}", server.port())).await;
    assert!(line.starts_with("HTTP/1.1 403 "), "{line}");
    assert_eq!(connections(&shell, "address_not_public").len(), 1);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn only_tls_with_the_name_of_the_host_passes() {
    let server = Server::start();
    let shell = shell(&server).await;
    let port = server.port();
    let tunnel = |then: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n' >&3; \
             read -r answer <&3; read -r empty <&3; echo \"$answer\"; {then} >&3; cat <&3 | wc -c"
        )
    };
    for bytes in [
        "printf 'GET / HTTP/1.1\\r\\n\\r\\n'",
        "head -c 100000 /dev/zero 2>/dev/null",
        "printf 'SSH-2.0-x\\r\\n'",
    ] {
        let text = shell.text(&tunnel(bytes)).await;
        // The forwarder answers the request, and later sends a TLS alert.
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert_eq!(
            connections(&shell, "tunnel_not_tls").len(),
            1,
            "{bytes}: {:?}",
            shell.last_row().connections
        );
    }
    let plain = shell.text("curl --silent --show-error http://localhost/").await;
    assert!(plain.contains("only TLS tunnels are supported"), "{plain}");
    assert_eq!(connections(&shell, "tunnel_not_connect").len(), 1);
    // A tunnel to the granted host whose first TLS message names another host.
    let other = format!(
        "curl --silent --show-error --connect-to other.test:443:localhost:{port} https://other.test/ 2>&1"
    );
    let text = shell.text(&other).await;
    assert!(text.contains("exit code"), "{text}");
    let refused = connections(&shell, "tunnel_other_server_name");
    assert_eq!(refused.len(), 1, "{:?}", shell.last_row().connections);
    assert_eq!((refused[0].host.as_deref(), refused[0].port), (Some("localhost"), Some(port)));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn nothing_but_the_forwarder_has_a_route() {
    let server = Server::start();
    let shell = shell(&server).await;
    let port = server.port();
    for (description, command) in [
        ("the server itself", format!("exec 3<>/dev/tcp/127.0.0.1/{port}")),
        ("another port inside", "exec 3<>/dev/tcp/127.0.0.1/22".to_owned()),
        ("another loopback address", "exec 3<>/dev/tcp/127.0.0.2/80".to_owned()),
        ("an address outside", "exec 3<>/dev/tcp/192.0.2.1/443".to_owned()),
        ("IPv6", "exec 3<>/dev/tcp/::1/3128".to_owned()),
        ("a datagram", "exec 3<>/dev/udp/127.0.0.1/53".to_owned()),
        ("a datagram outside", "exec 3<>/dev/udp/192.0.2.1/53".to_owned()),
        ("a name server", "getent hosts example.com".to_owned()),
        (
            "a client without the variables",
            format!("unset ${{!http*}} ${{!HTTP*}} ${{!ALL*}} ${{!all*}}; curl --silent {}", server.url("")),
        ),
        ("a client that is told to go past it", format!("curl --silent --noproxy '*' {}", server.url(""))),
        ("the devices of the machine", "ls /sys/class/net".to_owned()),
        ("a raw socket", "ping -c 1 -W 1 127.0.0.1".to_owned()),
    ] {
        let text = shell.text(&format!("({command}) 2>/dev/null")).await;
        assert!(text.contains("[exit code: "), "{description}: {text}");
    }
    // The loopback device is the only one, and the session cannot change it.
    let devices =
        shell.text("grep -c : /proc/self/net/dev; grep -o '^ *[a-z0-9]*:' /proc/self/net/dev").await;
    assert!(devices.starts_with("1\n") && devices.contains("lo:"), "{devices}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn sockets_other_than_streams_of_ipv4_cannot_be_made() {
    let server = Server::start();
    let shell = shell(&server).await;
    let script = r"
import socket, errno
def refused(name, make):
    try:
        make()
        print(name, 'was made')
    except PermissionError:
        pass
    except OSError as error:
        print(name, errno.errorcode[error.errno])
S = socket
refused('udp', lambda: S.socket(S.AF_INET, S.SOCK_DGRAM))
refused('tcp6', lambda: S.socket(S.AF_INET6, S.SOCK_STREAM))
refused('mptcp', lambda: S.socket(S.AF_INET, S.SOCK_STREAM, 262))
refused('raw', lambda: S.socket(S.AF_INET, S.SOCK_RAW, 1))
refused('unix', lambda: S.socket(S.AF_UNIX, S.SOCK_STREAM))
refused('netlink', lambda: S.socket(S.AF_NETLINK, S.SOCK_RAW, 0))
refused('packet', lambda: S.socket(S.AF_PACKET, S.SOCK_RAW))
refused('vsock', lambda: S.socket(S.AF_VSOCK, S.SOCK_STREAM))
refused('bind', lambda: S.socket().bind(('127.0.0.1', 0)))
refused('listen', lambda: S.socket().listen())
refused('tls of the kernel', lambda: S.socket().setsockopt(S.IPPROTO_TCP, 31, b'tls'))
print('done')
";
    shell.fixture.put("sockets.py", script);
    if !has_program(&shell, "python3").await {
        return;
    }
    assert_eq!(shell.text("python3 /shared/sockets.py").await, "done\n");
}

#[tokio::test]
async fn ten_thousand_connections_take_no_one_elses_place() {
    let server = Server::start();
    server.put("page", b"hello");
    let shell = shell(&server).await;
    let flood = "for i in {1..10000}; do exec 3<>/dev/tcp/127.0.0.1/3128 || break; \
                 printf 'CONNECT n%s.test:443 HTTP/1.1\\r\\n\\r\\n' $i >&3; read -r answer <&3; exec 3>&-; done; echo $i";
    let text = shell.text(flood).await;
    assert!(text.starts_with("10000\n"), "{text}");
    let row = shell.last_row();
    assert!(row.connections.len() <= 32, "{}", row.connections.len());
    let counted: u64 = row.connections.iter().map(|connection| connection.count).sum();
    assert_eq!(counted + row.omitted, 10_000);
    // A job also opens more concurrent connections than the forwarder accepts, and keeps them.
    let held = "(for i in {1..100}; do exec {held}<>/dev/tcp/127.0.0.1/3128; done; touch /shared/ready; exec sleep 1000) & \
                until [[ -e /shared/ready ]]; do :; done; echo held";
    assert!(shell.text(held).await.starts_with("held\n"));
    let other = json!({"command": format!("curl --silent {}", server.url("page")), "session": "other"});
    assert_eq!(shell.call(other).await.text(), "hello");
}

#[tokio::test]
async fn a_job_keeps_its_connection_and_each_row_shows_it() {
    let server = Server::start();
    let shell = shell(&server).await;
    let hold = format!(
        "(curl --silent --limit-rate 1 {} >/dev/null; true) & \
         until curl --silent {} >/dev/null; do :; done; echo held",
        server.url("large"),
        server.url("page"),
    );
    server.put("large", &[b'x'; 1 << 20]);
    server.put("page", b"hello");
    assert!(shell.text(&hold).await.starts_with("held\n"));
    while connections(&shell, "open").is_empty() {
        shell.text("true").await;
    }
    shell.text("true").await;
    let open = connections(&shell, "open");
    assert_eq!(open.first().and_then(|open| open.host.as_deref()), Some("localhost"));
    shell.text("kill %1 2>/dev/null; pkill curl; true").await;
    // The forwarder notices the end of a connection shortly after the end of its process.
    while !connections(&shell, "open").is_empty() {
        shell.text("true").await;
    }
}

#[tokio::test]
async fn each_session_has_a_listener_of_its_own() {
    let server = Server::start();
    server.put("page", b"hello");
    let shell = shell(&server).await;
    shell.text("true").await;
    // The same address leads to another listener in another session.
    let other = json!({"command": tunnel_command("evil.test:443"), "session": "other"});
    let line = shell.call(other).await.text();
    assert!(line.starts_with("HTTP/1.1 403 "), "{line}");
    shell.text("true").await;
    assert!(shell.last_row().connections.is_empty(), "the first session made no connection");
}
