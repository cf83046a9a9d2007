//! A server that redirects: neither the key nor the conversation follows.

use super::*;
use crate::ProviderErrorKind;

#[tokio::test]
async fn a_redirect_is_an_error_and_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        for kind in ProviderKind::ALL {
            let elsewhere = Server::start([]).await;
            let here = Server::start([
                Reply::new(status, "text/plain", "moved").with_header("location", &elsewhere.url())
            ])
            .await;
            let error = refusal(&provider(kind, &here), request(vec![Message::user("a secret")])).await;
            assert_eq!((error.kind(), error.status()), (ProviderErrorKind::Configuration, Some(status)));
            assert!(error.to_string().contains("redirects are not followed"), "{error}");
            assert!(elsewhere.requests().is_empty(), "{status} {kind}");
            assert_eq!(here.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn the_same_place_can_be_reached_directly() {
    // The control for the test above: the other server can be reached at all.
    let elsewhere = Server::start([]).await;
    refusal(&provider(ProviderKind::OpenAi, &elsewhere), request(vec![Message::user("x")])).await;
    assert_eq!(elsewhere.requests().len(), 1);
}
