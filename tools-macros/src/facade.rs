//! Finds the facade crate for generated code.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Ident, LitStr, Path};

use crate::errors::Errors;

/// The package that re-exports the macros for authors.
const FACADE: &str = "portcullis-sdk";

/// Returns the path of the facade's hidden module: the author's path if given, otherwise an absolute path
/// with the name that the author's crate gives to the facade in its dependencies.
pub(crate) fn path(override_path: Option<&LitStr>, errors: &mut Errors) -> TokenStream {
    if let Some(override_path) = override_path {
        return match override_path.parse_with(Path::parse_mod_style) {
            Ok(path) => quote!(#path::__private),
            Err(_) => {
                errors.add_at(
                    override_path,
                    format!(
                        "`{}` is not a path: write `crate = \"my_crate::sdk\"`, for example",
                        override_path.value()
                    ),
                );
                path(None, errors)
            }
        };
    }
    let name = match crate_name(FACADE) {
        Ok(FoundCrate::Name(name)) => name,
        // The facade refers to itself by name (`extern crate self`), so this path also works in its tests and examples.
        Ok(FoundCrate::Itself) => FACADE.replace('-', "_"),
        Err(error) => {
            errors.push(syn::Error::new(
                Span::call_site(),
                format!(
                    "add `{FACADE}` to this crate's dependencies, or name its re-export with `crate = \"…\"`: {error}"
                ),
            ));
            FACADE.replace('-', "_")
        }
    };
    let name = Ident::new_raw(&name, Span::call_site());
    quote!(::#name::__private)
}
