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

/// Defines the keys of an attribute: for each key its name, the field of its value, the value's type, and the function
/// that reads it.
macro_rules! keys {
    ($(#[$doc:meta])* $name:ident of $attribute:literal {
        $($(#[$field_doc:meta])* $key:literal => $field:ident: $value:ty = $read:ident,)+
    }) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: Option<$value>,)+
        }

        impl $name {
            const KNOWN: &[&str] = &[$($key),+];

            /// Adds the keys between an attribute's parentheses.
            pub(crate) fn add(&mut self, tokens: TokenStream, errors: &mut Errors) {
                for meta in metas(tokens, errors) {
                    match key(&meta).as_str() {
                        $($key => set(&mut self.$field, &meta, $read, errors),)+
                        other => unknown($attribute, other, &meta, Self::KNOWN, errors),
                    }
                }
            }
        }
    };
}

keys! {
    /// The keys of `#[tool(…)]`.
    ToolKeys of "#[tool]" {
        "name" => name: LitStr = string,
        "label" => label: LitStr = string,
        "tier" => tier: Ident = identifier,
        "timeout" => timeout: LitStr = string,
        "approval" => approval: Ident = identifier,
        "profile" => profile: Ident = identifier,
        "deny_unknown" => deny_unknown: Path = flag,
        "idempotent" => idempotent: Path = flag,
        "hidden" => hidden: Path = flag,
        "local" => local: Path = flag,
        "output_cap" => output_cap: LitStr = string,
        "aliases" => aliases: Vec<LitStr> = strings,
        "hosts" => hosts: Vec<LitStr> = array,
        /// The author's path of the facade, if given.
        "crate" => facade: LitStr = string,
    }
}

keys! {
    /// The keys of all `#[arg(…)]`s of one parameter.
    ArgKeys of "#[arg]" {
        "path" => path: LitStr = string,
        "entry" => entry: Path = flag,
        "url" => url: Path = flag,
        "command" => command: Path = flag,
        "default" => default: DefaultKey = default,
        "min" => min: Expr = expression,
        "max" => max: Expr = expression,
        "one_of" => one_of: Vec<LitStr> = strings,
    }
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
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut keys = Self::default();
        keys.add(tokens, errors);
        keys
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

fn identifier(meta: &Meta) -> syn::Result<Ident> {
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
            Err(syn::Error::new_spanned(meta, format!("`{0}` takes no value: write only `{0}`", key(meta))))
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

/// Reads an array of strings, such as `key = ["…"]`.
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
