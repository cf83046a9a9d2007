//! The hosts that a module's tool declares. A declaration grants nothing: a request needs both the declaration and the
//! policy's grant.

use std::{collections::BTreeSet, sync::Arc};

use portcullis_policy::{Authority, Denial, DenialCode, HostRule, InvalidHostRule};

/// The declared hosts of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredHosts(Arc<BTreeSet<HostRule>>);

impl DeclaredHosts {
    /// Reads a declaration. `None` if it names no hosts.
    ///
    /// # Errors
    /// The first text that is not a valid rule, with the reason.
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
    pub(crate) fn judge(&self, target: &Authority) -> Result<(), Denial> {
        if self.0.iter().any(|rule| rule.covers(target)) {
            return Ok(());
        }
        Err(Denial {
            code: DenialCode::HostNotDeclared,
            rule: "the tool's declaration".to_owned(),
            subject: target.to_string(),
            hint: format!("its author declares it with `hosts = [\"{target}\"]` in `#[tool]`"),
        })
    }
}
