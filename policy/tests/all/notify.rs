//! `[notify]`: faults, and the tools that exist with it.

use portcullis_policy::DEFAULT_POLICY;

use crate::support::{BASE, load, try_load};

/// Checks the faults of `[notify]` with these lines after [`BASE`]; the section is in line 17.
#[track_caller]
fn check_faults(lines: &str, faults: &[&str]) {
    let error = try_load(&format!("{BASE}[notify]\n{lines}"), None).expect_err("is refused").to_string();
    let faults: Vec<String> = faults.iter().map(|fault| format!("portcullis.toml:{fault}")).collect();
    assert_eq!(error.lines().collect::<Vec<_>>(), faults, "{lines}");
}

#[test]
fn each_mistake_is_a_fault_with_its_place() {
    check_faults("", &["17:1: notify: missing key; write one of `slack`, `discord`, `email`"]);
    check_faults(
        "slack = 'https://a.example/?x'\nkey = 'x'",
        &[
            "18:9: notify.slack: the address of the service has a query (`?`) or a fragment (`#`); write only the part before it",
            "19:1: notify.key: unknown key; known are `slack`, `discord`, `email`, `from`, `user`",
        ],
    );
    check_faults(
        "email = 'smtps://m.example:465'",
        &["17:1: notify.from: missing key; a message needs a sender, such as \"agent@example.com\""],
    );
    check_faults(
        "email = 'https://m.example:465'\nfrom = 'a@m.example'",
        &[
            "18:9: notify.email: a mail server is written `smtps://HOST:PORT`, or `smtp://HOST:PORT` without TLS",
        ],
    );
    check_faults(
        "slack = 'https://a.example/'\nuser = 'u'",
        &["19:1: notify.user: this key applies only to e-mail; set `email`, or remove this line"],
    );
}

#[test]
fn an_overlay_cannot_name_a_service() {
    let error = try_load(BASE, Some("[notify]\nslack = 'https://a.example/'\n")).expect_err("is refused");
    assert!(error.to_string().contains("notify"), "{error}");
}

#[test]
fn the_tool_exists_with_a_service_and_asks() {
    let has_tool = |text: &str| {
        let policy = load(text);
        let mut tools =
            policy.offered_tools().filter(|tool| tool.name.as_str().starts_with("send_notification"));
        tools.next().map(|tool| (policy.describe(&tool).approval.to_string(), tools.count()))
    };
    assert_eq!(has_tool(DEFAULT_POLICY), None);
    let with_service = format!("{BASE}[notify]\nslack = 'https://a.example/'");
    assert_eq!(has_tool(&with_service), Some(("ask".to_owned(), 2)));
}

#[test]
fn the_section_changes_the_digest_and_its_absence_does_not() {
    let with_service = format!("{BASE}[notify]\ndiscord = 'https://a.example/'");
    assert_ne!(load(BASE).digest().as_str(), load(&with_service).digest().as_str());
    let json = String::from_utf8(load(BASE).canonical_json()).expect("the text is UTF-8");
    assert!(!json.contains("notify"), "{json}");
}
