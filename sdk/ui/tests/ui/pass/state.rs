//! States, under any path and beside other parameters. They are not arguments.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use portcullis_sdk::{DeclaredTool as _, State, StateType, Tool, ToolContext, testing, tool};

#[derive(Default)]
struct Counter(AtomicI64);

/// Counts.
#[tool(tier = ReadOnly, deny_unknown)]
async fn add(
    count: &State<Counter>,
    /// How much.
    n: i64,
    ctx: &ToolContext,
    names: &portcullis_sdk::State<Arc<Vec<String>>>,
) -> String {
    let sum = count.0.fetch_add(n, Ordering::Relaxed) + n;
    format!("{} {} {sum}", names[0], ctx.tool_name)
}

/// Counts on one thread.
#[tool(tier = ReadOnly, local)]
async fn add_locally(count: &State<Counter>) -> i64 {
    let one = std::rc::Rc::new(1);
    count.0.fetch_add(*one, Ordering::Relaxed)
}

/// A type that happens to be named `State` is an argument.
mod other {
    #[portcullis_sdk::args]
    #[derive(Debug)]
    pub enum State {
        On,
        Off,
    }

    /// Switches.
    #[portcullis_sdk::tool(tier = ReadOnly)]
    pub async fn switch(state: State) -> String {
        format!("{state:?}")
    }
}

fn main() {
    let tool = add_tool();
    let schema = tool.schema();
    let properties = schema.parameters.as_value()["properties"].as_object().expect("an object");
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["n"]);
    assert_eq!(Tool::states(&tool), [StateType::of::<Counter>(), StateType::of::<Arc<Vec<String>>>()]);
    assert_eq!(Tool::states(&other::switch_tool()), []);

    let missing = testing::call(&tool, r#"{"n": 1}"#).expect_err("no state");
    assert_eq!(missing.kind(), portcullis_sdk::ToolErrorKind::Internal);

    let mut ctx = ToolContext::detached(tool.spec().name);
    ctx.extensions.insert(State::new(Counter::default()));
    ctx.extensions.insert(State::new(Arc::new(vec!["Ada".to_owned()])));
    for expected in ["Ada add 2", "Ada add 4"] {
        let output = testing::call_in(&ctx, &tool, r#"{"n": 2}"#).expect("counts");
        assert_eq!(output.joined_text(), expected);
    }
    testing::call_in(&ctx, &add_locally_tool(), "{}").expect("counts");
    let switched = testing::call(&other::switch_tool(), r#"{"state": "Off"}"#).expect("decodes");
    assert_eq!(switched.joined_text(), "Off");
}
