//! The model of a tool without mistakes. [`crate::validate`] makes it, and [`crate::expand`] writes it out.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Ident, Signature, Type, ext::IdentExt};

use crate::{kind::Shape, literal::Literal};

pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) label: Option<String>,
    pub(crate) description: Option<String>,
    /// A variant of `SafetyTier`.
    pub(crate) tier: Option<Ident>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) requires_approval: bool,
    pub(crate) profile: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) deny_unknown: bool,
    /// Whether the function's future stays on the thread that made it.
    pub(crate) local: bool,
    pub(crate) hints: ToolHints,
    /// The function's parameters in order, including context and states.
    pub(crate) params: Vec<Param>,
}

impl Model {
    /// Returns the parameters that the caller provides, in order.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &ToolArgument> {
        self.params.iter().filter_map(|param| match param {
            Param::Argument(argument) => Some(&**argument),
            Param::Context | Param::State(_) => None,
        })
    }

    /// Returns the types of the states that the function takes, in order.
    pub(crate) fn states(&self) -> Vec<&Type> {
        let states = self.params.iter().filter_map(|param| match param {
            Param::State(ty) => Some(&**ty),
            Param::Context | Param::Argument(_) => None,
        });
        states.collect()
    }
}

/// Hints for the registry beyond the schema.
pub(crate) struct ToolHints {
    pub(crate) aliases: Vec<String>,
    pub(crate) idempotent: bool,
    pub(crate) hidden: bool,
    pub(crate) output_cap_bytes: Option<u64>,
}

/// A parameter of a tool's function.
pub(crate) enum Param {
    Context,
    /// A state, with the type within `State<…>`.
    State(Box<Type>),
    Argument(Box<ToolArgument>),
}

/// A parameter that the caller provides.
pub(crate) struct ToolArgument {
    /// The property's name in the schema.
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) shape: Shape,
    /// The span of the type.
    pub(crate) span: proc_macro2::Span,
    pub(crate) default: Option<ArgumentDefault>,
    /// The least value of a number.
    pub(crate) min: Option<Literal>,
    /// The greatest value of a number.
    pub(crate) max: Option<Literal>,
    pub(crate) one_of: Vec<String>,
    pub(crate) role: Option<RoleAttribute>,
}

/// The value of an omitted argument.
pub(crate) enum ArgumentDefault {
    /// A primitive value.
    Literal(Literal),
    /// `Default::default()`.
    DefaultTrait,
    /// An expression of the parameter's type.
    Expr(Box<syn::Expr>),
}

/// The role of an argument for the policy.
#[derive(Clone, Copy)]
pub(crate) enum RoleAttribute {
    PathRead,
    PathWrite,
    Entry,
    Url,
    Command,
}

/// The names of the function's companions.
pub(crate) struct CompanionNames {
    pub(crate) function: Ident,
    pub(crate) structure: Ident,
    pub(crate) constructor: Ident,
    pub(crate) function_decl: Ident,
    pub(crate) declaration: Ident,
    pub(crate) meta: Ident,
}

impl CompanionNames {
    pub(crate) fn new(signature: &Signature) -> Self {
        let function = &signature.ident;
        let bare_name = function.unraw().to_string();
        let ident = |text: &str| Ident::new(text, function.span());
        Self {
            structure: ident(&structure(&bare_name, signature)),
            constructor: ident(&format!("{bare_name}_tool")),
            function_decl: ident(&format!("__tool_function_decl_{bare_name}")),
            declaration: ident(&format!("__tool_declaration_{bare_name}")),
            meta: ident(&format!("__tool_meta_{bare_name}")),
            function: function.clone(),
        }
    }

    /// Returns the hidden function that computes the default of the argument at this index.
    pub(crate) fn default_function(index: usize) -> Ident {
        Ident::new(&format!("__portcullis_default_{index}"), proc_macro2::Span::call_site())
    }
}

/// The structure's name. It must differ from the types in the signature, as for a tool `filter` that takes a
/// `Filter`.
fn structure(function: &str, signature: &Signature) -> String {
    let name = pascal_case(function);
    let is_taken = mentions(signature.inputs.to_token_stream(), &name)
        || mentions(signature.output.to_token_stream(), &name);
    if is_taken { format!("{name}Tool") } else { name }
}

fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Names with a meaning in every module. A tool `copy` must not shadow `Copy` in its author's code.
const RESERVED_NAMES: [&str; 44] = [
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Future",
    "Hash",
    "Into",
    "IntoFuture",
    "IntoIterator",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Self",
    "Send",
    "Sized",
    "Some",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "Tool",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Vec",
];

/// Converts `file_read` to `FileRead`. The result is never a keyword, a number, a name of the prelude, or the
/// function's own name.
fn pascal_case(name: &str) -> String {
    let mut pascal = String::with_capacity(name.len());
    for word in name.split('_') {
        let mut chars = word.chars();
        pascal.extend(chars.next().into_iter().flat_map(char::to_uppercase).chain(chars));
    }
    let starts_well = pascal.starts_with(|first: char| first.is_alphabetic());
    match () {
        () if !starts_well => format!("Tool{pascal}"),
        () if pascal == name || RESERVED_NAMES.contains(&pascal.as_str()) => format!("{pascal}Tool"),
        () => pascal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_named_after_functions() {
        for (name, pascal) in [
            ("file_read", "FileRead"),
            ("echo", "Echo"),
            ("_2", "Tool2"),
            ("self_", "SelfTool"),
            ("copy", "CopyTool"),
            ("Echo", "EchoTool"),
        ] {
            assert_eq!(pascal_case(name), pascal);
        }
    }
}
