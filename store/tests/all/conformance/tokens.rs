//! Tokens: found by their hashes.

use portcullis_store::{Entity, GatewayStore, PageRequest, StoreError, Token};

fn token(id: &str, digit: char, subject: Option<&str>, created: i64) -> Token {
    Token {
        id: id.to_owned(),
        hash: digit.to_string().repeat(64),
        subject_kind: if subject.is_some() { "run" } else { "admin" }.to_owned(),
        subject: subject.map(str::to_owned),
        created,
    }
}

pub(crate) async fn a_token_is_found_by_its_hash(store: &dyn GatewayStore) {
    let admin = token("t1", 'a', None, 1);
    let runs =
        [token("t2", '2', Some("r"), 2), token("t3", '3', Some("r"), 3), token("t4", '4', Some("s"), 3)];
    for token in std::iter::once(&admin).chain(&runs) {
        store.add_token(token.clone()).await.expect("a new token");
    }
    assert_eq!(store.find_token(&admin.hash).await.expect("answered"), Some(admin.clone()));
    assert_eq!(store.find_token(&"A".repeat(64)).await.expect("answered"), None);
    for taken in [token("t1", 'f', None, 1), token("t9", 'a', None, 1)] {
        let error = store.add_token(taken).await.expect_err("taken");
        assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Token, .. }), "{error}");
    }
    for hash in ["", "a", &"A".repeat(64), &"g".repeat(64), &"a".repeat(65)] {
        let wrong = Token { hash: hash.to_owned(), ..token("t9", '9', None, 1) };
        let error = store.add_token(wrong).await.expect_err("no hash");
        assert!(matches!(error, StoreError::Invalid { field: "the hash of the token", .. }), "{error}");
        assert!(hash.is_empty() || hash == "a" || !error.to_string().contains(hash), "{error}");
    }
    let list = async |request| {
        let page = store.tokens(request).await.expect("a page");
        (page.items.into_iter().map(|token| token.id).collect::<Vec<_>>(), page.next)
    };
    let (ids, next) = list(PageRequest::first(3)).await;
    assert_eq!(ids, ["t4", "t3", "t2"]);
    assert_eq!(list(PageRequest::after(next.expect("more"), 3)).await, (vec!["t1".to_owned()], None));
    assert_eq!(store.remove_tokens_of("run", "r").await.expect("removed"), 2);
    assert_eq!(store.remove_tokens_of("run", "r").await.expect("none"), 0);
    assert!(store.remove_token("t1").await.expect("removed"));
    assert!(!store.remove_token("t1").await.expect("none"));
    assert_eq!(list(PageRequest::default()).await.0, ["t4"]);
    assert_eq!(store.find_token(&admin.hash).await.expect("answered"), None);
}
