//! The keys of `#[tool(…)]` and `#[arg(…)]`. This module reads their syntax, and [`crate::validate`] checks their
//! meaning.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{
    Expr, ExprLit, Ident, Lit, LitStr, Meta, MetaNameValue, Path, Token, parse::Parser,
    punctuated::Punctuated,
};

use crate::{
    errors::Errors,
    suggest::{did_you_mean, list},
};

/// The keys of `#[tool(…)]`.
#[derive(Default)]
pub(crate) struct ToolKeys {
    pub(crate) name: Option<LitStr>,
    pub(crate) label: Option<LitStr>,
    pub(crate) tier: Option<Ident>,
    pub(crate) timeout: Option<LitStr>,
    pub(crate) approval: Option<Ident>,
    pub(crate) profile: Option<Ident>,
    pub(crate) deny_unknown: Option<Path>,
    pub(crate) idempotent: Option<Path>,
    pub(crate) hidden: Option<Path>,
    pub(crate) local: Option<Path>,
    pub(crate) output_cap: Option<LitStr>,
    pub(crate) aliases: Option<Vec<LitStr>>,
    pub(crate) hosts: Option<Vec<LitStr>>,
    /// The author's path of the facade, if given.
    pub(crate) facade: Option<LitStr>,
}

/// The keys of all `#[arg(…)]`s of one parameter.
#[derive(Default)]
pub(crate) struct ArgKeys {
    pub(crate) path: Option<LitStr>,
    pub(crate) entry: Option<Path>,
    pub(crate) url: Option<Path>,
    pub(crate) command: Option<Path>,
    pub(crate) default: Option<DefaultKey>,
    pub(crate) min: Option<Expr>,
    pub(crate) max: Option<Expr>,
    pub(crate) one_of: Option<Vec<LitStr>>,
}

/// `default` or `default = …`.
pub(crate) enum DefaultKey {
    /// The type's own default.
    Own(Path),
    /// The value of an expression.
    Value(Expr),
}

impl ToTokens for DefaultKey {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Own(path) => path.to_tokens(tokens),
            Self::Value(expr) => expr.to_tokens(tokens),
        }
    }
}

impl ToolKeys {
    const KNOWN: [&str; 14] = [
        "name",
        "label",
        "tier",
        "timeout",
        "approval",
        "profile",
        "deny_unknown",
        "idempotent",
        "hidden",
        "local",
        "output_cap",
        "aliases",
        "hosts",
        "crate",
    ];

    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut keys = Self::default();
        for meta in metas(tokens, errors) {
            match key(&meta).as_str() {
                "name" => set(&mut keys.name, &meta, string, errors),
                "label" => set(&mut keys.label, &meta, string, errors),
                "tier" => set(&mut keys.tier, &meta, word, errors),
                "timeout" => set(&mut keys.timeout, &meta, string, errors),
                "approval" => set(&mut keys.approval, &meta, word, errors),
                "profile" => set(&mut keys.profile, &meta, word, errors),
                "deny_unknown" => set(&mut keys.deny_unknown, &meta, flag, errors),
                "idempotent" => set(&mut keys.idempotent, &meta, flag, errors),
                "hidden" => set(&mut keys.hidden, &meta, flag, errors),
                "local" => set(&mut keys.local, &meta, flag, errors),
                "output_cap" => set(&mut keys.output_cap, &meta, string, errors),
                "aliases" => set(&mut keys.aliases, &meta, strings, errors),
                "hosts" => set(&mut keys.hosts, &meta, array, errors),
                "crate" => set(&mut keys.facade, &meta, string, errors),
                other => unknown("#[tool]", other, &meta, &Self::KNOWN, errors),
            }
        }
        keys
    }
}

impl ArgKeys {
    const KNOWN: [&str; 8] = ["path", "entry", "url", "command", "default", "min", "max", "one_of"];

    /// Adds the keys of another `#[arg(…)]`.
    pub(crate) fn add(&mut self, tokens: TokenStream, errors: &mut Errors) {
        for meta in metas(tokens, errors) {
            match key(&meta).as_str() {
                "path" => set(&mut self.path, &meta, string, errors),
                "entry" => set(&mut self.entry, &meta, flag, errors),
                "url" => set(&mut self.url, &meta, flag, errors),
                "command" => set(&mut self.command, &meta, flag, errors),
                "default" => set(&mut self.default, &meta, default, errors),
                "min" => set(&mut self.min, &meta, expression, errors),
                "max" => set(&mut self.max, &meta, expression, errors),
                "one_of" => set(&mut self.one_of, &meta, strings, errors),
                other => unknown("#[arg]", other, &meta, &Self::KNOWN, errors),
            }
        }
    }
}

/// The keys between an attribute's parentheses.
pub(crate) fn metas(tokens: TokenStream, errors: &mut Errors) -> Vec<Meta> {
    let parsed = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens);
    errors.ok(parsed).map(|metas| metas.into_iter().collect()).unwrap_or_default()
}

/// The name of a key.
pub(crate) fn key(meta: &Meta) -> String {
    meta.path().get_ident().map_or_else(|| meta.path().to_token_stream().to_string(), Ident::to_string)
}

pub(crate) fn set<T>(
    slot: &mut Option<T>,
    meta: &Meta,
    read: fn(&Meta) -> syn::Result<T>,
    errors: &mut Errors,
) {
    if slot.is_some() {
        errors.add_at(meta, format!("`{}` is given twice: write it once", key(meta)));
    } else if let Some(value) = errors.ok(read(meta)) {
        *slot = Some(value);
    }
}

pub(crate) fn unknown(attribute: &str, key: &str, meta: &Meta, known_keys: &[&str], errors: &mut Errors) {
    let suggestion = did_you_mean(key, known_keys);
    let key_list = list(known_keys);
    errors.add_at(
        meta.path(),
        format!("unknown key `{key}` of `{attribute}`{suggestion} (the keys are {key_list})"),
    );
}

/// The value of `key = value`.
fn value<'m>(meta: &'m Meta, example: &str) -> syn::Result<&'m MetaNameValue> {
    match meta {
        Meta::NameValue(pair) => Ok(pair),
        Meta::Path(_) | Meta::List(_) => Err(syn::Error::new_spanned(
            meta,
            format!("`{0}` takes a value: write `{0} = {example}`", key(meta)),
        )),
    }
}

pub(crate) fn string(meta: &Meta) -> syn::Result<LitStr> {
    match &value(meta, "\"…\"")?.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(syn::Error::new_spanned(
            other,
            format!("`{0}` takes a string: write `{0} = \"…\"`", key(meta)),
        )),
    }
}

fn word(meta: &Meta) -> syn::Result<Ident> {
    let pair = value(meta, "Word")?;
    if let Expr::Path(path) = &pair.value
        && let Some(word) = path.path.get_ident()
    {
        return Ok(word.clone());
    }
    let bare_word = match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
        _ => "Word".to_owned(),
    };
    Err(syn::Error::new_spanned(
        &pair.value,
        format!("`{0}` takes a bare word: write `{0} = {bare_word}`, without quotes or path", key(meta)),
    ))
}

fn default(meta: &Meta) -> syn::Result<DefaultKey> {
    match meta {
        Meta::Path(path) => Ok(DefaultKey::Own(path.clone())),
        Meta::List(_) | Meta::NameValue(_) => expression(meta).map(DefaultKey::Value),
    }
}

fn expression(meta: &Meta) -> syn::Result<Expr> {
    value(meta, "1").map(|pair| pair.value.clone())
}

pub(crate) fn flag(meta: &Meta) -> syn::Result<Path> {
    match meta {
        Meta::Path(path) => Ok(path.clone()),
        Meta::List(_) | Meta::NameValue(_) => {
            Err(syn::Error::new_spanned(meta, format!("`{0}` takes no value: write `{0}` alone", key(meta))))
        }
    }
}

fn strings(meta: &Meta) -> syn::Result<Vec<LitStr>> {
    let hint = || {
        let name = key(meta);
        syn::Error::new_spanned(meta, format!("write `{name}(\"a\", \"b\")`, with at least one string"))
    };
    let Meta::List(list) = meta else {
        return Err(hint());
    };
    let parsed = list.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated);
    match parsed {
        Ok(values) if !values.is_empty() => Ok(values.into_iter().collect()),
        _ => Err(hint()),
    }
}

/// An array of strings, such as `key = ["…"]`.
fn array(meta: &Meta) -> syn::Result<Vec<LitStr>> {
    let expression = &value(meta, "[\"…\"]")?.value;
    let hint = || {
        let text = format!("`{0}` takes strings: write `{0} = [\"…\"]`, with at least one", key(meta));
        syn::Error::new_spanned(expression, text)
    };
    let Expr::Array(array) = expression else { return Err(hint()) };
    let strings = array.elems.iter().map(|element| match element {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        _ => Err(hint()),
    });
    let strings = strings.collect::<syn::Result<Vec<_>>>()?;
    if strings.is_empty() { Err(hint()) } else { Ok(strings) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The words in backticks at the start of a table's rows, up to the first other character.
    fn keys(document: &str, heading: &str) -> BTreeSet<String> {
        let document = format!("{}/../{document}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(document).expect("readable");
        let (_, table) = text.split_once(heading).expect("the table");
        let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
        let key = |row: &str| {
            let (word, _) =
                row.strip_prefix("| `")?.split_once(|c: char| !c.is_ascii_lowercase() && c != '_')?;
            Some(word.to_owned())
        };
        rows.filter_map(key).collect()
    }

    #[test]
    fn the_document_has_each_key_of_a_tool() {
        let known: BTreeSet<String> = ToolKeys::KNOWN.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(keys("sdk/docs/tool.md", "| `#[tool(…)]` |"), known);
    }
}
