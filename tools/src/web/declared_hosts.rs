//! The hosts that a tool of a module declares. They grant nothing: a request must be declared, and granted too.

use std::{collections::BTreeSet, sync::Arc};

use portcullis_policy::{Authority, Denial, DenialCode, HostRule, InvalidHostRule};

/// The hosts of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredHosts(Arc<BTreeSet<HostRule>>);

impl DeclaredHosts {
    /// Reads a declaration; none if it has no hosts.
    ///
    /// # Errors
    /// The text that is no rule, and why.
    pub(crate) fn parse(texts: &[String]) -> Result<Option<Self>, (String, InvalidHostRule)> {
        if texts.is_empty() {
            return Ok(None);
        }
        let rules = texts.iter().map(|text| text.parse().map_err(|error| (text.clone(), error)));
        Ok(Some(Self(Arc::new(rules.collect::<Result<_, _>>()?))))
    }

    /// The declared rules.
    pub(crate) fn rules(&self) -> &BTreeSet<HostRule> {
        &self.0
    }

    /// Refuses a request to a host that the tool does not declare.
    pub(crate) fn judge(&self, to: &Authority) -> Result<(), Denial> {
        if self.0.iter().any(|rule| rule.covers(to)) {
            return Ok(());
        }
        Err(Denial {
            code: DenialCode::HostNotDeclared,
            rule: "the tool's declaration".to_owned(),
            subject: to.to_string(),
            hint: format!("its author declares it with `hosts = [\"{to}\"]` in `#[tool]`"),
        })
    }
}
