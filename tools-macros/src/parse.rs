//! Parses the function into keys, documentation and parameters. This module checks only syntax.

use proc_macro2::TokenStream;
use syn::{Attribute, Expr, ExprLit, FnArg, ItemFn, Lit, Meta, Pat, Receiver, Type};

use crate::{
    attr::{ArgKeys, ToolKeys},
    errors::Errors,
    suggest::did_you_mean,
};

/// A parsed function under `#[tool]`.
pub(crate) struct Parsed {
    pub(crate) keys: ToolKeys,
    pub(crate) description: Option<String>,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) params: Vec<ParsedParam>,
    /// The function that is emitted again, without the attributes of this macro.
    pub(crate) item: ItemFn,
}

/// A parsed parameter.
pub(crate) struct ParsedParam {
    pub(crate) pattern: Pat,
    pub(crate) ty: Type,
    pub(crate) description: Option<String>,
    pub(crate) keys: ArgKeys,
    /// The parameter's last `#[arg(…)]`, if any, where errors are reported.
    pub(crate) arg: Option<Attribute>,
    /// The parameter's `#[ctx]`, if any.
    pub(crate) ctx: Option<Attribute>,
}

/// Attributes of a parameter that the compiler understands. They do not change the schema.
const LINT_LEVELS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// Parses a function; `None` if the item is not a function.
pub(crate) fn parse(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Parsed> {
    let mut item: ItemFn = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => {
            let hint = format!("`#[tool]` applies to an `async fn` with a body: {error}");
            errors.push(syn::Error::new(error.span(), hint));
            return None;
        }
    };
    let keys = ToolKeys::parse(attribute, errors);
    let description = description(&item.attrs, errors);
    let mut receiver = None;
    let mut params = Vec::new();
    for input in &mut item.sig.inputs {
        match input {
            FnArg::Receiver(argument) => receiver = Some(argument.clone()),
            FnArg::Typed(param) => {
                let attrs = std::mem::take(&mut param.attrs);
                let mut parsed = ParsedParam {
                    pattern: (*param.pat).clone(),
                    ty: (*param.ty).clone(),
                    description: self::description(&attrs, errors),
                    keys: ArgKeys::default(),
                    arg: None,
                    ctx: None,
                };
                param.attrs = attrs.into_iter().filter(|attr| keep(attr, &mut parsed, errors)).collect();
                params.push(parsed);
            }
        }
    }
    Some(Parsed { keys, description, receiver, params, item })
}

/// Reads one attribute of a parameter. Returns whether to emit the attribute again.
fn keep(attr: &Attribute, param: &mut ParsedParam, errors: &mut Errors) -> bool {
    let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
    match name.as_str() {
        "doc" => false,
        "arg" => {
            match &attr.meta {
                Meta::List(list) if !list.tokens.is_empty() => param.keys.add(list.tokens.clone(), errors),
                _ => {
                    errors.add_at(attr, "`#[arg]` takes keys: write `#[arg(path = \"read\")]`, for example");
                }
            }
            param.arg = Some(attr.clone());
            false
        }
        "ctx" => {
            if !matches!(attr.meta, Meta::Path(_)) {
                errors.add_at(attr, "`#[ctx]` takes no keys: write only `#[ctx]`");
            }
            param.ctx = Some(attr.clone());
            false
        }
        "cfg" | "cfg_attr" => {
            errors.add_at(
                attr,
                "a tool's schema cannot depend on `#[cfg]`: put it on the whole function, or make the parameter an `Option`",
            );
            false
        }
        level if LINT_LEVELS.contains(&level) => true,
        _ => {
            let suggestion = did_you_mean(&name, &["arg", "ctx"]);
            errors.add_at(attr, format!("unknown attribute `{name}` on a tool's parameter{suggestion}"));
            false
        }
    }
}

/// Returns the documentation: each line trimmed and joined by newlines, with blank lines kept between other
/// lines. `None` if there is no text.
pub(crate) fn description(attrs: &[Attribute], errors: &mut Errors) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("doc")) {
        // `#[doc(hidden)]` and similar attributes have no text.
        let Meta::NameValue(pair) = &attr.meta else {
            continue;
        };
        match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                let text = text.value();
                let block = text.contains('\n');
                // `split` instead of `lines`, which yields no line for the text of a blank `///`.
                lines.extend(text.split('\n').map(|line| trim(line, block).to_owned()));
            }
            other => errors.add_at(
                other,
                "a macro cannot read this text, and the model would not see it: write the description out",
            ),
        }
    }
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns a trimmed line, without the leading star that a line of a block comment has.
fn trim(line: &str, block: bool) -> &str {
    let line = line.trim();
    match line.strip_prefix('*') {
        Some(rest) if block => rest.trim(),
        _ => line,
    }
}
