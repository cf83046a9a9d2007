//! Where generated code finds the facade crate.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Ident, LitStr, Path};

use crate::errors::Errors;

/// The package through which authors use the macros.
const FACADE: &str = "portcullis-sdk";

/// The path of the facade's hidden module: where the author says it is, else absolute, under whatever name the
/// author's crate depends on it.
pub(crate) fn path(given: Option<&LitStr>, errors: &mut Errors) -> TokenStream {
    if let Some(given) = given {
        return match given.parse_with(Path::parse_mod_style) {
            Ok(path) => quote!(#path::__private),
            Err(_) => {
                errors.at(
                    given,
                    format!("`{}` is no path: write `crate = \"my_crate::sdk\"`, for example", given.value()),
                );
                path(None, errors)
            }
        };
    }
    let name = match crate_name(FACADE) {
        Ok(FoundCrate::Name(name)) => name,
        // The facade names itself (`extern crate self`), so that its tests and examples find it as well.
        Ok(FoundCrate::Itself) => FACADE.replace('-', "_"),
        Err(error) => {
            errors.push(syn::Error::new(
                Span::call_site(),
                format!(
                    "`{FACADE}` must be among this crate's dependencies, or `crate = \"…\"` say where it is re-exported: {error}"
                ),
            ));
            FACADE.replace('-', "_")
        }
    };
    let name = Ident::new_raw(&name, Span::call_site());
    quote!(::#name::__private)
}
