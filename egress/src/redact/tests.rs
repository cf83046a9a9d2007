//! Tests that secrets are found in every form, with any text around them.

use proptest::prelude::*;

use super::*;
use crate::HeaderAffixes;

fn credential(value: &str) -> Credential {
    let value = SecretValue::new(value.as_bytes().to_vec()).unwrap();
    Credential::new("test", &value, "authorization", HeaderAffixes { prefix: "Bearer ", suffix: "" }).unwrap()
}

fn clean(text: &[u8], credentials: &[Credential]) -> String {
    let mut text = text.to_vec();
    redact(&mut text, credentials);
    String::from_utf8_lossy(&text).into_owned()
}

#[track_caller]
fn check(value: &str, text: &str, expected: &str) {
    assert_eq!(clean(text.as_bytes(), &[credential(value)]), expected, "{text}");
}

const VALUE: &str = "ghp_A/b+c=\"d&1";

#[test]
fn text_without_a_secret_stays_as_it_is() {
    for text in ["", "ghp_A/b+c=\"d&", "hp_A/b+c=\"d&1", "%67%68", "&#103;", "\\u0067", "GHP_A/B+C=\"D&1"] {
        check(VALUE, text, text);
    }
    let mut text = b"ghp_A/b+c=\"d&1".to_vec();
    assert!(!redact(&mut text, &[]) && text == b"ghp_A/b+c=\"d&1");
}

#[test]
fn a_secret_is_found_in_each_escape() {
    for text in [
        VALUE,
        "ghp_A%2Fb%2bc%3D%22d%261",
        "%67%68%70%5F%41%2F%62%2B%63%3D%22%64%26%31",
        "ghp_A%252Fb%252Bc%253D%2522d%25261",
        "ghp_A\\/b+c=\\\"d&1",
        "\\u0067hp_A/b\\u002Bc\\u003d\\u0022d\\u00261",
        "ghp_A/b\\x2bc=\\x22d&1",
        "ghp_A/b+c=&quot;d&amp;1",
        "ghp_A&#x2F;b&#43;c&#61;&#034;d&#X26;1",
    ] {
        check(VALUE, text, "REDACTED");
        check(VALUE, &format!("a{text} {text}b"), "aREDACTED REDACTEDb");
        check(VALUE, &format!("a{text}{text}b"), "aREDACTEDb");
    }
    check("pass word 1", "q=pass+word+1&r=pass%20word%201", "q=REDACTED&r=REDACTED");
    check("back\\slash", "back\\slash back\\\\slash", "REDACTED REDACTED");
    check("\\\\\\\\\\\\\\\\", "\\\\\\\\\\\\\\\\", "REDACTED");
}

#[test]
fn the_edges_of_base64_hold_no_bits_of_the_secret() {
    // The value ends at the end of a group, and shares one digit with `a`, which is redacted too.
    let encoded = STANDARD.encode(format!("a{VALUE}b"));
    assert_eq!(encoded, "YWdocF9BL2IrYz0iZCYxYg==");
    check(VALUE, &encoded, "YREDACTEDYg==");
    // The value shares one digit with the text before and one with the text after.
    let encoded = STANDARD.encode(format!("ab{VALUE}b"));
    assert_eq!(encoded, "YWJnaHBfQS9iK2M9ImQmMWI=");
    check(VALUE, &encoded, "YWREDACTEDI=");
}

#[test]
fn wrapped_base64_is_found() {
    let encoded = STANDARD.encode(VALUE);
    for line_break in ["\n", "\r\n"] {
        for at in 1..encoded.trim_end_matches('=').len() {
            let (start, end) = encoded.split_at(at);
            let cleaned = clean(format!("{start}{line_break}{end}").as_bytes(), &[credential(VALUE)]);
            assert!(cleaned.starts_with("REDACTED") && cleaned.len() <= 12, "{cleaned}");
        }
    }
}

#[test]
fn secrets_that_overlap_are_both_taken_out() {
    let both = [credential("abcdefgh"), credential("efghijkl")];
    assert_eq!(clean(b"-abcdefghijkl-efghabcdefgh", &both), "-REDACTED-efghREDACTED");
}

#[test]
fn a_password_that_begins_with_a_blank_is_found_in_a_form() {
    let value = SecretValue::new(STANDARD.encode("user: correct horse").into_bytes()).unwrap();
    let credential =
        Credential::new("test", &value, "authorization", HeaderAffixes { prefix: "Basic ", suffix: "" })
            .unwrap();
    assert_eq!(redact_text("password=+correct+horse&x=1".into(), &[credential]), "password=REDACTED&x=1");
}

#[test]
fn the_password_of_basic_authentication_is_found() {
    let pair = STANDARD.encode("user:correct horse");
    let value = SecretValue::new(pair.clone().into_bytes()).unwrap();
    let credential =
        Credential::new("test", &value, "authorization", HeaderAffixes { prefix: "Basic ", suffix: "" })
            .unwrap();
    let text = format!("{pair} user:correct horse, correct%20horse, user");
    assert_eq!(clean(text.as_bytes(), &[credential]), "REDACTED REDACTED, REDACTED, user");
}

#[test]
fn headers_are_clean_in_name_and_value() {
    let mut headers = HeaderMap::new();
    headers.insert("location", HeaderValue::from_static("/?key=hunter2-HUNTER2"));
    headers.insert("x-hunter2-hunter2", HeaderValue::from_static("a"));
    headers.append("x-two", HeaderValue::from_static("hunter2-HUNTER2"));
    headers.append("x-two", HeaderValue::from_static("b"));
    assert!(redact_headers(&mut headers, &[credential("hunter2-HUNTER2")]));
    let debug_text = format!("{headers:?}");
    assert_eq!(debug_text, r#"{"location": "/?key=REDACTED", "x-two": "REDACTED", "x-two": "b"}"#);
    assert!(!redact_headers(&mut headers, &[credential("hunter2-HUNTER2")]));
}

#[test]
fn much_text_that_nearly_repeats_a_secret_is_read_once() {
    let value = "a".repeat(512);
    let text = format!("{}b", "a".repeat(511)).repeat(8);
    check(&value, &text, &text);
    let escapes = "%&\\".repeat(1 << 16);
    check(VALUE, &escapes, &escapes);
}

fn percent(value: &[u8], every: usize) -> Vec<u8> {
    let written = value.iter().enumerate().flat_map(|(index, byte)| match index % every {
        0 => format!("%{byte:02X}").into_bytes(),
        _ => vec![*byte],
    });
    written.collect()
}

/// Writes a secret in the form that `form` numbers, at the alignment that `lead` gives.
fn written(value: &str, form: usize, lead: &[u8]) -> Vec<u8> {
    let all = [lead, value.as_bytes(), b"~"].concat();
    match form {
        0 => all,
        1 => [lead, &percent(value.as_bytes(), 1)[..]].concat(),
        2 => [lead, &percent(value.as_bytes(), 2)[..]].concat(),
        3 => STANDARD.encode(all).into_bytes(),
        4 => URL_SAFE.encode(all).into_bytes(),
        5 => percent(STANDARD.encode(all).as_bytes(), 3),
        6 => all.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
        7 => all.iter().flat_map(|byte| [*byte, 0]).collect(),
        8 => all.iter().flat_map(|byte| [0, *byte]).collect(),
        _ => [lead, serde_like(value).as_bytes()].concat(),
    }
}

/// Writes a value as in a JSON string, with slashes escaped as some writers do.
fn serde_like(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('/', "\\/")
}

proptest! {
    #[test]
    fn every_form_is_found_at_every_alignment(
        value in "[!-~][ -~]{6,30}[!-~]",
        form in 0_usize..10,
        lead in proptest::collection::vec(any::<u8>(), 0..7),
    ) {
        let text = written(&value, form, &lead);
        let mut cleaned = text.clone();
        prop_assert!(redact(&mut cleaned, &[credential(&value)]), "form {}", form);
        prop_assert!(cleaned.len() <= text.len());
        // No form is left, whichever was written.
        prop_assert!(find_secrets(&cleaned, &[credential(&value)]).matches.is_empty());
    }

    #[test]
    fn only_the_secret_is_taken_out(
        value in "[a-z]{8,20}",
        before in "[A-Z ]{0,20}",
        after in "[A-Z ]{0,20}",
    ) {
        let cleaned = clean(format!("{before}{value}{after}").as_bytes(), &[credential(&value)]);
        prop_assert_eq!(cleaned, format!("{before}REDACTED{after}"));
    }

    #[test]
    fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut cleaned = text.clone();
        let is_redacted = redact(&mut cleaned, &[credential("hunter2-hunter2")]);
        prop_assert!(is_redacted || cleaned == text);
    }
}

/// Redacts a text in pieces of these lengths, and the rest as one piece.
fn in_pieces(text: &[u8], mut lengths: impl Iterator<Item = usize>, credentials: &[Credential]) -> String {
    let (mut redactor, mut found, mut rest) = (Redactor::new(), Vec::new(), text);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(lengths.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        found.extend(redactor.push(piece, credentials));
        rest = more;
    }
    found.extend(redactor.finish(credentials));
    String::from_utf8_lossy(&found).into_owned()
}

#[test]
fn a_secret_is_found_across_pieces_in_each_form() {
    let credentials = [credential(VALUE)];
    let mut forms: Vec<Vec<u8>> = (0..10).map(|form| written(VALUE, form, b"")).collect();
    forms.extend((0..10).map(|form| written(VALUE, form, b"a")));
    forms.extend((0..10).map(|form| written(VALUE, form, b"ab")));
    forms.extend(
        [
            "ghp_A%252Fb%252Bc%253D%2522d%25261",
            "\\u0067hp_A/b\\u002Bc\\u003d\\u0022d\\u00261",
            "ghp_A&#x2F;b&#43;c&#61;&#x0000022;d&#X26;1",
        ]
        .map(|form| form.as_bytes().to_vec()),
    );
    let encoded = STANDARD.encode(VALUE);
    let (one, two) = encoded.split_at(9);
    forms.push(format!("{one}\r\n{two}").into_bytes());
    for form in forms {
        let text = [&b"one, "[..], &form, &form, b", two"].concat();
        let whole = clean(&text, &credentials);
        assert!(whole.contains("REDACTED"), "{whole}");
        for split in 1..text.len() {
            assert_eq!(in_pieces(&text, [split].into_iter(), &credentials), whole, "{split}");
        }
        assert_eq!(in_pieces(&text, std::iter::repeat(1), &credentials), whole);
    }
}

#[test]
fn a_piece_that_begins_no_secret_is_passed_on_immediately() {
    let credentials = [credential(VALUE)];
    let mut redactor = Redactor::new();
    let mut push = |piece: &str| String::from_utf8(redactor.push(piece.as_bytes(), &credentials)).unwrap();
    assert_eq!(push("a line of text\n"), "a line of text\n");
    // Text that begins like a secret is held back until it turns out to be none.
    assert_eq!(push("event: ghp_A/b"), "event: ");
    assert_eq!(push(" and more\n"), "ghp_A/b and more\n");
    assert_eq!(push("ghp_A/b+c=\"d&"), "");
    assert_eq!(push("\n"), "ghp_A/b+c=\"d&\n");
    assert_eq!(push("ghp_A/b+c="), "");
    assert_eq!(push("\"d&1\n"), "REDACTED\n");
    assert_eq!(push("&am"), "");
    assert_eq!(redactor.finish(&credentials), b"&am");
    // Without secrets, every piece is passed on immediately.
    let mut redactor = Redactor::new();
    assert_eq!(redactor.push(b"ghp_A", &[]), b"ghp_A");
    assert!(redactor.finish(&[]).is_empty());
}

#[test]
fn a_secret_that_becomes_known_between_two_pieces_is_found() {
    let (old, new) = (credential("hunter2/hunter2"), credential("second/secret"));
    let mut redactor = Redactor::new();
    assert_eq!(redactor.push(b"a second/secret, hunter2/", std::slice::from_ref(&old)), b"a second/secret, ");
    let both = [old, new];
    // The new secret is also found in text that was held back for the old one.
    assert_eq!(redactor.push(b"hun second/sec", &both), b"hunter2/hun ");
    assert_eq!(redactor.push(b"ret, second/secret, sec", &both), b"REDACTED, REDACTED, ");
    assert_eq!(redactor.finish(&both), b"sec");
    let inner = credential("er2/inner-value");
    let mut redactor = Redactor::new();
    assert_eq!(redactor.push(b"hunter2/", &both), b"");
    let all = [&both[..], &[inner]].concat();
    assert_eq!(redactor.push(b"inner-value.", &all), b"huntREDACTED.");
}

#[test]
fn the_text_that_is_held_back_is_bounded() {
    // Each match overlaps the next one, so one replacement covers the whole text.
    let credentials = [credential("aaaaaaaa")];
    let mut redactor = Redactor::new();
    let mut passed = Vec::new();
    for _ in 0..100 {
        passed.extend(redactor.push(&[b'a'; 1000], &credentials));
        assert!(redactor.held_bytes() < 16, "{}", redactor.held_bytes());
    }
    passed.extend(redactor.finish(&credentials));
    assert_eq!(passed, REDACTED);
}

#[test]
fn a_slow_partial_match_is_not_searched_again_for_each_byte() {
    let credentials = [credential(&"a".repeat(512))];
    let mut redactor = Redactor::new();
    let text = "a".repeat(1 << 14);
    let mut passed = Vec::new();
    for byte in text.bytes().chain(*b"b") {
        passed.extend(redactor.push(&[byte], &credentials));
    }
    passed.extend(redactor.finish(&credentials));
    assert_eq!(passed, REDACTED.iter().copied().chain(*b"b").collect::<Vec<u8>>());
}

proptest! {
    #[test]
    fn pieces_are_the_whole(
        parts in proptest::collection::vec(prop_oneof![
            Just(VALUE.to_owned()),
            Just("ghp_A".to_owned()),
            Just("aaaaaaaaa".to_owned()),
            Just("efghijkl".to_owned()),
            Just("abcdefgh".to_owned()),
            Just("&quot;".to_owned()),
            Just("%67".to_owned()),
            (0_usize..10).prop_map(|form| String::from_utf8_lossy(&written(VALUE, form, b"x")).into_owned()),
            "[ -~\r\n]{0,6}",
        ], 0..8),
        lengths in proptest::collection::vec(1_usize..9, 0..40),
    ) {
        let credentials = ["abcdefgh", "efghijkl", "aaaaaaaa", VALUE].map(credential);
        let text = parts.concat();
        let found = in_pieces(text.as_bytes(), lengths.into_iter(), &credentials);
        prop_assert_eq!(found, clean(text.as_bytes(), &credentials));
    }
}
