//! `[search]`: faults and warnings. A reduction can only turn the provider off.

use portcullis_policy::{DEFAULT_POLICY, SearchProvider};

use crate::support::{BASE, load, load_with, try_load};

/// Checks the faults of `[search]` with these lines after [`BASE`]; the section is in line 17.
#[track_caller]
fn check_faults(lines: &str, faults: &[&str]) {
    let error = try_load(&format!("{BASE}[search]\n{lines}"), None).expect_err("is refused").to_string();
    let faults: Vec<String> = faults.iter().map(|fault| format!("portcullis.toml:{fault}")).collect();
    assert_eq!(error.lines().collect::<Vec<_>>(), faults, "{lines}");
}

/// Checks the warnings of a policy whose `[search]` has these lines.
#[track_caller]
fn check_warned(policy: &str, expected: &str) {
    let warnings: Vec<String> = load(policy).warnings().iter().map(ToString::to_string).collect();
    let about: Vec<&String> = warnings.iter().filter(|text| text.contains("search.provider")).collect();
    match expected {
        "" => assert!(about.is_empty(), "{warnings:?}"),
        _ => assert!(about.len() == 1 && about[0].contains(expected), "{warnings:?}"),
    }
}

#[test]
fn provider_is_known_and_has_what_it_needs() {
    check_faults(
        "",
        &[
            "17:1: search.provider: missing key; write one of \"searxng\", \"brave\", \"tavily\", \"google\", \
           \"duckduckgo\"",
        ],
    );
    check_faults(
        "provider = 'brvae'",
        &["18:12: search.provider: unknown provider `brvae`; did you mean `brave`?"],
    );
    check_faults(
        "provider = 'none'",
        &[
            "18:12: search.provider: unknown provider `none`; known are `searxng`, `brave`, `tavily`, `google`, \
           `duckduckgo`",
        ],
    );
    check_faults("provider = 1", &["18:12: search.provider: expected a string, found integer"]);
    check_faults(
        "provider = 'searxng'",
        &["17:1: search.url: missing key; `searxng` needs the address of an instance, such as \
           \"http://127.0.0.1:8888/search\""],
    );
    check_faults(
        "provider = 'google'",
        &["17:1: search.engine: missing key; `google` needs the ID of a search engine (`cx`)"],
    );
    check_faults(
        "provider = 'brave'\nengine = 'e'",
        &["19:1: search.engine: `brave` has no engines; take this line out"],
    );
    check_faults(
        "provider = 'google'\nengine = 'a b'",
        &[
            "19:10: search.engine: not an engine ID: use 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `:`, `_`, `-`; copy \
           the ID from the engine's overview",
        ],
    );
    check_faults(
        "provider = 'searxng'\nurl = 'searx.example'\nkey = 'x'",
        &[
            "19:7: search.url: the URL does not begin with `https://` or `http://` and a host",
            "20:1: search.key: unknown key; known are `provider`, `url`, `engine`",
        ],
    );
    check_faults(
        "provider = 'brave'\nurl = 'https://a.example/?q='",
        &[
            "19:7: search.url: the provider's URL has a query (`?`) or a fragment (`#`), which the search adds \
           itself; write only the part before it",
        ],
    );
}

#[test]
fn provider_without_an_address_has_its_own() {
    assert_eq!(load(DEFAULT_POLICY).search(), None);
    let policy = load(&format!("{BASE}[search]\nprovider = 'brave'"));
    let search = policy.search().expect("a provider");
    assert_eq!(search.provider, SearchProvider::Brave);
    assert_eq!(search.url.to_string(), "https://api.search.brave.com/res/v1/web/search");
    let policy = load(&format!("{BASE}[search]\nprovider = 'brave'\nurl = 'https://proxy.example/b'"));
    assert_eq!(policy.search().expect("a provider").url.to_string(), "https://proxy.example/b");
}

#[test]
fn provider_that_no_search_reaches_is_warned_of() {
    let shipped = |lines: &str| format!("{DEFAULT_POLICY}\n[search]\n{lines}");
    check_warned(&shipped("provider = 'brave'"), "");
    check_warned(
        &shipped("provider = 'searxng'\nurl = 'http://127.0.0.1:8888/search'"),
        "the profile `Web` of `web_search_request` does not grant `http://127.0.0.1:8888`",
    );
    check_warned(
        &shipped("provider = 'tavily'"),
        "`tavily` needs the method POST, which the profile `Web` does not grant",
    );
    check_warned(
        &format!("{BASE}[search]\nprovider = 'duckduckgo'"),
        "`[tools.web_search_request]` has no profile, so every search is denied; one with `hosts = \
         [\"https://html.duckduckgo.com\"]` is needed",
    );
}

#[test]
fn overlay_takes_the_provider_away_and_sets_none() {
    let operator = format!("{BASE}[search]\nprovider = 'brave'");
    assert_eq!(load_with(&operator, "[search]\nprovider = 'none'").search(), None);
    assert!(load_with(&operator, "[limits]\nconcurrency = 2").search().is_some());
    for (overlay, fault) in [
        (
            "[search]\nprovider = 'duckduckgo'",
            "2:12: search.provider: only the operator's policy may say `duckduckgo`; write `none`, or leave this out",
        ),
        (
            "[search]",
            "1:1: search.provider: missing key; write `provider = \"none\"` to take the provider away",
        ),
        (
            "[search]\nprovider = 'none'\nurl = 'https://evil.example'",
            "3:1: search.url: only the operator's policy may set this key; this section may only remove the provider",
        ),
    ] {
        let error = try_load(&operator, Some(overlay)).expect_err("is refused").to_string();
        assert_eq!(error, format!("workspace.toml:{fault}"), "{overlay}");
    }
    let idle = load_with(BASE, "[search]\nprovider = 'none'");
    assert!(idle.warnings().iter().any(|warning| warning.to_string().contains("takes nothing away")));
}
