//! Decides which tools of foreign modules are registered: those whose names neither equal nor resemble
//! another tool's. A module is accepted whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_policy::{Operation, ToolOrigin};
use portcullis_types::ToolName;

use super::{ForeignModule, Lock, ModuleError, RefusedModule, foreign::ModuleOrigin};
use crate::{NameHolder, RegistryError, error::BootstrapError, registered::RegisteredTool, table::ToolTable};

/// The foreign modules, sorted into accepted and refused.
#[derive(Debug, Default)]
pub(crate) struct SortedModules {
    pub(crate) tools: Vec<RegisteredTool>,
    /// Name and SHA-256 of each accepted module.
    pub(crate) digests: Vec<(String, [u8; 32])>,
    pub(crate) refused: Vec<RefusedModule>,
}

/// A module with its tools, or the fault of one of them.
struct ModuleCandidate {
    module: ForeignModule,
    tools: Result<Vec<RegisteredTool>, RegistryError>,
    names: Vec<ToolName>,
}

/// Sorts modules into accepted and refused. `table` holds the shipped tools and those of the embedding
/// program.
pub(crate) fn accept(
    modules: Vec<ForeignModule>,
    table: &ToolTable,
    lock: &Lock,
) -> Result<SortedModules, BootstrapError> {
    let mut candidates: Vec<ModuleCandidate> =
        modules.into_iter().map(|module| candidate(module, lock)).collect();
    let named: BTreeSet<_> = candidates
        .iter()
        .filter(|candidate| candidate.module.wanted == ModuleOrigin::Named)
        .map(|candidate| candidate.module.module.digest())
        .collect();
    // The same bytes, both named and in the folder, are one module: the named one stays.
    candidates.retain(|candidate| {
        candidate.module.wanted == ModuleOrigin::Named || !named.contains(&candidate.module.module.digest())
    });
    let faults: Vec<Option<ModuleError>> =
        (0..candidates.len()).map(|index| fault(&candidates, index, table)).collect();
    let mut accepted = SortedModules::default();
    for (candidate, fault) in candidates.into_iter().zip(faults) {
        let ModuleCandidate { module, tools, names } = candidate;
        let fault = match (tools, fault) {
            (Ok(tools), None) => {
                accepted.digests.push((module.name, module.module.digest().0));
                accepted.tools.extend(tools);
                continue;
            }
            (Ok(_), Some(fault)) => fault,
            (Err(error), _) => error.into(),
        };
        if module.wanted == ModuleOrigin::Named {
            return Err(match fault {
                ModuleError::Registry(error) => BootstrapError::Registry(error),
                source => BootstrapError::Module { name: module.name, source },
            });
        }
        accepted.refused.push(RefusedModule { name: module.name, error: fault, tools: names });
    }
    Ok(accepted)
}

fn candidate(module: ForeignModule, lock: &Lock) -> ModuleCandidate {
    let declarations = module.declarations.tools.clone();
    let names = declarations.iter().flat_map(|tool| std::iter::once(&tool.name).chain(&tool.meta.aliases));
    let names = names.filter_map(|name| ToolName::parse(name.as_str()).ok()).collect();
    let make = |declaration| {
        RegisteredTool::guest(declaration, &module.name, &module.module, ToolOrigin::ForeignModule, lock)
    };
    let tools = declarations.into_iter().map(make).collect();
    ModuleCandidate { module, tools, names }
}

/// The name clash that keeps a module from being used, if there is one.
fn fault(candidates: &[ModuleCandidate], index: usize, table: &ToolTable) -> Option<ModuleError> {
    let this = &candidates[index];
    let mut seen: BTreeMap<String, &ToolName> = BTreeMap::new();
    // Otherwise the policy's entry of a step would apply to this tool, or seem to.
    let steps = Operation::ALL.iter().flat_map(|operation| operation.steps);
    let steps: Vec<ToolName> = steps.filter_map(|step| ToolName::parse(*step).ok()).collect();
    let taken = table.iter().flat_map(|tool| tool.names().map(move |name| (name, NameHolder::of(tool))));
    let taken = taken.chain(steps.iter().map(|step| (step, NameHolder::Shipped)));
    let registered: BTreeMap<String, (&ToolName, NameHolder)> =
        taken.map(|(name, holder)| (likeness(name), (name, holder))).collect();
    for name in &this.names {
        let likeness = likeness(name);
        let own = || seen.get(&likeness).map(|other| (*other, NameHolder::SameModule));
        if let Some((other, holder)) = registered.get(&likeness).cloned().or_else(own) {
            return Some(ModuleError::Registry(clash(name, other, holder)));
        }
        for (position, other) in candidates.iter().enumerate().filter(|(position, _)| *position != index) {
            let Some(other_name) =
                other.names.iter().find(|other_name| self::likeness(other_name) == likeness)
            else {
                continue;
            };
            match (this.module.wanted, other.module.wanted) {
                // A named module wins over one found in the folder.
                (ModuleOrigin::Named, ModuleOrigin::Found) => {}
                // Of two named modules with the same name, the second fails.
                (ModuleOrigin::Named, ModuleOrigin::Named) if position > index => {}
                (ModuleOrigin::Named, ModuleOrigin::Named) => {
                    let holder = NameHolder::Module { name: other.module.name.clone() };
                    return Some(ModuleError::Registry(clash(name, other_name, holder)));
                }
                (ModuleOrigin::Found, _) => {
                    return Some(ModuleError::Ambiguous {
                        tool: name.clone(),
                        other: other_name.clone(),
                        module: other.module.name.clone(),
                    });
                }
            }
        }
        seen.insert(likeness, name);
    }
    None
}

fn clash(name: &ToolName, other: &ToolName, holder: NameHolder) -> RegistryError {
    if name == other {
        RegistryError::Taken { name: name.clone(), holder }
    } else {
        RegistryError::LookAlike { name: name.clone(), other: other.clone() }
    }
}

/// The skeleton of a name: without separators, and with one letter for letters that are mistaken for each
/// other (Unicode Technical Standard 39, "skeleton", as far as names have such letters).
pub(super) fn likeness(name: &ToolName) -> String {
    name.as_str()
        .replace(['_', '-'], "")
        .replace('0', "o")
        .replace(['1', 'i'], "l")
        .replace("rn", "m")
        .replace("vv", "w")
        .replace('5', "s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_for_each_other_are_alike() {
        let likeness = |text: &str| likeness(&ToolName::parse(text).expect("a name"));
        for other in
            ["file-read", "fi1e_read", "flle_read", "f1le_read", "fileread", "_file__read-", "file_read"]
        {
            assert_eq!(likeness("file_read"), likeness(other), "{other}");
        }
        assert_eq!(likeness("echo"), likeness("ech0"));
        assert_eq!(likeness("format"), likeness("forrnat"));
        for other in ["file_reads", "read_file", "file_write", "my_file_read"] {
            assert_ne!(likeness("file_read"), likeness(other), "{other}");
        }
    }
}
