//! The steps of a `#[tool]` function: parse, validate, expand, or fall back.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{errors::Errors, expand, facade, fallback, parse, validate};

/// Expands `#[tool(attribute)] item`.
pub(crate) fn tool(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let Some(parsed) = parse::parse(attribute, item.clone(), &mut errors) else {
        let errors = errors.into_tokens();
        return quote!(#errors #item);
    };
    let facade = facade::path(parsed.keys.facade.as_ref(), &mut errors);
    match validate::validate(&parsed, &mut errors) {
        Some(model) if errors.is_empty() => expand::expand(&facade, parsed, &model),
        _ => fallback::fallback(&facade, parsed, errors),
    }
}
