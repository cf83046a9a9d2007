//! Redirects: each is judged, and carries nothing that is another origin's.

use std::{
    net::Ipv4Addr,
    sync::{Arc, mpsc},
};

use portcullis_egress::{Limits, Request};

use crate::world::{Asked, Client, Server, ask, assert_code, ok, redirect, send};

#[tokio::test]
async fn a_redirect_is_judged_anew() {
    let server = Server::start(|head, stream| {
        send(stream, if head.starts_with("GET /end ") { ok("end") } else { redirect("/end") }.as_bytes());
    });
    let judge = Arc::new(Asked::default());
    let response = Client::new(&[server.port]).get(&server.url("/start#part"), &judge).await.unwrap();
    assert_eq!((&response.body[..], response.redirects, response.url.path()), (&b"end"[..], 1, "/end"));
    let questions = judge.questions.lock().unwrap();
    let address = "127.0.0.1 127.0.0.1";
    assert_eq!(*questions, ["GET /start", address, "/start to /end", "GET /end", address]);
}

#[tokio::test]
async fn a_loop_of_redirects_ends() {
    let server = Server::answering(redirect("/again"));
    let judge = Arc::new(Asked::default());
    let result = Client::new(&[server.port]).get(&server.url("/"), &judge).await;
    assert_code(result, "too_many_redirects");
    assert_eq!(server.requests(), 6);
    let none = Limits { max_redirects: 0, ..Limits::default() };
    assert_code(ask(redirect("/again"), none).await, "too_many_redirects");
}

#[tokio::test]
async fn a_redirect_leads_to_no_other_scheme() {
    for location in ["file:///etc/passwd", "ftp://127.0.0.1/", "data:text/plain,x", "gopher://127.0.0.1/"] {
        assert_code(ask(redirect(location), Limits::default()).await, "scheme_forbidden");
    }
    assert_code(ask(redirect("http://127.0.0.1:1/"), Limits::default()).await, "port_closed");
    assert_code(ask(redirect("http://["), Limits::default()).await, "redirect_invalid");
}

#[tokio::test]
async fn a_redirect_with_user_information_is_refused() {
    let server = Server::start(|head, stream| {
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        send(stream, redirect(&format!("http://me:word@{host}/")).as_bytes());
    });
    let result = Client::new(&[server.port]).get(&server.url("/"), &Arc::new(Asked::default())).await;
    assert_code(result, "user_info_forbidden");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let inner = Server::answering(ok("secret"));
    let port = inner.port;
    // The same listener by another spelling of a refused address.
    for spelling in ["127.0.0.2", "0x7f.0.0.2", "2130706434", "[::ffff:127.0.0.2]"] {
        let server = Server::answering(redirect(&format!("http://{spelling}:{port}/")));
        let mapped = Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped();
        let refused = vec![Ipv4Addr::new(127, 0, 0, 2).into(), mapped.into()];
        let judge = Arc::new(Asked { refused, ..Asked::default() });
        let result = Client::new(&[server.port, port]).get(&server.url("/"), &judge).await;
        assert_code(result, "address_private");
    }
    assert_eq!(inner.requests(), 0);
}

#[tokio::test]
async fn credentials_do_not_cross_an_origin() {
    let (heads, seen) = mpsc::channel();
    let other = Server::start(move |head, stream| {
        heads.send(head.to_lowercase()).unwrap();
        send(stream, ok("other").as_bytes());
    });
    let server = Server::answering(redirect(&other.url("/")));
    let mut request = Request::get(server.url("/").parse().unwrap());
    for name in ["authorization", "cookie", "x-api-key"] {
        request.headers.insert(name, "secret".parse().unwrap());
    }
    request.headers.insert("accept", "text/html".parse().unwrap());
    let client = Client::new(&[server.port, other.port]);
    client.send(request, &Arc::new(Asked::default())).await.unwrap();
    let head = seen.recv().unwrap();
    assert!(!head.contains("secret") && head.contains("accept: text/html"), "{head}");
}
