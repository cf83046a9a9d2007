//! The keys of `#[args(…)]`, and the attributes of serde and schemars that may accompany it.

use proc_macro2::TokenStream;
use syn::{Attribute, LitStr, Meta, Path};

use crate::{
    attr::{flag, key, metas, set, string, unknown},
    errors::Errors,
    suggest::{did_you_mean, list},
};

/// The keys of `#[args(…)]`.
#[derive(Default)]
pub(crate) struct Keys {
    pub(crate) deny_unknown: Option<Path>,
    /// The author's path of the facade, if given.
    pub(crate) facade: Option<LitStr>,
}

impl Keys {
    const KNOWN: [&str; 2] = ["deny_unknown", "crate"];

    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut keys = Self::default();
        for meta in metas(tokens, errors) {
            match key(&meta).as_str() {
                "deny_unknown" => set(&mut keys.deny_unknown, &meta, flag, errors),
                "crate" => set(&mut keys.facade, &meta, string, errors),
                other => unknown("#[args]", other, &meta, &Self::KNOWN, errors),
            }
        }
        keys
    }
}

/// The item that an attribute is on.
#[derive(Clone, Copy)]
pub(crate) enum AttributeTarget {
    Container,
    Variant,
    Field,
}

impl AttributeTarget {
    /// Returns the attributes of serde that the schema also shows.
    const fn allowed(self) -> &'static [&'static str] {
        match self {
            Self::Container => {
                &["rename", "rename_all", "rename_all_fields", "default", "tag", "untagged", "transparent"]
            }
            Self::Variant => &["rename", "rename_all", "skip"],
            Self::Field => &["rename", "default", "skip", "skip_serializing_if"],
        }
    }
}

/// Reads serde's attributes, and refuses those that the schema cannot show.
pub(crate) fn serde(attrs: &[Attribute], target: AttributeTarget, errors: &mut Errors) -> Vec<Meta> {
    let mut accepted = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        let Meta::List(items) = &attr.meta else {
            continue;
        };
        for meta in metas(items.tokens.clone(), errors) {
            let name = key(&meta);
            if target.allowed().contains(&name.as_str()) {
                accepted.push(meta);
            } else {
                errors.add_at(meta.path(), refusal(&name, target));
            }
        }
    }
    accepted
}

/// Whether the author provides the schema of a field.
pub(crate) fn has_own_schema(attrs: &[Attribute]) -> bool {
    attrs.iter().filter(|attr| attr.path().is_ident("schemars")).any(|attr| match &attr.meta {
        Meta::List(items) => metas(items.tokens.clone(), &mut Errors::default())
            .iter()
            .any(|meta| ["with", "schema_with"].contains(&key(meta).as_str())),
        Meta::Path(_) | Meta::NameValue(_) => false,
    })
}

/// Refuses `#[arg]` on anything except a field.
pub(crate) fn refuse_arg_attributes(attrs: &[Attribute], errors: &mut Errors) {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("arg")) {
        errors
            .add_at(attr, "`#[arg]` is for a tool's parameters and the fields of `#[args]`: move it to one");
    }
}

/// Refuses attributes that would put constraints into the schema that the decoder does not check.
pub(crate) fn schemars(attrs: &[Attribute], errors: &mut Errors) {
    const ALLOWED: [&str; 4] = ["with", "schema_with", "description", "example"];
    for attr in attrs {
        let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
        match (name.as_str(), &attr.meta) {
            ("schemars", Meta::List(items)) => {
                for meta in metas(items.tokens.clone(), errors) {
                    let name = key(&meta);
                    if !ALLOWED.contains(&name.as_str()) {
                        let allowed_keys = list(&ALLOWED);
                        let instead = match name.as_str() {
                            "range" => "write `#[arg(min = 1, max = 10)]`",
                            _ => "check it in the tool's body",
                        };
                        errors.add_at(
                            meta.path(),
                            format!("`{name}` would state a rule that the decoder does not check: {instead} (the keys here are {allowed_keys})"),
                        );
                    }
                }
            }
            ("validate" | "garde", _) => {
                errors.add_at(attr, "the decoder does not check these: write `#[arg(min = 1, max = 10)]` on a number, and check all else in the tool's body");
            }
            _ => {}
        }
    }
}

fn refusal(name: &str, target: AttributeTarget) -> String {
    let reason = match name {
        "alias" | "other" => "the decoder would accept names that the schema does not show: remove it",
        "flatten" => "a schema of fields from several places confuses models: write the fields out",
        "deny_unknown_fields" => {
            return "`deny_unknown_fields` has a shorter name: write `#[args(deny_unknown)]`".to_owned();
        }
        "content" => "a tag is enough: give the variant named fields and write only `tag`",
        "from" | "try_from" | "into" | "remote" | "with" | "deserialize_with" | "serialize_with" => {
            "the schema would be of another type than the decoder's: convert in the tool's body"
        }
        "skip_deserializing" | "skip_serializing" => {
            "what is read and what is written would differ: write `skip`"
        }
        "crate" | "bound" | "borrow" => "`#[args]` sets this itself: remove it",
        _ => {
            let suggestion = did_you_mean(name, target.allowed());
            let allowed_keys = list(target.allowed());
            return format!(
                "serde's `{name}` is not supported here{suggestion} (those that the schema shows are {allowed_keys})"
            );
        }
    };
    format!("`{name}`: {reason}")
}
