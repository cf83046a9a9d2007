//! Tests of pages.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use portcullis_types::display::is_deceptive;

use super::*;

/// Names that would leave their place on a page: as elements, as attributes, as characters.
const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "\u{1b}]8;;https://evil.example\u{7}link",
    "a\u{202e}cod.exe\u{2066}\u{200b}",
    "שלום",
];

#[test]
fn hostile_names_are_text() {
    let listing = Listing {
        caption: "Names",
        columns: &[Column::Text("Name"), Column::Number("Calls")],
        rows: HOSTILE
            .iter()
            .map(|name| {
                vec![html! { code title=(EscapedText(name)) { (Untrusted(name)) } }, html! { (Count(1_234)) }]
            })
            .collect(),
        omitted: 1_000_000,
    };
    let shown = html! { (listing) }.into_string();
    assert!(!shown.chars().any(is_deceptive), "{shown}");
    insta::assert_snapshot!("names", shown.replace("<tr>", "\n<tr>"));
}

#[test]
fn long_names_are_cut() {
    let shown = html! { (Untrusted(&"w".repeat(5_000))) }.into_string();
    assert_eq!(shown, format!("<bdi>{}…</bdi>", "w".repeat(256)));
}

#[test]
fn the_policy_of_a_page_allows_its_own_style_and_nothing_else() {
    let page = page("A title", &html! { p { "text" } });
    let (_, style) = page.split_once("<style>").expect("a style");
    let (style, rest) = style.split_once("</style>").expect("an end");
    let hash = STANDARD.encode(Sha256::digest(style));
    let policy =
        format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'");
    let meta = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    assert!(page.find(&meta).expect("a policy") < page.find("<style>").expect("a style"), "{page}");
    assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">") && page.contains("<title>A title</title>"));
    assert!(!rest.contains("style") && !page.contains("<script") && !page.contains("http://"), "{rest}");
    // A style may load nothing, and must not end its element.
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import") && !STYLE.contains('<'));
}

#[test]
fn a_page_is_a_new_file_of_its_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    check_new_file(&file).expect("new");
    write_new_file(&file, "one").expect("written");
    assert_eq!(file.metadata().expect("the file has metadata").permissions().mode() & 0o777, 0o600);
    let link = folder.path().join("link.html");
    symlink(folder.path().join("elsewhere"), &link).expect("linked");
    for taken in [file.as_path(), &link, folder.path()] {
        assert!(matches!(check_new_file(taken), Err(CliError::Page { .. })), "{}", taken.display());
        assert!(matches!(write_new_file(taken, "two"), Err(CliError::Page { .. })), "{}", taken.display());
    }
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "one");
    assert!(write_new_file(&folder.path().join("none/page.html"), "two").is_err());
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 2, "nothing else is left");
}

#[test]
fn numbers_and_digests_are_short() {
    for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (25_108_000, "25,108,000")] {
        assert_eq!(Count(number).to_string(), expected);
    }
    assert_eq!(short_digest("0123456789abcdef"), "0123456789ab");
    assert_eq!(short_digest("äöü"), "äöü");
    let time = html! { (Time("2026-11-26T14:30:00.5Z".parse().expect("a time"))) }.into_string();
    assert_eq!(time, "<time datetime=\"2026-11-26T14:30:00Z\">2026-11-26 14:30:00</time>");
}
