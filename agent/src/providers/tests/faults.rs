//! Servers that fail, lie, stall, and never end, in each of [`WIRES`].

use super::{wires::Wire, *};
use crate::{ProviderErrorKind, StopReason};

fn hello() -> ModelRequest {
    request(vec![Message::user("x")])
}

/// Returns the text before a stream's error, and the error.
async fn broken(wire: Wire, server: &Server) -> (String, ProviderError) {
    let stream = provider(wire.kind, server).stream(hello()).await.expect("begins");
    let (deltas, error) = drain(stream).await;
    let text = deltas.iter().map(|delta| match delta {
        Delta::Text(text) => text.as_str(),
        Delta::Usage(_) => "",
        other => panic!("{other:?}"),
    });
    (text.collect(), error.expect("an error"))
}

#[tokio::test]
async fn a_connection_that_breaks_within_an_answer_is_not_retried() {
    for wire in WIRES {
        let server = Server::start([wire.reply(wire.text("half")).and_break(), wire.fine()]).await;
        let (text, error) = broken(wire, &server).await;
        assert_eq!(text, "half");
        assert_eq!(error.kind(), ProviderErrorKind::Transport);
        assert_eq!(server.requests().len(), 1, "half of the answer was passed on");
    }
}

#[tokio::test]
async fn an_answer_that_ends_early_is_not_whole() {
    for wire in WIRES {
        let server = Server::start([wire.reply(wire.text("half"))]).await;
        let (text, error) = broken(wire, &server).await;
        assert_eq!((text.as_str(), error.kind()), ("half", ProviderErrorKind::Incomplete));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_first_word_is_retried() {
    for wire in WIRES {
        let server = Server::start([
            wire.reply(wire.still_here()).and_break(),
            wire.reply(""),
            wire.reply(wire.nothing()).and_break(),
            wire.fine(),
        ])
        .await;
        let mut deltas = answer(&provider(wire.kind, &server), hello()).await;
        deltas.retain(|delta| !matches!(delta, Delta::Usage(_)));
        assert_eq!(deltas, [Delta::Text("fine".into()), Delta::End(StopReason::Stop)]);
        let requests = server.requests();
        assert_eq!(requests.len(), 4);
        assert!(
            requests.iter().all(|request| request.text == requests[0].text),
            "the same request each time"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_fault_of_transport() {
    for wire in WIRES {
        let server = Server::start([]).await;
        let settings = settings(wire.kind, &server);
        drop(server);
        let error = refusal(&RemoteProvider::new(settings).expect("a provider"), hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Transport);
        assert!(!printable_text(&error).contains(KEY));
    }
}

#[tokio::test]
async fn too_many_requests_and_failing_servers_are_asked_again() {
    for wire in WIRES {
        let limited = || wire.limited("0");
        let server =
            Server::start([limited(), Reply::new(500, "text/plain", "oops"), limited(), wire.fine()]).await;
        answer(&provider(wire.kind, &server), hello()).await;
        assert_eq!(server.requests().len(), 4);
    }
}

#[tokio::test]
async fn a_server_is_not_asked_before_the_time_that_it_names() {
    for wire in WIRES {
        let limited = wire.limited("1");
        let server = Server::start([limited, wire.fine()]).await;
        let start = std::time::Instant::now();
        answer(&provider(wire.kind, &server), hello()).await;
        assert!(start.elapsed() >= Duration::from_secs(1));
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_server_that_wants_too_long_a_wait_is_not_asked_again() {
    for wire in WIRES {
        let limited = wire.limited("3600");
        let server = Server::start([limited, wire.fine()]).await;
        let error = refusal(&provider(wire.kind, &server), hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::RateLimited);
        assert_eq!(error.status(), Some(429));
        assert_eq!(error.to_string(), format!("{} answered 429 Too Many Requests: slow down", wire.kind));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn tries_have_a_number() {
    for wire in WIRES {
        let server = Server::start(std::iter::repeat_n(Reply::new(503, "text/plain", "oops"), 9)).await;
        let error = refusal(&provider(wire.kind, &server), hello()).await;
        assert_eq!((error.kind(), error.status()), (ProviderErrorKind::Server, Some(503)));
        assert_eq!(server.requests().len(), 4, "one, and three more");

        let server = Server::start([Reply::new(503, "text/plain", "oops"), wire.fine()]).await;
        let once = settings(wire.kind, &server).with_limits(ProviderLimits { retries: 0, ..limits() });
        refusal(&RemoteProvider::new(once).expect("a provider"), hello()).await;
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_refusal_reports_the_servers_message_without_a_retry() {
    for wire in WIRES {
        for (status, kind) in [
            (400, ProviderErrorKind::Rejected),
            (401, ProviderErrorKind::Unauthorized),
            (403, ProviderErrorKind::Unauthorized),
            (404, ProviderErrorKind::Configuration),
            (413, ProviderErrorKind::Rejected),
            (422, ProviderErrorKind::Rejected),
        ] {
            let server = Server::start([Reply::error(status, &(wire.error)("because")), wire.fine()]).await;
            let error = refusal(&provider(wire.kind, &server), hello()).await;
            assert_eq!((error.kind(), error.status()), (kind, Some(status)));
            assert!(error.to_string().ends_with(": because"), "{error}");
            assert_eq!(server.requests().len(), 1, "{status}");
        }
    }
}

#[tokio::test]
async fn a_key_that_a_server_echoes_is_in_no_error() {
    for wire in WIRES {
        let echo = format!("no such key: {KEY}");
        let refused = Reply::error(401, &(wire.error)(&echo));
        let wrong_type = Reply::new(200, "text/html", &echo);
        let in_answer = wire.reply(wire.framed(&[wire.lasting.unwrap_or(wire.error)(&echo)]));
        // The key straddles the point where messages are cut. No half of the key may remain.
        let at_the_cut = Reply::new(400, "text/plain", format!("{}{KEY}", "x".repeat(490)));
        let as_type = Reply::new(200, &format!("text/{KEY}"), "");
        let not_json = wire.reply(wire.event(KEY));
        // An error of an unspecific kind may be temporary, so it is retried.
        let in_answer_tries = if wire.lasting.is_some() { 1 } else { 4 };
        for (reply, tries) in [
            (refused, 1),
            (wrong_type, 1),
            (in_answer, in_answer_tries),
            (at_the_cut, 1),
            (as_type, 1),
            (not_json, 1),
        ] {
            let server = Server::start(std::iter::repeat_n(reply, 4)).await;
            let error = refusal(&provider(wire.kind, &server), hello()).await;
            assert!(!printable_text(&error).contains("sk-very"), "{}", printable_text(&error));
            assert_eq!(server.requests().len(), tries, "{}", wire.kind);
        }
    }
}

#[tokio::test]
async fn unexpected_media_type_is_a_malformed_answer() {
    for wire in WIRES {
        let whole_answer = (wire.unstreamed)().to_string();
        let other_media_type = if wire.media_type() == "text/event-stream" {
            "application/x-ndjson"
        } else {
            "text/event-stream"
        };
        for (content_type, body) in [
            ("application/json", whole_answer.as_str()),
            ("text/html", "<html>a gateway's greeting</html>"),
            ("application/octet-stream", "\u{0}\u{1}"),
            ("text/event-streamer", "data: [DONE]\n\n"),
            // The media type of another provider.
            (other_media_type, "{}\n"),
            ("", ""),
        ] {
            let server = Server::start([Reply::new(200, content_type, body), wire.fine()]).await;
            let error = refusal(&provider(wire.kind, &server), hello()).await;
            assert_eq!(error.kind(), ProviderErrorKind::Malformed, "{content_type}");
            assert_eq!(server.requests().len(), 1);
        }
        let server = Server::start([wire
            .fine()
            .with_header("content-type", &format!("{}; charset=utf-8", wire.media_type().to_uppercase()))])
        .await;
        answer(&provider(wire.kind, &server), hello()).await;
    }
}

#[tokio::test]
async fn a_malformed_piece_ends_the_answer() {
    for wire in WIRES {
        for bad in wire.malformed {
            let server =
                Server::start([wire.reply(wire.text("half")).and(wire.event(bad)), wire.fine()]).await;
            let (text, error) = broken(wire, &server).await;
            assert_eq!((text.as_str(), error.kind()), ("half", ProviderErrorKind::Malformed), "{bad}");
        }
        let server = Server::start([wire.reply(wire.text("half")).and(wire.event(b"\xff\xfe"))]).await;
        assert_eq!(broken(wire, &server).await.1.kind(), ProviderErrorKind::Malformed);
    }
}

#[tokio::test]
async fn an_answer_without_a_word_or_a_reason_is_incomplete() {
    for wire in WIRES {
        let server =
            Server::start(std::iter::repeat_n(wire.reply(wire.nothing() + wire.end_marker), 4)).await;
        let error = refusal(&provider(wire.kind, &server), hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Incomplete);
        assert_eq!(server.requests().len(), wire.attempts_without_stop_reason());
    }
}

#[tokio::test]
async fn an_answer_without_a_word_is_whole_where_it_says_why_it_ended() {
    for wire in WIRES {
        for empty in wire.wordless() {
            let server = Server::start([wire.reply(empty.clone() + &wire.end()), wire.fine()]).await;
            let mut deltas = answer(&provider(wire.kind, &server), hello()).await;
            deltas.retain(|delta| !matches!(delta, Delta::Usage(_)));
            assert_eq!(deltas, [Delta::End(StopReason::Stop)], "{empty}");
            // Without a stop reason the same answer is incomplete.
            let cut = wire.reply(empty.clone() + wire.end_marker);
            let server = Server::start(std::iter::repeat_n(cut, 4)).await;
            let error = refusal(&provider(wire.kind, &server), hello()).await;
            assert_eq!(error.kind(), ProviderErrorKind::Incomplete, "{empty}");
            assert_eq!(server.requests().len(), wire.attempts_without_stop_reason(), "{empty}");
        }
    }
}

#[tokio::test]
async fn an_error_is_retried_before_the_first_word_and_not_after() {
    for wire in WIRES {
        let failing = |prefix: String| wire.reply(prefix + &wire.error_event("too much to do"));
        let server = Server::start([failing(wire.nothing()), failing(wire.text("half")), wire.fine()]).await;
        let (text, error) = broken(wire, &server).await;
        assert_eq!((text.as_str(), error.kind()), ("half", ProviderErrorKind::Server));
        assert!(error.to_string().ends_with(": too much to do"), "{error}");
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn an_answer_without_end_is_bounded() {
    for wire in WIRES {
        let small_limits = ProviderLimits { response_bytes: 64 * 1024, ..limits() };
        let endless_line = wire.reply(wire.frame_prefix()).and_for_ever([b'x'; 4096]);
        let endless_comments = wire.reply("").and_for_ever(wire.still_here().repeat(300));
        let endless_text = wire.reply("").and_for_ever(wire.text(&"x".repeat(1000)));
        let endless_counts = wire.reply("").and_for_ever(wire.count().repeat(100));
        for reply in [endless_line, endless_comments, endless_text, endless_counts] {
            let mut server = Server::start([reply]).await;
            let settings = settings(wire.kind, &server).with_limits(small_limits);
            let error = match RemoteProvider::new(settings).expect("a provider").stream(hello()).await {
                Err(error) => error,
                Ok(stream) => {
                    let (deltas, error) = drain(stream).await;
                    let text_bytes: usize =
                        deltas.iter().map(|d| if let Delta::Text(t) = d { t.len() } else { 0 }).sum();
                    assert!(text_bytes <= small_limits.response_bytes, "{text_bytes}");
                    error.expect("an error")
                }
            };
            assert_eq!(error.kind(), ProviderErrorKind::Malformed);
            assert!(error.to_string().contains("larger than the limit"), "{error}");
            server.wait_until_abandoned().await;
        }
    }
}

#[tokio::test]
async fn an_error_without_end_is_cut() {
    for wire in WIRES {
        let server = Server::start([Reply::new(400, "text/plain", "").and_for_ever([b'x'; 4096])]).await;
        let error = refusal(&provider(wire.kind, &server), hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Rejected);
        assert!(error.to_string().len() < 1000);
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    for wire in WIRES {
        let short = ProviderLimits { idle_timeout: Duration::from_millis(100), ..limits() };
        for reply in [wire.reply("").and_stall(), wire.reply(wire.text("half")).and_stall()] {
            let mut server = Server::start([reply, wire.fine()]).await;
            let settings = settings(wire.kind, &server).with_limits(short);
            let result = RemoteProvider::new(settings).expect("a provider").stream(hello()).await;
            let error = match result {
                Err(error) => error,
                Ok(stream) => drain(stream).await.1.expect("an error"),
            };
            assert_eq!(error.kind(), ProviderErrorKind::Transport);
            assert!(error.to_string().contains("sent nothing for 0.1 s"), "{error}");
            server.wait_until_abandoned().await;
            assert_eq!(server.requests().len(), 1, "a further request would wait as long");
        }
    }
}

#[tokio::test]
async fn a_server_that_takes_a_request_and_says_nothing_is_given_up() {
    for wire in WIRES {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let short = ProviderLimits {
            connect_timeout: Duration::from_millis(100),
            idle_timeout: Duration::from_millis(100),
            ..limits()
        };
        let settings = ProviderSettings::new(wire.kind, "m")
            .with_base_url(format!("http://{}", listener.local_addr().expect("an address")))
            .with_limits(short);
        let error = refusal(&RemoteProvider::new(settings).expect("a provider"), hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Transport);
    }
}

#[tokio::test]
async fn a_key_does_not_go_to_a_server_that_fails_to_speak_tls() {
    for wire in WIRES {
        let server = Server::start([wire.fine()]).await;
        let settings = settings(wire.kind, &server).with_base_url(server.url().replace("http:", "https:"));
        let provider = match RemoteProvider::new(settings) {
            Ok(provider) => provider,
            Err(error) => {
                // A machine without certificates cannot use TLS, and the error says so.
                assert_eq!(error.kind(), ProviderErrorKind::Configuration);
                assert!(error.to_string().contains("certificates"), "{error}");
                return;
            }
        };
        let error = refusal(&provider, hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Transport);
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn cancelling_ends_the_request_wherever_it_is() {
    for wire in WIRES {
        // Before the request.
        let server = Server::start([wire.fine()]).await;
        let model_request = hello();
        model_request.cancel.cancel();
        let error = refusal(&provider(wire.kind, &server), model_request).await;
        assert_eq!(error.kind(), ProviderErrorKind::Cancelled);
        assert!(server.requests().is_empty());

        // Before the first piece.
        let mut server = Server::start([wire.reply(wire.still_here()).and_stall()]).await;
        let provider_here = provider(wire.kind, &server);
        let model_request = hello();
        let cancel = model_request.cancel.clone();
        let (error, ()) = futures_util::join!(refusal(&provider_here, model_request), async {
            while server.requests().is_empty() {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        });
        assert_eq!(error.kind(), ProviderErrorKind::Cancelled);
        server.wait_until_abandoned().await;

        // Within the answer.
        let mut server = Server::start([wire.reply(wire.text("half")).and_stall()]).await;
        let model_request = hello();
        let cancel = model_request.cancel.clone();
        let mut stream = provider(wire.kind, &server).stream(model_request).await.expect("begins");
        assert_eq!(stream.next().await.expect("a piece").expect("fine"), Delta::Text("half".into()));
        let (next, ()) = futures_util::join!(stream.next(), async { cancel.cancel() });
        assert_eq!(next.expect("an end").expect_err("cancelled").kind(), ProviderErrorKind::Cancelled);
        assert!(stream.next().await.is_none());
        server.wait_until_abandoned().await;
    }
}

#[tokio::test]
async fn cancelling_ends_the_wait_between_two_tries() {
    for wire in WIRES {
        let limited = wire.limited("1000");
        let server = Server::start([limited, wire.fine()]).await;
        let patient = ProviderLimits { retry_wait_max: Duration::from_secs(2000), ..limits() };
        let provider =
            RemoteProvider::new(settings(wire.kind, &server).with_limits(patient)).expect("a provider");
        let model_request = hello();
        let cancel = model_request.cancel.clone();
        let (error, ()) = futures_util::join!(refusal(&provider, model_request), async {
            while server.requests().is_empty() {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        });
        assert_eq!(error.kind(), ProviderErrorKind::Cancelled);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn dropping_an_answer_closes_its_connection() {
    for wire in WIRES {
        let mut server = Server::start([wire.reply(wire.text("half")).and_stall()]).await;
        let stream = provider(wire.kind, &server).stream(hello()).await.expect("begins");
        drop(stream);
        server.wait_until_abandoned().await;
    }
}

#[tokio::test]
async fn a_request_without_a_model_is_not_made() {
    for wire in WIRES {
        let server = Server::start([wire.fine()]).await;
        let settings = ProviderSettings { model: String::new(), ..settings(wire.kind, &server) };
        let error = refusal(&RemoteProvider::new(settings).expect("a provider"), hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Configuration);
        assert!(server.requests().is_empty());
    }
}
