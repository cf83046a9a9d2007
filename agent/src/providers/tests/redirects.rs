//! A server that redirects: neither the key nor the conversation follows.

use super::*;
use crate::ProviderErrorKind;

#[tokio::test]
async fn a_redirect_takes_nothing_elsewhere() {
    for status in [301, 302, 303, 307, 308] {
        for kind in ProviderKind::ALL {
            let elsewhere = Server::start([]).await;
            let here =
                Server::start([Reply::new(status, "text/plain", "moved").with("location", &elsewhere.url())])
                    .await;
            let error = refusal(&provider(kind, &here), request(vec![Message::user("a secret")])).await;
            assert_eq!((error.kind(), error.status()), (ProviderErrorKind::Configuration, Some(status)));
            assert!(error.to_string().contains("redirects are not followed"), "{error}");
            assert!(elsewhere.seen().is_empty(), "{status} {kind}");
            assert_eq!(here.seen().len(), 1);
        }
    }
}

#[tokio::test]
async fn the_same_place_can_be_reached_directly() {
    // Control for the test above: the server that it must not reach can be reached.
    let elsewhere = Server::start([]).await;
    refusal(&provider(ProviderKind::OpenAi, &elsewhere), request(vec![Message::user("x")])).await;
    assert_eq!(elsewhere.seen().len(), 1);
}
