//! Specification 004: its trait equals ours, and its `file_read` is a tool.

use std::time::Duration;

use portcullis_tools::audit::{Confinement, Outcome, RowEvent};
use portcullis_types::{
    async_trait, FunctionDecl, JsonSchema, JsonSchemaType, SafetyTier, Tool, ToolError, ToolErrorKind,
};
use serde_json::json;

use crate::support::Stage;

/// The shapes as the specification states them.
#[expect(dead_code, unreachable_pub, reason = "only compared with our types")]
mod stated {
    use std::{collections::BTreeMap, time::Duration};

    use portcullis_types::{async_trait, FunctionDecl, ToolError};

    example!("004_trait.rs");
    example!("004_tier.rs");

    pub(super) mod schema {
        // The specification does not state this type, so it is ours.
        use portcullis_types::JsonSchema;

        use super::BTreeMap;

        example!("004_schema.rs");
    }
}

/// The example, with a body supplied.
mod example {
    use portcullis_sdk::tool;

    example!("004_file_read.rs");

    async fn supplied_body(path: String) -> String {
        format!("contents of {path}")
    }

    pub(super) fn tool() -> impl portcullis_types::Tool {
        file_read_tool()
    }
}

/// Adapts a tool of the stated trait to our trait: each method has the same signature.
struct AsOurs<T>(T);

#[async_trait]
impl<T: stated::Tool> Tool for AsOurs<T> {
    fn schema(&self) -> FunctionDecl {
        self.0.schema()
    }
    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        self.0.execute(args).await
    }
    fn timeout(&self) -> Duration {
        self.0.timeout()
    }
    fn safety_tier(&self) -> SafetyTier {
        match self.0.safety_tier() {
            stated::SafetyTier::ReadOnly => SafetyTier::ReadOnly,
            stated::SafetyTier::SideEffecting => SafetyTier::SideEffecting,
            stated::SafetyTier::Privileged => SafetyTier::Privileged,
        }
    }
}

/// Adapts a tool of our trait to the stated trait.
struct AsStated<T>(T);

#[async_trait]
impl<T: Tool> stated::Tool for AsStated<T> {
    fn schema(&self) -> FunctionDecl {
        self.0.schema()
    }
    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        self.0.execute(args).await
    }
    fn timeout(&self) -> Duration {
        self.0.timeout()
    }
    fn safety_tier(&self) -> stated::SafetyTier {
        match self.0.safety_tier() {
            SafetyTier::ReadOnly => stated::SafetyTier::ReadOnly,
            SafetyTier::SideEffecting => stated::SafetyTier::SideEffecting,
            SafetyTier::Privileged => stated::SafetyTier::Privileged,
        }
    }
}

fn declaration(stated: stated::schema::FunctionDecl) -> FunctionDecl {
    let stated::schema::FunctionDecl { name, description, parameters } = stated;
    FunctionDecl { name, description, parameters }
}

fn schema(stated: stated::schema::JsonSchemaType) -> JsonSchemaType {
    use stated::schema::JsonSchemaType as Stated;
    match stated {
        Stated::Object { properties, required } => JsonSchemaType::Object { properties, required },
        Stated::String { enum_values, description } => JsonSchemaType::String { enum_values, description },
        Stated::Integer { description } => JsonSchemaType::Integer { description },
        Stated::Number { description } => JsonSchemaType::Number { description },
        Stated::Boolean { description } => JsonSchemaType::Boolean { description },
        Stated::Array { items, description } => JsonSchemaType::Array { items, description },
    }
}

#[test]
fn the_example_declares_what_the_specification_says() {
    let path = stated::schema::JsonSchemaType::String { enum_values: None, description: None };
    let parameters = stated::schema::JsonSchemaType::Object {
        properties: [("path".to_owned(), JsonSchema::from(schema(path)))].into(),
        required: vec!["path".to_owned()],
    };
    let expected = declaration(stated::schema::FunctionDecl {
        name: "file_read".to_owned(),
        description: Some("Reads the contents of a file at the given path.".to_owned()),
        parameters: schema(parameters).into(),
    });
    assert_eq!(example::tool().schema(), expected);
}

#[tokio::test]
async fn the_example_runs_through_the_pipeline() {
    // Check the tool directly, and converted to the stated interface and back.
    check_calls(Stage::with_fixture(fixture_with_tool_enabled(), example::tool())).await;
    check_calls(Stage::with_fixture(fixture_with_tool_enabled(), AsOurs(AsStated(example::tool())))).await;
}

/// Creates a fixture whose policy enables the tool in the shipped policy's entry of this name.
fn fixture_with_tool_enabled() -> portcullis_testing::Fixture {
    portcullis_testing::Fixture::new()
        .with_policy_edit("[tools.file_read]", "[tools.file_read]\nenabled = true")
}

async fn check_calls(stage: Stage) {
    let result = stage.call("file_read", json!({"path": "notes.md"})).await;
    assert_eq!(result.model_text(), "contents of notes.md");
    let result = stage.call("file_read", json!({})).await;
    assert_eq!(
        result.model_text(),
        "Tool execution failed: missing required field 'path' in arguments",
        "as the specification prints it"
    );
    let rows = stage.fixture.rows();
    let outcomes: Vec<_> = rows.iter().map(|row| (row.event, row.outcome)).collect();
    assert_eq!(
        outcomes,
        [
            (RowEvent::Begin, None),
            (RowEvent::End, Some(Outcome::Ok)),
            (RowEvent::End, Some(Outcome::Error(ToolErrorKind::InvalidArguments)))
        ]
    );
    assert!(rows.iter().all(|row| row.confinement == Some(Confinement::Native)), "{rows:?}");
}
