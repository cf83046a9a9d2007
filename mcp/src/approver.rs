//! Asks for approvals through the client: `elicitation/create`.
//!
//! Only an explicit approval counts. A client denies if it declines, dismisses, fails, gives an answer that
//! was not offered, or does not answer in time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_tools::approval::{
    APPROVAL_TIMEOUT, ApprovalAnswer, ApprovalRequest, Approver, SessionApprovals, question,
};
use rmcp::{
    RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        ServerRequest,
    },
    service::{Peer, RequestContext},
};
use serde_json::{Value, json};

use super::{elicitation, log::bounded};

/// Approve this call only.
const APPROVE: &str = "approve";
/// Approve, and also later calls of the tool with the same access.
const APPROVE_SESSION: &str = "approve_for_session";
/// Deny.
const DENY: &str = "deny";

/// Width of the question in columns. A client wraps longer lines at arbitrary places.
const COLUMNS: usize = 72;

/// How long before the registry's own timeout the question ends, so that it can still be withdrawn.
const WITHDRAWAL_MARGIN: Duration = Duration::from_secs(5);

/// Approver that asks the person behind a client.
#[derive(Debug)]
pub(super) struct ClientApprover {
    peer: Peer<RoleServer>,
    approvals: Arc<SessionApprovals>,
}

/// Whether the client declares that it can show its person a form.
pub(super) fn takes_questions(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // A client that names no kind supports forms, the kind of the first revision.
    elicitation.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
}

impl ClientApprover {
    /// The approver for a request, if its client supports elicitation.
    pub(super) fn of(context: &RequestContext<RoleServer>, approvals: Arc<SessionApprovals>) -> Option<Self> {
        takes_questions(context).then(|| Self { peer: context.peer.clone(), approvals })
    }

    async fn ask(&self, request: &ApprovalRequest) -> Option<ElicitResult> {
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question(request, COLUMNS),
            requested_schema: schema(SessionApprovals::may_keep(request))?,
        };
        let asking = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let time = APPROVAL_TIMEOUT.saturating_sub(WITHDRAWAL_MARGIN);
        match elicitation::ask(&self.peer, asking, time).await {
            Ok(ClientResult::ElicitResult(result)) => Some(result),
            _ => None,
        }
    }
}

#[async_trait]
impl Approver for ClientApprover {
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        if self.approvals.covers(request) {
            return ApprovalAnswer::Approve;
        }
        let Some(result) = self.ask(request).await else {
            return denied("the client gave no answer");
        };
        match understand(&result, SessionApprovals::may_keep(request)) {
            ElicitedDecision::Once => ApprovalAnswer::Approve,
            ElicitedDecision::ForSession => {
                self.approvals.keep(request);
                ApprovalAnswer::Approve
            }
            ElicitedDecision::No(reason) => ApprovalAnswer::Deny { reason },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ElicitedDecision {
    Once,
    ForSession,
    No(Option<String>),
}

fn understand(result: &ElicitResult, may_keep: bool) -> ElicitedDecision {
    let no = |reason: &str| ElicitedDecision::No(Some(reason.to_owned()));
    match result.action {
        ElicitationAction::Accept => {}
        ElicitationAction::Decline => return no("the person declined"),
        _ => return no("the question was dismissed"),
    }
    let field =
        |name: &str| result.content.as_ref().and_then(|content| content.get(name)).and_then(Value::as_str);
    match field("answer") {
        Some(APPROVE) => ElicitedDecision::Once,
        // Accepted only if it was offered.
        Some(APPROVE_SESSION) if may_keep => ElicitedDecision::ForSession,
        Some(DENY) => {
            let reason = field("reason").map(str::trim).filter(|reason| !reason.is_empty());
            ElicitedDecision::No(reason.map(|reason| bounded(reason.to_owned())))
        }
        _ => no("the client gave an answer that was not offered"),
    }
}

fn denied(reason: &str) -> ApprovalAnswer {
    ApprovalAnswer::Deny { reason: Some(reason.to_owned()) }
}

/// The form's schema: an answer, and a reason for a denial.
fn schema(may_keep: bool) -> Option<ElicitationSchema> {
    let mut answers = vec![(APPROVE, "Approve this call"), (DENY, "Deny")];
    if may_keep {
        answers.insert(1, (APPROVE_SESSION, "Approve this tool with this access for the session"));
    }
    let (values, names): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": {"type": "string", "title": "Answer", "enum": values, "enumNames": names},
            "reason": {"type": "string", "title": "Reason for a no", "maxLength": 500},
        },
        "required": ["answer"],
    });
    serde_json::from_value(schema).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(action: ElicitationAction, content: Value) -> ElicitResult {
        let mut result = ElicitResult::new(action);
        result.content = Some(content);
        result
    }

    #[test]
    fn only_an_answer_that_was_offered_is_a_yes() {
        use ElicitationAction::{Accept, Cancel, Decline};
        let is_no = |understood: &ElicitedDecision| matches!(understood, ElicitedDecision::No(_));
        let yes = json!({"answer": "approve"});
        assert_eq!(understand(&answer(Accept, yes.clone()), true), ElicitedDecision::Once);
        let session = json!({"answer": "approve_for_session"});
        assert_eq!(understand(&answer(Accept, session.clone()), true), ElicitedDecision::ForSession);
        for (action, content, may_keep) in [
            (Accept, session, false),
            (Decline, yes.clone(), true),
            (Cancel, yes, true),
            (Accept, json!({}), true),
            (Accept, json!({"answer": true}), true),
            (Accept, json!({"answer": "yes"}), true),
            (Accept, json!("approve"), true),
            (Accept, Value::Null, true),
        ] {
            let shown = format!("{action:?} {content}");
            assert!(is_no(&understand(&answer(action, content), may_keep)), "{shown}");
        }
        assert!(is_no(&understand(&ElicitResult::new(Accept), true)));
    }

    #[test]
    fn a_no_may_have_a_reason() {
        let no = |reason: &str| {
            let content = json!({"answer": "deny", "reason": reason});
            understand(&answer(ElicitationAction::Accept, content), true)
        };
        assert_eq!(no("not there"), ElicitedDecision::No(Some("not there".to_owned())));
        assert_eq!(no(" "), ElicitedDecision::No(None));
    }

    #[test]
    fn the_form_offers_the_session_only_where_it_may() {
        let text = |may_keep| serde_json::to_string(&schema(may_keep).expect("a schema")).expect("encodes");
        assert!(text(true).contains(APPROVE_SESSION));
        assert!(!text(false).contains(APPROVE_SESSION));
        assert!(text(false).contains(r#""required":["answer"]"#));
    }
}
