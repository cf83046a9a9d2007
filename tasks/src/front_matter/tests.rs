//! Tests of the front matter: what is accepted, what is refused, and what an edit preserves.

use super::*;
use crate::ledger::{CallKey, LedgerRow};

fn row(block: &str) -> LedgerRow {
    let key = CallKey { block: block.to_owned(), ordinal: 0 };
    LedgerRow::pending(&key, "a `tool`: \"x\" # {}\n\u{202e}", "2026-01-31T10:00:00Z".to_owned())
}

#[track_caller]
fn edited(text: &str) -> String {
    let front_matter = FrontMatter::read(text).expect("reads");
    let ledger = front_matter.ledger().expect("a ledger").with(row("abc")).expect("fits");
    let written = front_matter.with_ledger(text, &ledger).expect("edits");
    let again = FrontMatter::read(&written).expect("reads again");
    assert_eq!(again.ledger().expect("a ledger"), ledger);
    assert_eq!(written[again.body..], text[front_matter.body..], "the body");
    written
}

#[test]
fn a_file_without_front_matter_gets_one() {
    for text in [
        "",
        "text\n",
        "# a\n\n---\n\nb",
        "---\ntext without end\n",
        "\u{feff}text\n",
        "text\r\n",
        " ---\na: 1\n---\n",
    ] {
        let written = edited(text);
        assert!(written.trim_start_matches('\u{feff}').starts_with("---"), "{written:?}");
    }
}

#[test]
fn comments_order_and_style_of_other_keys_stay() {
    let text = "---\n# head\nid: 7 # why\ntitle: 'a: b'\nlist: [1, 2]\n\ntext: |\n  tool_calls:\n    - x\n# tail\n---\nbody\n";
    let written = edited(text);
    let (head, _) = text.split_once("# tail").expect("a tail");
    assert!(written.starts_with(head), "{written}");
    assert!(written.contains("# tail\n"));
}

#[test]
fn line_breaks_stay_as_they_are() {
    let written = edited("---\r\nid: 7\r\n---\r\nbody\r\n");
    assert_eq!(written.matches('\n').count(), written.matches("\r\n").count(), "{written:?}");
}

#[test]
fn a_second_edit_replaces_the_ledger() {
    let once = edited("---\nid: 7\n---\n");
    assert_eq!(edited(&once), once);
    assert_eq!(once.matches("tool_calls").count(), 1);
}

#[test]
fn other_writings_of_a_ledger_are_read_and_edited() {
    edited("---\ntool_calls: []\n---\n");
    edited("---\n{a: 1, tool_calls: []}\n---\n");
    edited(
        "---\n\"tool_calls\":\n- {block: a, ordinal: 0, tool: t, call_id: c, status: failed, started: s}\n---\n",
    );
    edited("---\ntool_calls: null\n---\n");
    edited("---\n---\nbody");
    edited("---\n# only a comment\n---\nbody");
}

#[test]
fn a_front_matter_that_cannot_be_read_is_refused() {
    let bomb = format!(
        "---\na0: &a0 [x, x, x, x, x, x, x, x, x]\n{}---\n",
        (1..12)
            .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")))
            .collect::<String>()
    );
    let deep = format!("---\na: {}\n---\n", "[".repeat(10_000));
    let long = format!("---\na: {}\n---\n", "x".repeat(MAX_FRONT_MATTER_BYTES));
    for text in [
        "---\na: [\n---\n",
        "---\ntext\n---\n",
        "---\n- a\n---\n",
        "---\na: 1\na: 2\n---\n",
        &*bomb,
        &*deep,
        &*long,
    ] {
        assert!(FrontMatter::read(text).is_err(), "{}", &text[..text.len().min(80)]);
    }
}

#[test]
fn a_ledger_that_cannot_be_read_is_never_taken_as_empty() {
    for value in [
        "text",
        "{a: 1}",
        "[1]",
        "[{block: a}]",
        "[{block: a, ordinal: -1, tool: t, call_id: c, status: success, started: s}]",
        "[{block: a, ordinal: 0, tool: t, call_id: c, status: done, started: s}]",
        "[{block: a, ordinal: 0, tool: t, call_id: c, status: success, started: s, more: 1}]",
        "[{block: a, ordinal: 0, tool: t, call_id: c, status: success, started: s}, {block: a, ordinal: 0, tool: t, call_id: c, status: failed, started: s}]",
    ] {
        let text = format!("---\ntool_calls: {value}\n---\n");
        let front_matter = FrontMatter::read(&text).expect("YAML");
        assert!(front_matter.ledger().is_err(), "{value}");
    }
}

#[test]
fn the_longest_ledger_of_small_rows_still_fits() {
    let mut text = "---\nid: 1\n---\nbody\n".to_owned();
    for number in 0..crate::limits::MAX_CALLS_PER_FILE {
        let front_matter = FrontMatter::read(&text).expect("reads");
        let key = CallKey { block: format!("{number:064}"), ordinal: 0 };
        let mut row = LedgerRow::pending(&key, "send_notification", "2026-01-31T10:00:00Z".to_owned());
        row.call_id = format!("call_{number:032}");
        row.ended = Some("2026-01-31T10:00:00Z".to_owned());
        row.code = Some("approval_unavailable".to_owned());
        row.labels.insert("web".to_owned());
        let ledger = front_matter.ledger().expect("a ledger").with(row).expect("fits");
        text = front_matter.with_ledger(&text, &ledger).expect("edits");
    }
}

proptest::proptest! {
    #[test]
    fn an_edit_changes_no_other_key_or_is_refused(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 0..10), body in "[a-z`\\-\n]{0,40}"
    ) {
        let text = format!("---\n{}---\n{body}", lines.concat());
        let Ok(before) = FrontMatter::read(&text) else { return Ok(()) };
        let Ok(ledger) = before.ledger() else { return Ok(()) };
        let ledger = ledger.with(row("abc")).expect("fits");
        if let Ok(written) = before.with_ledger(&text, &ledger) {
            let after = FrontMatter::read(&written).expect("reads");
            let mut values = after.values.clone();
            values.remove(LEDGER_KEY);
            let mut expected = before.values.clone();
            expected.remove(LEDGER_KEY);
            proptest::prop_assert_eq!(values, expected);
            proptest::prop_assert_eq!(&written[after.body..], &text[before.body..]);
        }
    }
}

const LINES: &[&str] = &[
    "a: 1\n",
    "b: 'x'\n",
    "c: \"y # z\"\n",
    "# comment\n",
    "\n",
    "d:\n",
    "  - 1\n",
    "  e: 2\n",
    "f: |\n",
    "  tool_calls:\n",
    "tool_calls: []\n",
    "tool_calls:\n",
    "- x\n",
    "g: >-\n",
    "  more\n",
    "h: &h {i: 1}\n",
    "j: *h\n",
    "k: !t 5\n",
    "{l: 1}\n",
    "? m\n",
    ": n\n",
    "o: \"p\n",
    "  q\"\n",
    "r: [1,\n",
    "  2]\n",
    "\t\n",
    "s: 2026-01-31\n",
    "...\n",
    "%YAML 1.2\n",
];
