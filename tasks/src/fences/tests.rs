//! Tests of fenced blocks: which of them may be calls, and where they end.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = fences(text)
        .into_iter()
        .filter(|fence| fence.is_json() && fence.is_closed)
        .map(|fence| fence.code)
        .collect();
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn only_three_backticks_and_the_exact_info_string_count() {
    check("```json\n{}\n```\n", &["{}\n"]);
    check("``` json \t\n{}\n```", &["{}\n"]);
    check("   ```json\n   {}\n   ```", &["{}\n"]);
    check("```json\n{}\n`````\n", &["{}\n"]);
    for text in [
        "```js\n{}\n```",
        "```\n{}\n```",
        "```JSON\n{}\n```",
        "```json5\n{}\n```",
        "```json title=x\n{}\n```",
        "```{json}\n{}\n```",
        "```jso&#110;\n{}\n```",
        "```js\\on\n{}\n```",
        "```\u{a0}json\n{}\n```",
        "````json\n{}\n````",
        "~~~json\n{}\n~~~",
        "`json {}`",
        "``json\n{}\n``",
        "    ```json\n    {}\n    ```",
        "\t```json\n\t{}\n\t```",
        "```json`\n{}\n```",
        "\\```json\n{}\n```",
    ] {
        check(text, &[]);
    }
}

#[test]
fn a_block_inside_another_block_or_a_comment_is_text() {
    for text in [
        "````\n```json\n{}\n```\n````",
        "~~~\n```json\n{}\n```\n~~~",
        "<!--\n```json\n{}\n```\n-->",
        "<script>\n```json\n{}\n```\n</script>",
        "<div>\n```json\n{}\n```\n</div>",
        "````tool-result\n```json\n{}\n```\n````",
    ] {
        check(text, &[]);
    }
}

#[test]
fn a_block_without_closing_fence_is_not_closed() {
    for text in [
        "```json\n{}\n",
        "```json\n{}",
        "```json",
        "```json\n",
        "```json\n{}\n``",
        "```json\n{}\n~~~\n",
        "```json\n{}\n    ```\n",
        "```json\n{}\n```json\n",
        "> ```json\n> {}\n\n```\n",
        "> ```json\n> {}\ntext\n",
        "> ```json\n> {}\n> > ```",
        "- ```json\n  {}\n\ntext\n",
    ] {
        let found = fences(text);
        assert!(found.iter().any(|fence| fence.is_json()), "{text:?}");
        assert!(found.iter().all(|fence| !fence.is_json() || !fence.is_closed), "{text:?}: {found:?}");
    }
}

#[test]
fn blocks_in_quotes_and_lists_lose_the_prefix() {
    check("> ```json\n> {\n>  1}\n> ```\n", &["{\n 1}\n"]);
    check("- a\n- ```json\n  {}\n  ```\n", &["{}\n"]);
    check("1. > - ```json\n   >   {}\n   >   ```\n", &["{}\n"]);
    check("> > ```json\n> > {}\n> > ```\nx\n", &["{}\n"]);
}

#[test]
fn line_breaks_of_all_kinds_are_one() {
    check("```json\r\n{\r\n}\r\n```\r\n", &["{\n}\n"]);
    check("a\r\n> ```json\r\n> {}\r\n> ```", &["{}\n"]);
    let code = |text: &str| fences(text).remove(0).code;
    assert_eq!(code("```json\r\n{\r\n}\r\n```\r\n"), code("```json\n{\n}\n```\n"));
}

#[test]
fn an_empty_block_is_closed() {
    check("```json\n```", &[""]);
    check("```json\n\n```", &["\n"]);
}

proptest! {
    #[test]
    fn spans_lie_in_the_text_in_order_and_begin_with_a_fence(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24)
    ) {
        let text = pieces.concat();
        let mut end = 0;
        for fence in fences(&text) {
            prop_assert!(end <= fence.span.start && fence.span.end <= text.len());
            let source = &text[fence.span.clone()];
            prop_assert!(source.starts_with("```") || source.starts_with("~~~"), "{source:?}");
            prop_assert!(source.starts_with(&fence.opening));
            if fence.is_closed {
                let last = source.rsplit(['\n', '\r']).next().unwrap_or_default();
                prop_assert!(last.trim_end().ends_with(&source[..3]), "{text:?}: {fence:?}");
            }
            end = fence.span.end;
        }
    }
}

/// Pieces of Markdown that open, close and nest blocks.
pub(crate) const PIECES: &[&str] = &[
    "```json\n",
    "```\n",
    "````\n",
    "~~~\n",
    "``` json\n",
    "> ",
    ">",
    "- ",
    "1. ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\r\n",
    "\n\n",
    "{\"a\": 1}\n",
    "{}",
    "<!--",
    "-->\n",
    "<div>\n",
    "</div>\n",
    "text ",
    "`",
    "\\",
    "é",
    "\u{2028}",
    "# h\n",
    "---\n",
    "[a]: b\n",
    "* * *\n",
    "<script>\n",
    "````tool-result\n",
    "\u{b}",
    "\0",
];
