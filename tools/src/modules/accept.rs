//! Decides which foreign modules are accepted. A module is refused as a whole if one of its tool names equals
//! or resembles the name of another tool.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_policy::{Operation, ToolOrigin};
use portcullis_types::ToolName;

use super::{ForeignModule, ModuleError, Pins, RefusedModule, foreign::ModuleOrigin};
use crate::{
    NameHolder, RegistryError, error::BootstrapError, registered::RegisteredTool, tool_table::ToolTable,
};

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

/// Sorts modules into accepted and refused. `table` holds the shipped tools and the tools of the embedding program.
pub(crate) fn accept(
    modules: Vec<ForeignModule>,
    table: &ToolTable,
    pins: &Pins,
) -> Result<SortedModules, BootstrapError> {
    let mut candidates: Vec<ModuleCandidate> =
        modules.into_iter().map(|module| candidate(module, pins)).collect();
    let named_digests: BTreeSet<_> = candidates
        .iter()
        .filter(|candidate| candidate.module.origin == ModuleOrigin::Named)
        .map(|candidate| candidate.module.module.digest())
        .collect();
    // The same bytes, both named and in the folder, are one module. The named one stays.
    candidates.retain(|candidate| {
        candidate.module.origin == ModuleOrigin::Named
            || !named_digests.contains(&candidate.module.module.digest())
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
        if module.origin == ModuleOrigin::Named {
            return Err(match fault {
                ModuleError::Registry(error) => BootstrapError::Registry(error),
                source => BootstrapError::Module { name: module.name, source },
            });
        }
        accepted.refused.push(RefusedModule { name: module.name, error: fault, tools: names });
    }
    Ok(accepted)
}

fn candidate(module: ForeignModule, pins: &Pins) -> ModuleCandidate {
    let declarations = module.declarations.tools.clone();
    let names = declarations.iter().flat_map(|tool| std::iter::once(&tool.name).chain(&tool.meta.aliases));
    let names = names.filter_map(|name| ToolName::parse(name.as_str()).ok()).collect();
    let make = |declaration| {
        RegisteredTool::guest(declaration, &module.name, &module.module, ToolOrigin::ForeignModule, pins)
    };
    let tools = declarations.into_iter().map(make).collect();
    ModuleCandidate { module, tools, names }
}

/// Returns the name clash that excludes a module, if there is one.
fn fault(candidates: &[ModuleCandidate], index: usize, table: &ToolTable) -> Option<ModuleError> {
    let candidate = &candidates[index];
    let mut own_names: BTreeMap<String, &ToolName> = BTreeMap::new();
    // The names of steps are reserved too: otherwise the policy's entry for a step would apply to this tool,
    // or appear to.
    let steps = Operation::ALL.iter().flat_map(|operation| operation.steps);
    let steps: Vec<ToolName> = steps.filter_map(|step| ToolName::parse(*step).ok()).collect();
    let held_names =
        table.iter().flat_map(|tool| tool.names().map(move |name| (name, NameHolder::new(tool))));
    let held_names = held_names.chain(steps.iter().map(|step| (step, NameHolder::Shipped)));
    let registered: BTreeMap<String, (&ToolName, NameHolder)> =
        held_names.map(|(name, holder)| (name_skeleton(name), (name, holder))).collect();
    for name in &candidate.names {
        let likeness = name_skeleton(name);
        let own_name = || own_names.get(&likeness).map(|own_name| (*own_name, NameHolder::SameModule));
        if let Some((other_name, holder)) = registered.get(&likeness).cloned().or_else(own_name) {
            return Some(ModuleError::Registry(name_clash_error(name, other_name, holder)));
        }
        for (position, other_candidate) in
            candidates.iter().enumerate().filter(|(position, _)| *position != index)
        {
            let Some(other_name) =
                other_candidate.names.iter().find(|other_name| self::name_skeleton(other_name) == likeness)
            else {
                continue;
            };
            match (candidate.module.origin, other_candidate.module.origin) {
                // A named module wins over a module found in the folder.
                (ModuleOrigin::Named, ModuleOrigin::Found) => {}
                // Of two named modules with the same name, the second fails.
                (ModuleOrigin::Named, ModuleOrigin::Named) if position > index => {}
                (ModuleOrigin::Named, ModuleOrigin::Named) => {
                    let holder = NameHolder::Module { name: other_candidate.module.name.clone() };
                    return Some(ModuleError::Registry(name_clash_error(name, other_name, holder)));
                }
                (ModuleOrigin::Found, _) => {
                    return Some(ModuleError::Ambiguous {
                        tool: name.clone(),
                        other_tool: other_name.clone(),
                        module: other_candidate.module.name.clone(),
                    });
                }
            }
        }
        own_names.insert(likeness, name);
    }
    None
}

fn name_clash_error(name: &ToolName, other_name: &ToolName, holder: NameHolder) -> RegistryError {
    if name == other_name {
        RegistryError::Taken { name: name.clone(), holder }
    } else {
        RegistryError::LookAlike { name: name.clone(), other: other_name.clone() }
    }
}

/// Returns the skeleton of a name: no separators, no capitals, and one letter for all letters that look alike
/// (Unicode Technical Standard 39, "skeleton", for the letters that names can have).
pub(super) fn name_skeleton(name: &ToolName) -> String {
    name.as_str()
        .to_ascii_lowercase()
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
    fn names_that_look_the_same_are_alike() {
        let likeness = |text: &str| name_skeleton(&ToolName::parse(text).expect("a name"));
        for other in [
            "file-read",
            "fi1e_read",
            "flle_read",
            "f1le_read",
            "fileread",
            "fileRead",
            "FILE_READ",
            "_file__read-",
            "file_read",
        ] {
            assert_eq!(likeness("file_read"), likeness(other), "{other}");
        }
        assert_eq!(likeness("echo"), likeness("ech0"));
        assert_eq!(likeness("format"), likeness("forrnat"));
        for other in ["file_reads", "read_file", "file_write", "my_file_read"] {
            assert_ne!(likeness("file_read"), likeness(other), "{other}");
        }
    }
}
