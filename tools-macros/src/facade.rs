//! Finds the facade crate for generated code.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Ident, LitStr, Path};

use crate::errors::Errors;

/// The package through which authors use the macros.
const FACADE: &str = "portcullis-sdk";

/// The path of the facade's hidden module: the author's path if given, else an absolute one, by the name
/// under which the author's crate depends on the facade.
pub(crate) fn path(given: Option<&LitStr>, errors: &mut Errors) -> TokenStream {
    if let Some(given) = given {
        return match given.parse_with(Path::parse_mod_style) {
            Ok(path) => quote!(#path::__private),
            Err(_) => {
                errors.at(
                    given,
                    format!(
                        "`{}` is not a path: write `crate = \"my_crate::sdk\"`, for example",
                        given.value()
                    ),
                );
                path(None, errors)
            }
        };
    }
    let name = match crate_name(FACADE) {
        Ok(FoundCrate::Name(name)) => name,
        // The facade refers to itself by name (`extern crate self`), so its tests and examples find it too.
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
