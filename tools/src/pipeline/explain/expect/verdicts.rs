//! Evaluates `[[expect]]`: judges every call that an expectation covers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use portcullis_policy::{
    Approval, CallRequest, ExpectedSubject, ExpectedTools, ExpectedVerdict, FlowLabel, PathClasses,
    RequestedSubject, RunContext, TooManyClasses, ToolDescriptor,
};
use portcullis_types::{Access, GuestPath, RoleKind};

use super::{
    super::{EARLIER_CALL, EXPLAINED_CALL, EXPLAINED_RUN, ExplainedTool, Explainer, named_answer},
    coverage::Mentions,
    report::{Counterexample, ExpectationKind, ExpectationResult, JudgedCall},
};
use crate::pipeline::judge::labels_of;

/// The subject of one call.
#[derive(Debug, Clone, Copy)]
enum CallSubject<'a> {
    Nothing,
    Path(&'a GuestPath, Access),
    Url(&'a str),
    Command(&'a str),
}

/// The labels of a run, each with the call that added it.
type Labels = BTreeMap<FlowLabel, String>;

/// Evaluates expectations of verdicts.
pub(super) struct VerdictChecker<'a> {
    explainer: &'a Explainer,
    tools: &'a [ExplainedTool],
    classes: PathClasses<'a>,
    /// The paths that represent each pattern.
    paths: HashMap<String, Result<Arc<[GuestPath]>, TooManyClasses>>,
}

impl<'a> VerdictChecker<'a> {
    pub(super) fn new(explainer: &'a Explainer, tools: &'a [ExplainedTool]) -> Self {
        Self { explainer, tools, classes: PathClasses::new(&explainer.policy), paths: HashMap::new() }
    }

    /// Evaluates one expectation. Stops at the first counterexample.
    pub(super) fn decide(
        &mut self,
        expected: &ExpectedVerdict,
        mentions: &mut Mentions,
    ) -> ExpectationResult {
        let tools = self.chosen(&expected.tools);
        let mut cases = 0;
        let counterexample = if tools.is_empty() && expected.verdict != Approval::Deny {
            Some(Counterexample::Problem { message: "no such tool is here".to_owned() })
        } else {
            self.counterexample(expected, &tools, &mut cases, mentions)
        };
        ExpectationResult {
            kind: ExpectationKind::Expect,
            name: expected.name.clone().unwrap_or_else(|| summary(expected)),
            location: expected.location.clone(),
            holds: counterexample.is_none(),
            cases,
            counterexample,
        }
    }

    fn counterexample(
        &mut self,
        expected: &ExpectedVerdict,
        tools: &[ExplainedTool],
        cases: &mut u64,
        mentions: &mut Mentions,
    ) -> Option<Counterexample> {
        let labels: Labels =
            expected.after.iter().map(|label| (label.clone(), EARLIER_CALL.to_owned())).collect();
        let mut found = None;
        let mut look = |named: CallSubject<'_>, answers: &Self| {
            for tool in tools {
                mention(tool, named, mentions);
                if found.is_some() {
                    continue;
                }
                for answer in answers.of_tool(tool, named, &labels) {
                    *cases += 1;
                    let is_expected = answer.verdict == expected.verdict
                        && (expected.code.is_none() || expected.code == answer.code);
                    if !is_expected && found.is_none() {
                        found = Some(Counterexample::Call(answer));
                    }
                }
            }
        };
        if expected.subjects.is_empty() {
            look(CallSubject::Nothing, self);
        }
        for subject in &expected.subjects {
            match subject {
                ExpectedSubject::Url(url) => look(CallSubject::Url(url), self),
                ExpectedSubject::Command(command) => look(CallSubject::Command(command), self),
                ExpectedSubject::Path(path) => {
                    expected.access.iter().for_each(|access| look(CallSubject::Path(path, *access), self));
                }
                ExpectedSubject::Paths(pattern) => {
                    let paths = self.paths.entry(pattern.to_string());
                    let paths = paths.or_insert_with(|| self.classes.of(pattern).map(Into::into)).clone();
                    match paths {
                        Ok(paths) => {
                            for path in &*paths {
                                expected
                                    .access
                                    .iter()
                                    .for_each(|access| look(CallSubject::Path(path, *access), self));
                            }
                        }
                        // An undecidable claim does not hold.
                        Err(error) => {
                            return Some(Counterexample::Problem { message: error.to_string() });
                        }
                    }
                }
            }
        }
        found
    }

    /// Returns the tools that an expectation selects. A step of an operation can be named directly.
    fn chosen(&self, chosen: &ExpectedTools) -> Vec<ExplainedTool> {
        let alone = |descriptor: &ToolDescriptor| ExplainedTool {
            descriptor: descriptor.clone(),
            steps: Vec::new(),
            target: None,
        };
        match chosen {
            ExpectedTools::All => self.tools.to_vec(),
            ExpectedTools::Named(names) => names
                .iter()
                .filter_map(|name| {
                    let listed_tool = self.tools.iter().find(|tool| tool.descriptor.name == *name).cloned();
                    let mut steps = self.tools.iter().flat_map(|tool| &tool.steps);
                    listed_tool
                        .or_else(|| steps.find(|step| step.name == *name).map(alone))
                        // A shipped tool is judged even if it is not offered.
                        .or_else(|| ExplainedTool::shipped(name.as_str()))
                })
                .collect(),
            ExpectedTools::OfProfile(profile) => self
                .tools
                .iter()
                .flat_map(|tool| {
                    let has_profile = |descriptor: &&ToolDescriptor| {
                        self.explainer.policy.describe(descriptor).profile == *profile
                    };
                    let own_tool = has_profile(&&tool.descriptor).then(|| tool.clone());
                    own_tool.into_iter().chain(tool.steps.iter().filter(has_profile).map(alone))
                })
                .collect(),
        }
    }

    /// Returns the verdicts on the calls of a tool with this subject. The most permissive step of an
    /// operation counts, unless the verdict on the operation itself is stricter.
    fn of_tool(&self, tool: &ExplainedTool, named: CallSubject<'_>, labels: &Labels) -> Vec<JudgedCall> {
        if tool.steps.is_empty() {
            return self.of_descriptor(&tool.descriptor, named, labels).0;
        }
        let (own, _) = self.of_descriptor(&tool.descriptor, CallSubject::Nothing, labels);
        let mut labels = labels.clone();
        let mut steps = Vec::new();
        for step in &tool.steps {
            let (answers, brought) = self.of_descriptor(step, named, &labels);
            steps.extend(answers);
            labels.extend(brought);
        }
        let most = steps.into_iter().min_by_key(|answer| answer.verdict);
        let answers = own.into_iter().chain(most);
        answers.max_by_key(|answer| answer.verdict).into_iter().collect()
    }

    /// Returns the verdicts for each argument that can take this subject, and the labels that the call adds.
    fn of_descriptor(
        &self,
        descriptor: &ToolDescriptor,
        named: CallSubject<'_>,
        labels: &Labels,
    ) -> (Vec<JudgedCall>, Labels) {
        let policy = &self.explainer.policy;
        let run = RunContext { agent: "", run: EXPLAINED_RUN, labels: Arc::new(labels.clone()) };
        let takes = |role: RoleKind| match named {
            CallSubject::Nothing => false,
            CallSubject::Path(_, access) => role.path_access() == Some(access),
            CallSubject::Url(_) => role == RoleKind::Url,
            CallSubject::Command(_) => role == RoleKind::Command,
        };
        let roles = descriptor.roles.iter().filter(|role| takes(role.role));
        let mut arguments: Vec<String> = roles.map(|role| role.argument.clone()).collect();
        if arguments.is_empty() {
            // A guest may open files that no argument names.
            arguments.push(RequestedSubject::NO_ARGUMENT.to_owned());
        }
        let mut brought = Labels::new();
        let answers = arguments.into_iter().map(|argument| {
            let (subject, text, access) = match named {
                CallSubject::Nothing => (None, None, None),
                CallSubject::Path(path, access) => {
                    let subject = RequestedSubject::Path { argument, path: path.clone(), access };
                    (Some(subject), Some(path.to_string()), Some(access))
                }
                CallSubject::Url(url) => {
                    let subject = RequestedSubject::Url { argument, url: url.to_owned() };
                    (Some(subject), Some(url.to_owned()), None)
                }
                CallSubject::Command(command) => {
                    let subject = RequestedSubject::Command { argument, command: command.to_owned() };
                    (Some(subject), Some(command.to_owned()), None)
                }
            };
            let subjects: Vec<RequestedSubject> = subject.into_iter().collect();
            let request = CallRequest { tool: descriptor, subjects: &subjects, run: &run };
            if let Ok(grant) = policy.authorize(&request) {
                brought.extend(labels_of(&grant).map(|label| (label, EXPLAINED_CALL.to_owned())));
            }
            let (verdict, rule, code) = named_answer(policy, &request);
            JudgedCall {
                tool: descriptor.name.to_string(),
                subject: text,
                access,
                verdict,
                code,
                location: self.explainer.provenance.location_of(&rule),
                rule,
            }
        });
        (answers.collect(), brought)
    }
}

/// Records the grants that an expectation mentions.
fn mention(tool: &ExplainedTool, named: CallSubject<'_>, mentions: &mut Mentions) {
    let names =
        std::iter::once(&tool.descriptor).chain(&tool.steps).map(|descriptor| descriptor.name.as_str());
    match named {
        CallSubject::Path(path, access) => {
            if let Some(mount) = path.mount() {
                names.for_each(|name| mentions.mount(name, mount, access));
            }
        }
        CallSubject::Url(url) => names.for_each(|name| mentions.url(name, url)),
        CallSubject::Nothing | CallSubject::Command(_) => {}
    }
}

/// Summarizes an expectation that has no name.
fn summary(expected: &ExpectedVerdict) -> String {
    let list = |texts: Vec<String>| match texts.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, .., last] => format!("{first} … {last}"),
    };
    let tools = match &expected.tools {
        ExpectedTools::All => "every tool".to_owned(),
        ExpectedTools::Named(names) => list(names.iter().map(ToString::to_string).collect()),
        ExpectedTools::OfProfile(profile) => format!("profile {profile}"),
    };
    let access = match expected.access.as_slice() {
        [Access::Read] => "read ",
        [Access::Write] => "write ",
        _ => "",
    };
    let subjects = expected.subjects.iter().map(|subject| match subject {
        ExpectedSubject::Path(path) => format!("{access}{path}"),
        ExpectedSubject::Paths(pattern) => format!("{access}{pattern}"),
        ExpectedSubject::Url(text) | ExpectedSubject::Command(text) => text.clone(),
    });
    let subjects = list(subjects.collect());
    let verdict = match expected.code {
        Some(code) => format!("{} {code}", expected.verdict),
        None => expected.verdict.to_string(),
    };
    let space = if subjects.is_empty() { "" } else { " " };
    format!("{tools}{space}{subjects}: {verdict}")
}
