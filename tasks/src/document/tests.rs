//! Tests of task documents: keys, lines, limits, and what an edit preserves.

use super::*;

const CALL: &str = "```json\n{\"tool_call\": {\"name\": \"echo\", \"parameters\": {}}}\n```\n";

fn parse(text: &str) -> TaskDocument {
    TaskDocument::parse(text.to_owned()).expect("a task file")
}

#[test]
fn equal_blocks_have_ordinals_and_keys_ignore_other_text() {
    let keys = |text: &str| parse(text).calls().map(|block| block.key.clone()).collect::<Vec<_>>();
    let twice = keys(&format!("{CALL}\n{CALL}"));
    assert_eq!(twice[0].block, twice[1].block);
    assert_eq!((twice[0].ordinal, twice[1].ordinal), (0, 1));
    let moved = keys(&format!("# new\n\n> {}\n\n{CALL}", CALL.trim_end().replace('\n', "\n> ")));
    assert_eq!(moved, twice);
    assert_eq!(keys(&CALL.replace('\n', "\r\n")), twice[..1]);
}

#[test]
fn lines_are_counted_from_the_start_of_the_file() {
    let document = parse(&format!("---\na: 1\n---\ntext\n{CALL}{CALL}"));
    assert_eq!(document.calls().map(|block| block.line).collect::<Vec<_>>(), [5, 8]);
}

#[test]
fn too_many_calls_are_refused_before_any_of_them_runs() {
    let many = CALL.repeat(10_000);
    let refused = TaskDocument::parse(many);
    assert!(matches!(refused, Err(FileError::TooManyCalls { found: 10_000 })), "{refused:?}");
    let data = "```json\n{\"a\": 1}\n```\n".repeat(10_000);
    assert_eq!(parse(&format!("{data}{CALL}")).calls().count(), 1);
}

#[test]
fn a_result_without_room_is_omitted_and_its_row_stays() {
    let filler = "x".repeat(MAX_FILE_BYTES - 10_000);
    let document = parse(&format!("{CALL}{filler}\n"));
    let key = document.calls().next().expect("a call").key.clone();
    let row = LedgerRow::pending(&key, "echo", "2026-01-31T10:00:00Z".to_owned());
    let text = document.with_result(row, &format!("\"{}\"", "y".repeat(20_000))).expect("the row fits");
    assert!(text.len() <= MAX_FILE_BYTES && !text.contains("tool-result"));
    assert_eq!(parse(&text).ledger().rows().len(), 1);
}

#[test]
fn rows_and_results_leave_the_calls_as_they_are() {
    let mut text =
        format!("---\nid: 1\n---\n{CALL}\n> - a\n>\n>   {}\n{CALL}", CALL.trim_end().replace('\n', "\n>   "));
    let keys: Vec<CallKey> = parse(&text).calls().map(|block| block.key.clone()).collect();
    assert_eq!(keys.len(), 3);
    for key in keys.iter().rev() {
        let row = LedgerRow::pending(key, "echo", "2026-01-31T10:00:00Z".to_owned());
        text = parse(&text).with_result(row, "\"```json\"").expect("writes");
        assert_eq!(parse(&text).calls().map(|block| block.key.clone()).collect::<Vec<_>>(), keys);
    }
    assert_eq!(text.matches("````tool-result").count(), 3);
}
