//! [`Tool`]: a typed function behind an interface with JSON on both sides.

use std::{any::Any, fmt::Display, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use thiserror::Error;

/// The result of a call as JSON text, which can be submitted more than once.
pub(crate) type ResultText = Box<RawValue>;

/// The reason why a call failed. The agent reads its text.
#[derive(Debug, Error)]
enum CallFailure {
    #[error("the arguments do not fit the tool: {0}")]
    Arguments(serde_json::Error),
    /// The function failed with this text.
    #[error("{0}")]
    Function(String),
    #[error("the result cannot be written as JSON: {0}")]
    Result(serde_json::Error),
}

type ErasedFunction = dyn Fn(Value) -> BoxFuture<'static, Result<ResultText, CallFailure>> + Send + Sync;

/// A function for the calls of one tool.
#[derive(Clone)]
pub(crate) struct Tool(Arc<ErasedFunction>);

impl Tool {
    pub(crate) fn new<T, R, E, F, Fut>(function: F) -> Self
    where
        T: DeserializeOwned,
        R: Serialize,
        E: Display,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let function = Arc::new(function);
        Self(Arc::new(move |args| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let args = serde_json::from_value(args).map_err(CallFailure::Arguments)?;
                let result =
                    function(args).await.map_err(|error| CallFailure::Function(error.to_string()))?;
                to_raw_value(&result).map_err(CallFailure::Result)
            })
        }))
    }

    /// Returns the result of a call with these arguments. An error or a panic becomes `{"error": "…"}`, which
    /// the agent reads.
    pub(crate) async fn call(&self, args: Value) -> ResultText {
        // The inner async block turns a panic while the future is created into a panic of the future.
        let call = AssertUnwindSafe(async { (self.0)(args).await });
        match call.catch_unwind().await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => failure(&error.to_string()),
            Err(panic) => {
                tracing::error!(panic = panic_text(&*panic), "a tool panicked");
                failure("the tool failed because of an internal error")
            }
        }
    }
}

/// Returns the result of a failed call.
pub(crate) fn failure(error: &str) -> ResultText {
    let result = to_raw_value(&serde_json::json!({ "error": error }));
    result.expect("an object with a text is JSON")
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&str>() {
        Some(text) => text,
        None => panic.downcast_ref::<String>().map_or("", String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future, io};

    use serde_json::json;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Query {
        query: String,
    }

    async fn check(tool: &Tool, args: Value, expected: &str) {
        assert_eq!(tool.call(args).await.get(), expected);
    }

    #[tokio::test]
    async fn a_function_takes_and_returns_its_own_types() {
        let tool = Tool::new(async |args: Query| Ok::<_, Infallible>(vec![args.query.len()]));
        check(&tool, json!({"query": "abc", "more": 1}), "[3]").await;
        let state = Arc::new("state".to_owned());
        let tool = Tool::new(move |(): ()| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(state.len()) }
        });
        check(&tool, Value::Null, "5").await;
    }

    #[tokio::test]
    async fn a_failure_is_a_result() {
        let tool = Tool::new(async |_args: Query| Err::<(), _>(io::Error::other("it \"broke\"")));
        check(&tool, json!({"query": ""}), r#"{"error":"it \"broke\""}"#).await;
        let missing = r#"{"error":"the arguments do not fit the tool: missing field `query`"}"#;
        check(&tool, json!({}), missing).await;
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        let tool = Tool::new(move |(): ()| {
            let keys = keys.clone();
            async move { Ok::<_, Infallible>(keys) }
        });
        let text = r#"{"error":"the result cannot be written as JSON: key must be a string"}"#;
        check(&tool, Value::Null, text).await;
    }

    #[tokio::test]
    async fn a_panic_is_a_result_that_does_not_tell_its_text() {
        let text = r#"{"error":"the tool failed because of an internal error"}"#;
        let tool = Tool::new(async |(): ()| -> Result<(), Infallible> { panic!("secret") });
        check(&tool, Value::Null, text).await;
        let early = |(): ()| -> future::Ready<Result<(), Infallible>> { panic!("{}", "before the future") };
        check(&Tool::new(early), Value::Null, text).await;
    }
}
