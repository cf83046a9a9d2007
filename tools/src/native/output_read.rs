//! `output_read`: pages through the complete output of a call whose result was truncated.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use portcullis_types::{
    DEFAULT_TIMEOUT, FunctionDecl, SafetyTier, Tool, ToolArgs, ToolContext, ToolError, ToolErrorCode,
    ToolErrorKind, ToolOutput, async_trait,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{declare, decode};
use crate::output_store::{DEFAULT_PAGE_BYTES, MAX_PAGE_BYTES, OutputOwner, OutputStore, ReadRefusal};

/// Returns whether the policy in force would still give a stored output's grant.
pub type IsStillGrantedFn = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Adds the labels of a stored output to the run of the reading call. An error refuses the call.
pub type AddOutputLabelsFn =
    Arc<dyn Fn(&ToolContext, &Value) -> BoxFuture<'static, Result<(), ToolError>> + Send + Sync>;

/// Reads stored outputs. A caller can read only outputs of its own agent and run, and only while the policy
/// still gives the grant that the output was made with. The text of the result is exactly the page.
#[derive(Clone)]
pub struct OutputRead {
    store: Arc<OutputStore>,
    still_granted: IsStillGrantedFn,
    follow: AddOutputLabelsFn,
}

impl OutputRead {
    /// Creates a reader of a store. `still_granted` and then `follow` are called once per call, before any
    /// output is read.
    #[must_use]
    pub fn new(store: Arc<OutputStore>, still_granted: IsStillGrantedFn, follow: AddOutputLabelsFn) -> Self {
        Self { store, still_granted, follow }
    }

    async fn page(&self, ctx: &ToolContext, args: &str) -> Result<ToolOutput, ToolError> {
        let owner = &OutputOwner { agent_id: ctx.agent_id.clone(), run_id: ctx.run_id.clone() };
        let OutputReadArguments { call_id, offset, limit } = decode(args)?;
        let output = self.store.find(&call_id, owner).map_err(refusal)?;
        if !(self.still_granted)(output.grant()) {
            return Err(ToolError::denied(
                "the policy no longer grants the access that produced this output",
            )
            .with_code(ToolErrorCode::GrantRevoked));
        }
        (self.follow)(ctx, output.grant()).await?;
        let page = output.page(offset, limit.unwrap_or(DEFAULT_PAGE_BYTES)).map_err(refusal)?;
        Ok(ToolOutput::text(page.text).with_details(json!({
            "offset": page.offset,
            "next_offset": page.next_offset,
            "total_bytes": page.total,
        })))
    }
}

impl fmt::Debug for OutputRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputRead").field("store", &self.store).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputReadArguments {
    call_id: String,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    limit: Option<u64>,
}

fn refusal(refused: ReadRefusal) -> ToolError {
    match refused {
        ReadRefusal::NotFound => ToolError::new(
            ToolErrorKind::NotFound,
            "no output is stored under this call_id: an output is stored for a limited time, and only its own run can read it",
        ),
        ReadRefusal::Store(error) => {
            let detail = match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            ToolError::internal(detail)
        }
    }
}

#[async_trait]
impl Tool for OutputRead {
    fn schema(&self) -> FunctionDecl {
        declare(
            "output_read",
            "Reads the whole output of an earlier call whose result was truncated, page by page. The next \
             page starts at `offset` + `limit`.",
            &json!({
                "call_id": {"type": "string", "description": "The id of the call that made the output."},
                "offset": {
                    "type": "integer", "minimum": 0, "default": 0,
                    "description": "Where to start, in bytes.",
                },
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": MAX_PAGE_BYTES, "default": DEFAULT_PAGE_BYTES,
                    "description": "How much to read, in bytes.",
                },
            }),
            &["call_id"],
        )
    }

    /// A detached context has no caller. No output is stored under the empty owner, so nothing is found.
    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        self.page(&ToolContext::detached("output_read"), args).await.map(|output| output.joined_text())
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }

    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.page(ctx, args.text()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn caller(agent: &str, run: &str) -> ToolContext {
        let mut ctx = ToolContext::detached("output_read");
        (ctx.agent_id, ctx.run_id) = (agent.to_owned(), run.to_owned());
        ctx
    }

    #[test]
    fn a_page_is_as_long_as_a_result_and_documented() {
        assert_eq!(DEFAULT_PAGE_BYTES, portcullis_policy::Limits::default().max_output_bytes.0);
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating.md");
        let document = std::fs::read_to_string(document).expect("readable");
        let page = crate::pipeline::format_with_commas(usize::try_from(DEFAULT_PAGE_BYTES).expect("small"));
        assert!(document.contains(&format!("`limit` = {page} (bytes, to {} MiB)", MAX_PAGE_BYTES >> 20)));
    }

    #[tokio::test]
    async fn pages_are_exact_and_for_the_maker_under_its_grant() {
        let state = tempfile::tempdir().expect("temporary folder");
        let store = Arc::new(OutputStore::open(state.path()).expect("opens"));
        let owner = OutputOwner { agent_id: "a".into(), run_id: "r".into() };
        store.put("c-1", &owner, &json!({"mount": "shared"}), "0123456789\u{1b}[m").expect("stores");

        let shared_only: IsStillGrantedFn = Arc::new(|grant| grant["mount"] == "shared");
        let follow_count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&follow_count);
        let follow: AddOutputLabelsFn = Arc::new(move |ctx, grant| {
            assert_eq!((&*ctx.run_id, &grant["mount"]), ("r", &json!("shared")));
            counter.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(()) })
        });
        let tool = OutputRead::new(Arc::clone(&store), shared_only, Arc::clone(&follow));
        let args = ToolArgs::parse(r#"{"call_id":"c-1","offset":8,"limit":3}"#).expect("JSON");
        let output = tool.call(&caller("a", "r"), &args).await.expect("reads");
        assert_eq!(output.joined_text(), "89\u{1b}");
        assert_eq!(output.details, json!({"offset": 8, "next_offset": 11, "total_bytes": 13}));

        for (agent, run) in [("b", "r"), ("a", "s"), ("", "")] {
            let error = tool.call(&caller(agent, run), &args).await.expect_err("not the maker");
            assert_eq!(error.kind(), ToolErrorKind::NotFound);
        }
        assert_eq!(tool.execute(args.text()).await.expect_err("nobody").kind(), ToolErrorKind::NotFound);

        assert_eq!(follow_count.load(Ordering::SeqCst), 1, "followed as often as it was read");
        let refuse: AddOutputLabelsFn =
            Arc::new(|_, _| Box::pin(async { Err(ToolError::internal("unknown")) }));
        let unknown = OutputRead::new(Arc::clone(&store), Arc::new(|_| true), refuse);
        let error = unknown.call(&caller("a", "r"), &args).await.expect_err("of unknown source");
        assert_eq!(error.kind(), ToolErrorKind::Internal);
        let revoked = OutputRead::new(store, Arc::new(|_| false), follow);
        let error = revoked.call(&caller("a", "r"), &args).await.expect_err("revoked");
        assert_eq!((error.kind(), error.code()), (ToolErrorKind::Denied, "grant_revoked"));
    }
}
