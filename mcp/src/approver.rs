//! Asks for approvals through the client: `elicitation/create`.
//!
//! Only an explicit approval counts. The call is denied if the client declines, dismisses or fails, gives an
//! answer that was not offered, or does not answer in time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_tools::approval::{
    APPROVAL_TIMEOUT, ApprovalAnswer, ApprovalRequest, Approver, ApproverKind, AttributedAnswer,
    SessionApprovals, StandingOffer, question,
};
use portcullis_types::escape_for_display;
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
/// Approve this call and later calls of the tool with the same access.
const APPROVE_SESSION: &str = "approve_for_session";
/// Approve this call, and write the rules that cover it into the operator's policy.
const APPROVE_ALWAYS: &str = "approve_always";
/// Deny.
const DENY: &str = "deny";

/// The width of the question, in columns. A client would wrap longer lines at arbitrary positions.
const COLUMNS: usize = 72;

/// How long before the registry's own timeout the question ends. Without this margin, the question could not
/// be withdrawn.
const WITHDRAWAL_MARGIN: Duration = Duration::from_secs(5);

/// An approver that asks the person behind a client.
#[derive(Debug)]
pub(super) struct ClientApprover {
    peer: Peer<RoleServer>,
    approvals: Arc<SessionApprovals>,
}

/// Returns whether the client can show its person a form.
pub(super) fn supports_elicitation(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // A client that names no kind supports forms, which were the only kind in the first revision.
    elicitation.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
}

impl ClientApprover {
    /// Creates the approver for a request, if its client supports elicitation.
    pub(super) fn from_context(
        context: &RequestContext<RoleServer>,
        approvals: Arc<SessionApprovals>,
    ) -> Option<Self> {
        supports_elicitation(context).then(|| Self { peer: context.peer.clone(), approvals })
    }

    async fn ask(&self, request: &ApprovalRequest) -> Option<ElicitResult> {
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question(request, COLUMNS),
            requested_schema: schema(SessionApprovals::may_keep(request), request.standing.as_ref())?,
        };
        let elicit_request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let time = APPROVAL_TIMEOUT.saturating_sub(WITHDRAWAL_MARGIN);
        match elicitation::ask(&self.peer, elicit_request, time).await {
            Ok(ClientResult::ElicitResult(result)) => Some(result),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the client did not answer a question"
                );
                None
            }
        }
    }
}

#[async_trait]
impl Approver for ClientApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        if self.approvals.covers(request) {
            return AttributedAnswer::by(ApproverKind::Session, ApprovalAnswer::Approve);
        }
        let name = self.peer.peer_info().map(|client| client.client_info.name.clone());
        AttributedAnswer { answer: self.answer(request).await, by: ApproverKind::Elicitation, name }
    }
}

impl ClientApprover {
    async fn answer(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let Some(result) = self.ask(request).await else {
            return denied("the client gave no answer");
        };
        match parse_decision(&result, OfferedAnswers::for_request(request)) {
            ElicitedDecision::ApprovedOnce => ApprovalAnswer::Approve,
            ElicitedDecision::ApprovedAlways => ApprovalAnswer::ApproveAlways,
            ElicitedDecision::ApprovedForSession => {
                self.approvals.keep(request);
                ApprovalAnswer::Approve
            }
            ElicitedDecision::Denied(reason) => ApprovalAnswer::Deny { reason },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ElicitedDecision {
    ApprovedOnce,
    ApprovedForSession,
    ApprovedAlways,
    Denied(Option<String>),
}

/// The answers that a form offers besides an approval of the one call and a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OfferedAnswers {
    for_session: bool,
    always: bool,
}

impl OfferedAnswers {
    fn for_request(request: &ApprovalRequest) -> Self {
        Self { for_session: SessionApprovals::may_keep(request), always: request.standing.is_some() }
    }
}

fn parse_decision(result: &ElicitResult, offered: OfferedAnswers) -> ElicitedDecision {
    let deny = |reason: &str| ElicitedDecision::Denied(Some(reason.to_owned()));
    match result.action {
        ElicitationAction::Accept => {}
        ElicitationAction::Decline => return deny("the person declined"),
        _ => return deny("the question was dismissed"),
    }
    let field =
        |name: &str| result.content.as_ref().and_then(|content| content.get(name)).and_then(Value::as_str);
    match field("answer") {
        Some(APPROVE) => ElicitedDecision::ApprovedOnce,
        // Accept these two answers only if they were offered.
        Some(APPROVE_SESSION) if offered.for_session => ElicitedDecision::ApprovedForSession,
        Some(APPROVE_ALWAYS) if offered.always => ElicitedDecision::ApprovedAlways,
        Some(DENY) => {
            let reason = field("reason").map(str::trim).filter(|reason| !reason.is_empty());
            ElicitedDecision::Denied(reason.map(|reason| bounded(reason.to_owned())))
        }
        _ => deny("the client gave an answer that was not offered"),
    }
}

fn denied(reason: &str) -> ApprovalAnswer {
    ApprovalAnswer::Deny { reason: Some(reason.to_owned()) }
}

/// Returns the form's schema: an answer, and a reason for a denial.
fn schema(may_keep: bool, standing: Option<&StandingOffer>) -> Option<ElicitationSchema> {
    let mut answers = vec![(APPROVE, "Approve this call".to_owned()), (DENY, "Deny".to_owned())];
    if may_keep {
        answers.insert(1, (APPROVE_SESSION, "Approve this tool with this access for the session".to_owned()));
    }
    if let Some(StandingOffer { rules, file }) = standing {
        let rules: Vec<String> = rules.iter().map(|rule| format!("`{rule}`")).collect();
        let name = format!("Approve, and write the rule {} to {file}", rules.join(", "));
        answers.insert(1, (APPROVE_ALWAYS, escape_for_display(&name).to_string()));
    }
    let (values, names): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": {"type": "string", "title": "Answer", "enum": values, "enumNames": names},
            "reason": {"type": "string", "title": "Reason for the denial", "maxLength": 500},
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

    fn offered(for_session: bool, always: bool) -> OfferedAnswers {
        OfferedAnswers { for_session, always }
    }

    #[test]
    fn only_an_answer_that_was_offered_is_a_yes() {
        use ElicitationAction::{Accept, Cancel, Decline};
        let is_denied = |decision: &ElicitedDecision| matches!(decision, ElicitedDecision::Denied(_));
        let yes = json!({"answer": "approve"});
        assert_eq!(
            parse_decision(&answer(Accept, yes.clone()), offered(true, true)),
            ElicitedDecision::ApprovedOnce
        );
        let session = json!({"answer": "approve_for_session"});
        assert_eq!(
            parse_decision(&answer(Accept, session.clone()), offered(true, false)),
            ElicitedDecision::ApprovedForSession
        );
        let always = json!({"answer": "approve_always"});
        assert_eq!(
            parse_decision(&answer(Accept, always.clone()), offered(false, true)),
            ElicitedDecision::ApprovedAlways
        );
        for (action, content, may_keep) in [
            (Accept, session, false),
            (Accept, always, false),
            (Decline, yes.clone(), true),
            (Cancel, yes, true),
            (Accept, json!({}), true),
            (Accept, json!({"answer": true}), true),
            (Accept, json!({"answer": "yes"}), true),
            (Accept, json!("approve"), true),
            (Accept, Value::Null, true),
        ] {
            let debug_text = format!("{action:?} {content}");
            assert!(
                is_denied(&parse_decision(&answer(action, content), offered(may_keep, may_keep))),
                "{debug_text}"
            );
        }
        assert!(is_denied(&parse_decision(&ElicitResult::new(Accept), offered(true, true))));
    }

    #[test]
    fn a_no_may_have_a_reason() {
        let no = |reason: &str| {
            let content = json!({"answer": "deny", "reason": reason});
            parse_decision(&answer(ElicitationAction::Accept, content), offered(true, true))
        };
        assert_eq!(no("not there"), ElicitedDecision::Denied(Some("not there".to_owned())));
        assert_eq!(no(" "), ElicitedDecision::Denied(None));
    }

    #[test]
    fn the_form_offers_the_session_only_where_it_may() {
        let text =
            |may_keep| serde_json::to_string(&schema(may_keep, None).expect("a schema")).expect("encodes");
        assert!(text(true).contains(APPROVE_SESSION));
        assert!(!text(false).contains(APPROVE_SESSION));
        assert!(text(false).contains(r#""required":["answer"]"#));
        assert!(!text(true).contains(APPROVE_ALWAYS));
    }

    #[test]
    fn the_form_shows_the_rule_that_a_standing_approval_writes() {
        let offer =
            StandingOffer { rules: vec!["ls -a".to_owned(), "wc".to_owned()], file: "/p.toml".to_owned() };
        let text = serde_json::to_string(&schema(false, Some(&offer)).expect("a schema")).expect("encodes");
        assert!(text.contains(APPROVE_ALWAYS), "{text}");
        assert!(text.contains("Approve, and write the rule `ls -a`, `wc` to /p.toml"), "{text}");
    }
}
