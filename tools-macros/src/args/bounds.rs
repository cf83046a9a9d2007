//! `#[arg(min = …, max = …)]` on a field: the bounds of a number, as on a tool's parameter.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Field, Meta};

use super::attributes::has_own_schema;
use crate::{
    attr::ArgKeys,
    errors::Errors,
    kind::{self, ParameterKind, Shape},
    literal::Literal,
    spec, validate,
};

/// The bounds of a field. At least one of them is present.
pub(super) struct FieldBounds {
    min: Option<Literal>,
    max: Option<Literal>,
}

impl FieldBounds {
    /// Reads the `#[arg(…)]`s of a field; `None` without bounds, or after mistakes.
    pub(super) fn parse(field: &Field, errors: &mut Errors) -> Option<Self> {
        let attrs: Vec<&Attribute> = field.attrs.iter().filter(|attr| attr.path().is_ident("arg")).collect();
        let mut keys = ArgKeys::default();
        for attr in &attrs {
            match &attr.meta {
                Meta::List(list) if !list.tokens.is_empty() => keys.add(list.tokens.clone(), errors),
                _ => {
                    errors.add_at(attr, "`#[arg]` takes keys: write `#[arg(min = 1)]`, for example");
                }
            }
        }
        refuse_keys_other_than_bounds(&keys, errors);
        let bounds = || keys.min.iter().chain(&keys.max);
        bounds().next()?;
        if has_own_schema(&field.attrs) {
            bounds().for_each(|bound| {
                errors.add_at(bound, "this field has its own schema, which would not show this: remove one");
            });
            return None;
        }
        // A type that cannot be a parameter can still be a field, but it is not a number.
        let shape = match kind::classify(&field.ty) {
            Ok(ParameterKind::Value(shape)) => shape,
            _ => Shape::ANY_VALUE,
        };
        let (min, max) = validate::bounds(&keys, &shape, errors);
        (min.is_some() || max.is_some()).then_some(Self { min, max })
    }

    /// Both bounds as arguments of the facade's functions.
    pub(super) fn arguments(&self, facade: &TokenStream) -> TokenStream {
        let bound = |bound: &Option<Literal>| spec::bound(facade, bound.as_ref());
        let (min, max) = (bound(&self.min), bound(&self.max));
        quote!(#min, #max)
    }
}

/// Refuses keys that only parameters may have.
fn refuse_keys_other_than_bounds(keys: &ArgKeys, errors: &mut Errors) {
    let mut refuse = |token: Option<&dyn ToTokens>, hint: &str| {
        if let Some(token) = token {
            errors.add_at(&token, hint);
        }
    };
    const ROLE: &str = "the policy sees nothing within an argument: make it a parameter of the tool";
    refuse(keys.path.as_ref().map(|key| key as _), ROLE);
    refuse(keys.url.as_ref().map(|key| key as _), ROLE);
    refuse(keys.command.as_ref().map(|key| key as _), ROLE);
    refuse(
        keys.default.as_ref().map(|key| key as _),
        "serde sets a field's default: write `#[serde(default)]`",
    );
    for value in keys.one_of.iter().flatten().take(1) {
        refuse(Some(value), "a field that is one of several texts is an `enum` with `#[args]`: write one");
    }
}
