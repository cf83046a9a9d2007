//! A tool without mistakes: what [`crate::validate`] makes and [`crate::expand`] writes out.

use syn::Ident;

use crate::{kind::Shape, literal::Literal};

/// A tool.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) label: Option<String>,
    pub(crate) description: Option<String>,
    /// A variant of `SafetyTier`.
    pub(crate) tier: Option<Ident>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) requires_approval: bool,
    pub(crate) profile: Option<String>,
    pub(crate) deny_unknown: bool,
    /// The function's parameters in order, the context among them.
    pub(crate) params: Vec<Param>,
}

/// A parameter.
pub(crate) enum Param {
    Context,
    Argument(Box<Argument>),
}

/// A parameter that the caller gives.
pub(crate) struct Argument {
    /// The property's name in the schema.
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) shape: Shape,
    /// Where the type is written.
    pub(crate) span: proc_macro2::Span,
    pub(crate) default: Option<Literal>,
    pub(crate) min: Option<i128>,
    pub(crate) max: Option<i128>,
    pub(crate) one_of: Vec<String>,
    pub(crate) role: Option<Role>,
}

/// What an argument is to the policy.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    PathRead,
    PathWrite,
    Url,
    Command,
}

/// The names of what is emitted beside the function.
pub(crate) struct Names {
    pub(crate) function: Ident,
    pub(crate) structure: Ident,
    pub(crate) constructor: Ident,
    pub(crate) function_decl: Ident,
    pub(crate) declaration: Ident,
}

impl Names {
    pub(crate) fn of(function: &Ident) -> Self {
        use syn::ext::IdentExt;
        let plain = function.unraw().to_string();
        let ident = |text: &str| Ident::new(text, function.span());
        Self {
            structure: ident(&pascal_case(&plain)),
            constructor: ident(&format!("{plain}_tool")),
            function_decl: ident(&format!("__tool_function_decl_{plain}")),
            declaration: ident(&format!("__tool_declaration_{plain}")),
            function: function.clone(),
        }
    }
}

/// Names that mean something in every module. A tool `copy` must not take `Copy` from its author's code.
const TAKEN: [&str; 44] = [
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

/// `file_read` to `FileRead`; never a keyword, a number, a name of the prelude, or the function's own name.
fn pascal_case(name: &str) -> String {
    let mut pascal = String::with_capacity(name.len());
    for word in name.split('_') {
        let mut chars = word.chars();
        pascal.extend(chars.next().into_iter().flat_map(char::to_uppercase).chain(chars));
    }
    let starts_well = pascal.starts_with(|first: char| first.is_alphabetic());
    match () {
        () if !starts_well => format!("Tool{pascal}"),
        () if pascal == name || TAKEN.contains(&pascal.as_str()) => format!("{pascal}Tool"),
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
