//! `#[args]`: makes an author's structure or enumeration a type that tools can take as a parameter.
//!
//! serde and schemars do the work. `#[args]` adds their derives to the type, with the right paths, and keeps the
//! two consistent: it refuses attributes that would let the decoder accept values that the schema does not
//! show.

mod attributes;
mod bounds;
mod expand;
mod fields;
mod rules;

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::{errors::Errors, facade};

/// Expands `#[args(attribute)] item`.
pub(crate) fn args(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let input: DeriveInput = match syn::parse2(item.clone()) {
        Ok(input) => input,
        Err(error) => {
            let hint = format!("`#[args]` applies to a `struct` or an `enum`: {error}");
            errors.push(syn::Error::new(error.span(), hint));
            let errors = errors.into_tokens();
            return quote!(#errors #item);
        }
    };
    let keys = attributes::Keys::parse(attribute, &mut errors);
    let facade = facade::path(keys.facade.as_ref(), &mut errors);
    let form = rules::check(&keys, &input, &mut errors);
    match form {
        Some(form) if errors.is_empty() => expand::expand(&facade, &keys, input, form),
        _ => expand::fallback(&facade, input, errors),
    }
}
