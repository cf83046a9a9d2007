//! Tests of the accumulator.

use portcullis_types::{FunctionDecl, JsonSchema, ToolErrorKind};
use proptest::prelude::*;

use super::*;

fn offer(name: &str, tier: Option<SafetyTier>) -> OfferedTool {
    let decl = FunctionDecl { name: name.into(), description: None, parameters: JsonSchema::empty_object() };
    OfferedTool { decl, label: None, tier }
}

fn offers() -> Vec<OfferedTool> {
    vec![
        offer("read", Some(SafetyTier::ReadOnly)),
        offer("write", Some(SafetyTier::SideEffecting)),
        offer("plain", None),
        offer("tut", None),
        offer("tuttut", None),
    ]
}

/// Creates a piece from index, id, name and arguments. An empty string means none.
fn piece(index: u64, id: &str, name: &str, arguments: &str) -> ToolCallDelta {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ToolCallDelta { index, id: some(id), name: some(name), arguments: some(arguments) }
}

fn assembled(pieces: impl IntoIterator<Item = ToolCallDelta>, stop: &StopReason) -> Vec<AssembledCall> {
    let mut accumulator = ToolCallAccumulator::new();
    for piece in pieces {
        accumulator.push(piece).expect("not too many");
    }
    accumulator.finish(stop, &offers())
}

/// Describes the calls as `id name arguments`, followed by the error's kind if the call must not run.
fn describe_calls(calls: &[AssembledCall]) -> Vec<String> {
    let show = |AssembledCall { call, refused }: &AssembledCall| {
        let refused = refused.as_ref().map_or(String::new(), |error| format!(" {}", error.kind()));
        format!("{} {} {}{refused}", call.id, call.tool, call.arguments)
    };
    calls.iter().map(show).collect()
}

#[track_caller]
fn check(pieces: impl IntoIterator<Item = ToolCallDelta>, stop: &StopReason, expected: &[&str]) {
    assert_eq!(describe_calls(&assembled(pieces, stop)), expected);
}

#[test]
fn pieces_of_several_calls_may_be_mixed_and_leave_gaps() {
    let pieces = [
        piece(7, "b", "wr", ""),
        piece(2, "a", "read", "{\"p\":"),
        piece(7, "", "ite", "{}"),
        piece(2, "", "", "1}"),
    ];
    check(pieces, &StopReason::ToolCalls, &["a read {\"p\":1}", "b write {}"]);
}

#[test]
fn an_id_may_come_late_or_again() {
    let pieces = [piece(0, "", "read", "{"), piece(0, "a", "", "}"), piece(0, "a", "", "")];
    check(pieces, &StopReason::ToolCalls, &["a read {}"]);
    // A new id with every piece, without a name, starts no new call.
    let pieces = [piece(0, "a", "read", "{"), piece(0, "z", "", "}"), piece(0, "y", "", "")];
    check(pieces, &StopReason::ToolCalls, &["a read {}"]);
}

#[test]
fn a_call_without_an_id_gets_a_random_one() {
    let calls = assembled([piece(0, "", "read", "{}"), piece(1, "", "read", "{}")], &StopReason::ToolCalls);
    assert!(calls.iter().all(|call| call.call.id.starts_with("call_") && call.refused.is_none()));
    assert_ne!(calls[0].call.id, calls[1].call.id);
}

#[test]
fn an_id_that_comes_twice_is_used_once() {
    let calls = assembled([piece(0, "a", "read", "{}"), piece(1, "a", "read", "{}")], &StopReason::ToolCalls);
    assert_eq!(calls[0].call.id, "a");
    assert_ne!(calls[1].call.id, "a");
    assert!(calls.iter().all(|call| call.refused.is_none()));
}

#[test]
fn a_new_id_with_a_name_under_the_same_index_is_the_next_call() {
    let pieces = [piece(0, "a", "read", "{}"), piece(0, "b", "write", ""), piece(0, "", "", "{\"x\":1}")];
    check(pieces, &StopReason::ToolCalls, &["a read {}", "b write {\"x\":1}"]);
    // A new id starts no call while the arguments are incomplete.
    let pieces = [piece(0, "a", "read", "{\"p\":"), piece(0, "b", "read", "1}")];
    check(pieces, &StopReason::ToolCalls, &["a readread {\"p\":1}"].map(|_| "a read {\"p\":1}"));
}

#[test]
fn a_name_may_come_in_pieces_or_whole_again_and_again() {
    check([piece(0, "a", "re", ""), piece(0, "", "ad", "")], &StopReason::Stop, &["a read {}"]);
    check((0..100).map(|_| piece(0, "a", "read", " ")), &StopReason::Stop, &["a read {}"]);
    // Equal pieces are not a repetition if their concatenation names a tool.
    check([piece(0, "a", "tut", ""), piece(0, "", "tut", "")], &StopReason::Stop, &["a tuttut {}"]);
    check([piece(0, "a", "no", ""), piece(0, "", "no", "")], &StopReason::Stop, &["a nono {}"]);
}

#[test]
fn arguments_may_be_cut_anywhere() {
    let text = r#"{"a":"\ud83d\ude00 \" \\ ü😀","b":[1,{"c":null}]}"#;
    for (position, _) in text.char_indices() {
        let (first, second) = text.split_at(position);
        let pieces = [piece(0, "a", "plain", first), piece(0, "", "", second)];
        check(pieces, &StopReason::ToolCalls, &[&format!("a plain {text}")]);
    }
}

#[test]
fn missing_arguments_mean_an_empty_object_in_whole_answers_only() {
    check([piece(0, "a", "read", "")], &StopReason::ToolCalls, &["a read {}"]);
    check([piece(0, "a", "read", " \n")], &StopReason::Stop, &["a read {}"]);
    check([piece(0, "a", "read", "")], &StopReason::Length, &["a read  resource_limit"]);
    let unknown = StopReason::Other("because".into());
    check([piece(0, "a", "read", "")], &unknown, &["a read  resource_limit"]);
    check([piece(0, "a", "read", "{}")], &unknown, &["a read {}"]);
}

#[test]
fn no_call_of_an_answer_that_was_cut_off_runs() {
    for stop in [StopReason::Length, StopReason::ContentFilter] {
        let pieces = [piece(0, "a", "read", "{}"), piece(1, "b", "write", "{\"p")];
        let calls = assembled(pieces, &stop);
        assert!(
            calls.iter().all(|call| call.refused.as_ref().is_some_and(|error| error.code() == "cut_off"))
        );
    }
}

#[test]
fn objects_after_each_other_are_calls_of_a_tool_that_only_reads() {
    let calls = assembled([piece(0, "a", "read", r#"{"p":1}{"p":2}"#)], &StopReason::ToolCalls);
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[0].call.id.as_str(), calls[0].call.arguments.as_str()), ("a", r#"{"p":1}"#));
    assert_eq!(calls[1].call.arguments, r#"{"p":2}"#);
    assert_ne!(calls[1].call.id, "a");
    assert!(calls.iter().all(|call| call.refused.is_none()));
}

#[test]
fn objects_after_each_other_are_an_error_of_any_other_tool() {
    for tool in ["write", "plain", "unknown"] {
        let calls = assembled([piece(0, "a", tool, r#"{"p":1}{"p":2}"#)], &StopReason::ToolCalls);
        assert_eq!(calls.len(), 1, "{tool}");
        let error = calls[0].refused.as_ref().expect("refused");
        assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    }
    // Text that is not a sequence of objects is left to the executor to refuse.
    check([piece(0, "a", "write", "{}x")], &StopReason::ToolCalls, &["a write {}x"]);
}

#[test]
fn a_call_without_a_name_or_with_an_endless_one_does_not_run() {
    check([piece(0, "a", "", "{}")], &StopReason::ToolCalls, &["a  {} invalid_arguments"]);
    let longest = "x".repeat(MAX_CALLED_NAME_BYTES);
    check([piece(0, "a", &longest, "")], &StopReason::ToolCalls, &[&format!("a {longest} {{}}")]);
    let calls = assembled([piece(0, "a", &format!("{longest}x"), "{}")], &StopReason::ToolCalls);
    assert_eq!(calls[0].refused.as_ref().map(ToolError::kind), Some(ToolErrorKind::NotFound));
    let pieces = (0..10_000).map(|nth| piece(0, "a", &nth.to_string(), ""));
    let calls = assembled(pieces, &StopReason::ToolCalls);
    assert!(calls[0].call.tool.len() <= MAX_CALLED_NAME_BYTES);
    assert_eq!(calls[0].refused.as_ref().map(ToolError::kind), Some(ToolErrorKind::NotFound));
}

#[test]
fn calls_beyond_the_limit_of_an_answer_are_refused() {
    let pieces = (0..10_000).map(|nth| piece(nth, &format!("c{nth}"), "read", "{}"));
    let calls = assembled(pieces, &StopReason::ToolCalls);
    assert_eq!(calls.len(), 10_000);
    for (nth, call) in calls.iter().enumerate() {
        assert_eq!(call.call.id, format!("c{nth}"));
        let kind = call.refused.as_ref().map(ToolError::kind);
        assert_eq!(kind, (nth >= MAX_CALLS_PER_TURN).then_some(ToolErrorKind::ResourceLimit), "{nth}");
    }
}

#[test]
fn objects_taken_apart_count_as_calls() {
    let text = "{}".repeat(MAX_CALLS_PER_TURN + 1);
    let calls = assembled([piece(0, "a", "read", &text)], &StopReason::ToolCalls);
    assert_eq!(calls.iter().filter(|call| call.refused.is_none()).count(), MAX_CALLS_PER_TURN);
    let text = "{}".repeat(MAX_LISTED_CALLS + 1);
    let calls = assembled([piece(0, "a", "read", &text)], &StopReason::ToolCalls);
    assert_eq!(calls.len(), 1);
    assert!(calls[0].refused.is_some());
}

#[test]
fn a_response_with_too_many_calls_is_stopped() {
    let mut accumulator = ToolCallAccumulator::new();
    for nth in 0..MAX_LISTED_CALLS {
        accumulator.push(piece(nth as u64, "", "read", "{}")).expect("room");
    }
    assert_eq!(accumulator.push(piece(u64::MAX, "", "read", "")), Err(TooManyCalls));
    // A further piece of a known call is not a further call.
    assert!(accumulator.push(piece(0, "", "", "")).is_ok());
}

#[test]
fn oversized_arguments_are_dropped_whole() {
    let largest = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_CALL_ARGUMENT_BYTES - 8));
    assert_eq!(largest.len(), MAX_CALL_ARGUMENT_BYTES);
    let calls = assembled([piece(0, "a", "read", &largest)], &StopReason::ToolCalls);
    assert!(calls[0].refused.is_none());
    let calls = assembled([piece(0, "a", "read", &largest), piece(0, "", "", " ")], &StopReason::ToolCalls);
    assert_eq!(calls[0].refused.as_ref().map(ToolError::kind), Some(ToolErrorKind::ResourceLimit));
    assert_eq!(calls[0].call.arguments, "");
}

#[test]
fn a_hundred_megabytes_of_arguments_are_not_kept() {
    let megabyte = "x".repeat(1 << 20);
    // All pieces belong to one call.
    let mut accumulator = ToolCallAccumulator::new();
    for _ in 0..100 {
        accumulator.push(piece(0, "a", "read", &megabyte)).expect("one call");
    }
    assert!(accumulator.calls[0].arguments.text.capacity() <= 1 << 20);
    // The pieces are spread over a hundred calls.
    let mut accumulator = ToolCallAccumulator::new();
    for nth in 0..100 {
        accumulator.push(piece(nth, "", "read", &megabyte)).expect("a hundred calls");
    }
    let buffer_bytes: usize = accumulator.calls.iter().map(|call| call.arguments.text.capacity()).sum();
    assert_eq!(buffer_bytes, MAX_TURN_ARGUMENT_BYTES);
    let calls = accumulator.finish(&StopReason::ToolCalls, &offers());
    let refused = calls.iter().filter(|call| call.refused.is_some()).count();
    assert_eq!(refused, 100 - MAX_TURN_ARGUMENT_BYTES / (1 << 20));
}

#[test]
fn watchers_read_all_arguments_once_the_id_is_known() {
    let mut accumulator = ToolCallAccumulator::new();
    assert_eq!(accumulator.push(piece(0, "", "read", "{\"a")), Ok(None));
    let reported = accumulator.push(piece(0, "a", "", "\":1")).expect("one call").expect("known now");
    assert_eq!((reported.call_id.as_str(), reported.delta.as_str()), ("a", "{\"a\":1"));
    let reported = accumulator.push(piece(0, "", "", "}")).expect("one call").expect("more");
    assert_eq!(reported.delta, "}");
    assert_eq!(accumulator.push(piece(0, "a", "", "")), Ok(None));
}

/// A call of a valid answer. Its texts are split at arbitrary positions.
#[derive(Debug, Clone)]
struct SplitCall {
    name: Vec<String>,
    arguments: Vec<String>,
    /// The piece before which the id is first sent, and whether the id is repeated.
    id_at: prop::sample::Index,
    again: bool,
}

fn cut(text: &'static str) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..6).prop_map(move |cuts| {
        let starts: Vec<usize> =
            text.char_indices().map(|(position, _)| position).chain([text.len()]).collect();
        let mut positions: Vec<usize> = cuts.iter().map(|cut| starts[cut.index(starts.len())]).collect();
        positions.extend([0, text.len()]);
        positions.sort_unstable();
        positions.windows(2).map(|pair| text[pair[0]..pair[1]].to_owned()).collect()
    })
}

fn call() -> impl Strategy<Value = SplitCall> {
    let name = prop::sample::select(vec!["read", "write", "plain", "tuttut", "unknown"]);
    let arguments = prop::sample::select(vec![
        "",
        "{}",
        r#"{"path":"/a/\ud83d\ude00","text":"ünïcode 😀 \\\" }{"}"#,
        r#" { "deep" : [ { "a" : { "b" : [ 1, 2.5e3, null, "x" ] } } ] } "#,
        r#"{"not":"whole"#,
    ]);
    (name.prop_flat_map(cut), arguments.prop_flat_map(cut), any::<prop::sample::Index>(), any::<bool>())
        .prop_map(|(name, arguments, id_at, again)| SplitCall { name, arguments, id_at, again })
}

/// Returns the pieces of a call, in order.
fn pieces(nth: usize, call: &SplitCall) -> Vec<ToolCallDelta> {
    let id = format!("id{nth}");
    // Indices leave gaps.
    let index = (nth as u64) * 3 + 1;
    let mut pieces: Vec<ToolCallDelta> = call.name.iter().map(|name| piece(index, "", name, "")).collect();
    pieces.extend(call.arguments.iter().map(|arguments| piece(index, "", "", arguments)));
    let position = call.id_at.index(pieces.len());
    pieces[position].id = Some(id.clone());
    if call.again {
        for piece in &mut pieces[position..] {
            piece.id = Some(id.clone());
        }
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_any_answer_gives_the_same_calls(
        calls in prop::collection::vec(call(), 1..6),
        order in prop::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let whole: Vec<ToolCallDelta> = calls
            .iter()
            .enumerate()
            .map(|(nth, call)| {
                piece(nth as u64 * 3 + 1, &format!("id{nth}"), &call.name.concat(), &call.arguments.concat())
            })
            .collect();
        // Interleave the pieces of all calls; the order within each call is kept.
        let mut queues: Vec<_> =
            calls.iter().enumerate().map(|(nth, call)| pieces(nth, call).into_iter()).collect();
        let mut mixed = Vec::new();
        let mut order = order.iter().cycle();
        while !queues.is_empty() {
            let position = order.next().expect("endless").index(queues.len());
            match queues[position].next() {
                Some(piece) => mixed.push(piece),
                None => drop(queues.remove(position)),
            }
        }
        for stop in [StopReason::ToolCalls, StopReason::Stop, StopReason::Length] {
            prop_assert_eq!(assembled(mixed.clone(), &stop), assembled(whole.clone(), &stop));
        }
    }
}
