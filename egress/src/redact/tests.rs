//! Secrets in every form, with any text around.

use proptest::prelude::*;

use super::*;

fn credential(value: &str) -> Credential {
    let value = SecretValue::new(value.as_bytes().to_vec()).unwrap();
    Credential::new("test", &value, "authorization", ("Bearer ", "")).unwrap()
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
    // The value ends with a group of four characters, and shares one with `a`, which goes too.
    let encoded = STANDARD.encode(format!("a{VALUE}b"));
    assert_eq!(encoded, "YWdocF9BL2IrYz0iZCYxYg==");
    check(VALUE, &encoded, "YREDACTEDYg==");
    // It shares one with the text before and one with the text after.
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
fn the_password_of_basic_authentication_is_found() {
    let pair = STANDARD.encode("user:correct horse");
    let value = SecretValue::new(pair.clone().into_bytes()).unwrap();
    let credential = Credential::new("test", &value, "authorization", ("Basic ", "")).unwrap();
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
    let shown = format!("{headers:?}");
    assert_eq!(shown, r#"{"location": "/?key=REDACTED", "x-two": "REDACTED", "x-two": "b"}"#);
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

/// A text around a secret: the secret in a form that the first number names, at an alignment of its own.
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

/// A string of JSON, with slashes escaped as some writers do.
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
        // None of the forms is left, whichever was written.
        prop_assert!(find(&cleaned, &[credential(&value)]).places.is_empty());
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

/// The text in pieces of these lengths, the last of them for the rest.
fn in_pieces(text: &[u8], mut lengths: impl Iterator<Item = usize>, credentials: &[Credential]) -> String {
    let (mut redactor, mut found, mut rest) = (Redactor::new(credentials), Vec::new(), text);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(lengths.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        found.extend(redactor.push(piece.to_vec()));
        rest = more;
    }
    found.extend(redactor.finish());
    String::from_utf8_lossy(&found).into_owned()
}

#[test]
fn a_secret_is_found_across_pieces_in_each_form() {
    let credentials = [credential(VALUE)];
    let plain = VALUE.as_bytes();
    let mut forms: Vec<Vec<u8>> = [
        VALUE,
        "ghp_A%252Fb%252Bc%253D%2522d%25261",
        "\\u0067hp_A/b\\u002Bc\\u003d\\u0022d\\u00261",
        "ghp_A&#x2F;b&#43;c&#61;&#x0000022;d&#X26;1",
    ]
    .map(|form| form.as_bytes().to_vec())
    .into();
    forms.push(plain.iter().flat_map(|byte| [*byte, 0]).collect());
    for before in ["", "a", "ab"] {
        let encoded = STANDARD.encode([before.as_bytes(), plain].concat());
        let (one, two) = encoded.split_at(9);
        forms.push(format!("{one}\r\n{two}").into_bytes());
        forms.push(encoded.into_bytes());
    }
    for form in forms {
        let text = [&b"one, "[..], &form, b", two"].concat();
        let whole = clean(&text, &credentials);
        assert!(whole.contains("REDACTED"), "{whole}");
        for split in 0..text.len() {
            assert_eq!(in_pieces(&text, [split].into_iter(), &credentials), whole, "{split}");
        }
        assert_eq!(in_pieces(&text, std::iter::repeat(1), &credentials), whole);
    }
}

#[test]
fn a_piece_that_begins_no_secret_is_not_held_back() {
    let credentials = [credential(VALUE)];
    let mut redactor = Redactor::new(&credentials);
    assert_eq!(redactor.push(b"a line of text\n".to_vec()), b"a line of text\n");
    // The beginning of a secret that turns out to be none.
    assert_eq!(redactor.push(b"event: ghp_A/b".to_vec()), b"event: ");
    assert_eq!(redactor.push(b" and more\n".to_vec()), b"ghp_A/b and more\n");
    assert_eq!(redactor.push(b"ghp_A/b+c=".to_vec()), b"");
    assert_eq!(redactor.push(b"\"d&1\n".to_vec()), b"REDACTED\n");
    assert_eq!(redactor.push(b"&am".to_vec()), b"");
    assert_eq!(redactor.finish(), b"&am");
}

#[test]
fn a_body_without_secrets_to_look_for_is_passed_on() {
    let mut redactor = Redactor::new(&[]);
    assert_eq!(redactor.push(b"ghp".to_vec()), b"ghp");
    assert!(redactor.finish().is_empty());
}

proptest! {
    #[test]
    fn pieces_hold_no_secret_and_lose_no_text(
        parts in proptest::collection::vec(prop_oneof![
            Just(VALUE.to_owned()),
            Just("ghp_A".to_owned()),
            Just("&quot;".to_owned()),
            Just("%67".to_owned()),
            "[ -~\n]{0,6}",
        ], 0..8),
        lengths in proptest::collection::vec(1_usize..9, 0..40),
    ) {
        let (text, credentials) = (parts.concat(), [credential(VALUE)]);
        let found = in_pieces(text.as_bytes(), lengths.into_iter(), &credentials);
        let whole = clean(text.as_bytes(), &credentials);
        // Secrets that touch are one place in the whole text, and may be two in its pieces.
        let once = |text: &str| {
            let mut text = text.to_owned();
            while text.contains("REDACTEDREDACTED") {
                text = text.replace("REDACTEDREDACTED", "REDACTED");
            }
            text
        };
        prop_assert_eq!(once(&found), once(&whole));
    }
}
