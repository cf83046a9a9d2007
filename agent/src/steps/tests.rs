//! The steps of a run, each taken by a driver that knows only the stored state and the stored conversation.

use std::num::NonZeroU32;

use super::*;
use crate::{
    AgentConfig, Delta, Usage,
    testing::{self, TestAgent, ask_for, text_answer},
};

/// Takes the steps of a run, each with a new driver and a state that was encoded and decoded. Returns the
/// last state, and the names of the steps in order.
async fn relayed(stage: &TestAgent) -> (RunState, Vec<String>) {
    let mut text = serde_json::to_string(&RunState::new(Message::user("go"))).expect("encodes");
    let mut step_names = Vec::new();
    loop {
        let mut state: RunState = serde_json::from_str(&text).expect("decodes");
        assert_eq!(serde_json::to_string(&state).expect("encodes"), text);
        let name = serde_json::to_value(&state.next).expect("encodes")["type"]
            .as_str()
            .expect("the value is a JSON string")
            .to_owned();
        step_names.push(name);
        if matches!(state.next, RunStep::Ended { .. }) {
            return (state, step_names);
        }
        let guard = EmbedderGuard { cancel: stage.agent.handle().token(), grace: stage.agent.config.grace };
        Steps::new(&stage.agent, guard, "run".to_owned()).take_step(&mut state).await;
        text = serde_json::to_string(&state).expect("encodes");
    }
}

/// Returns two agents with one script: one for a driver of the whole run, one for a driver of each step.
fn stages(turns: &[Vec<testing::ScriptStep>], iterations: u32) -> [TestAgent; 2] {
    let config = AgentConfig {
        run_id: Some("run".to_owned()),
        max_iterations: NonZeroU32::new(iterations).expect("not 0"),
        ..AgentConfig::new("agent")
    };
    [(); 2].map(|()| TestAgent::with_config(config.clone(), turns.to_vec()))
}

#[tokio::test(start_paused = true)]
async fn another_driver_at_each_step_gives_the_same_run() {
    let same_calls = [("", "r_echo", r#"{"a":1}"#)];
    let used = testing::ScriptStep::Delta(Delta::Usage(Usage { input_tokens: 3, output_tokens: 2 }));
    let counted = [vec![used], text_answer("the answer")].concat();
    let with_text =
        [text_answer("first")[..1].to_vec(), ask_for(&[("a", "r_sleep", "{}"), ("b", "w_fail", "{}")])]
            .concat();
    let cut_off = ask_for(&[("c", "w_echo", "{}"), ("d", "w_echo", r#"{"a"#)]);
    let scripts = [
        vec![with_text.clone(), cut_off, counted],
        // The guard against repeated calls counts across turns.
        (0..5).map(|nth| ask_for(&[(&format!("x{nth}"), same_calls[0].1, same_calls[0].2)])).collect(),
        vec![with_text.clone(), vec![testing::ScriptStep::Fail(ProviderErrorKind::Server)]],
        // The limit of turns counts across turns too.
        (0..9).map(|nth| ask_for(&[(&format!("x{nth}"), "r_echo", &format!("{{\"n\":{nth}}}"))])).collect(),
    ];
    for script in scripts {
        let [mut whole, parts] = stages(&script, 7);
        let run = whole.run().await;
        let (state, step_names) = relayed(&parts).await;
        assert_eq!(state.next, RunStep::Ended { end: run.end });
        assert_eq!((state.turns_total, state.usage), (run.iterations, run.usage));
        assert_eq!(parts.store.messages(), whole.store.messages());
        let events = whole.notes.events();
        // The loop itself reports the run's start and end.
        assert_eq!(parts.notes.events(), events[1..events.len() - 1]);
        assert_eq!(step_names.first().map(String::as_str), Some("setup"));
        let model_steps = step_names.iter().filter(|name| *name == "call_model").count();
        assert!(model_steps >= run.iterations as usize, "{step_names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_run_are_those_of_the_specification() {
    let [stage, _] = stages(&[ask_for(&[("a", "r_echo", "{}")])], 7);
    let (_, step_names) = relayed(&stage).await;
    assert_eq!(step_names, ["setup", "call_model", "run_tools", "call_model", "finalize", "over"]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_message_continues_with_a_new_limit_of_turns() {
    let turns: Vec<_> =
        (0..2).map(|nth| ask_for(&[(&format!("x{nth}"), "r_echo", &format!("{{\"n\":{nth}}}"))])).collect();
    let [stage, _] =
        stages(&[turns.clone(), vec![text_answer("one")], turns, vec![text_answer("two")]].concat(), 3);
    stage.agent.handle().follow_up("and then?").expect("room");
    let (state, _) = relayed(&stage).await;
    assert_eq!(state.next, RunStep::Ended { end: AgentEnd::Answer { text: "two".into() } });
    assert_eq!((state.turns_total, state.turns_for_prompt), (6, 3));
}
