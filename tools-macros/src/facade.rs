//! Where generated code finds the facade crate.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::Ident;

use crate::errors::Errors;

/// The package through which authors use the macros.
const FACADE: &str = "portcullis-sdk";

/// The absolute path of the facade's hidden module, under whatever name the author's crate depends on it.
pub(crate) fn path(errors: &mut Errors) -> TokenStream {
    let name = match crate_name(FACADE) {
        Ok(FoundCrate::Name(name)) => name,
        // The facade names itself (`extern crate self`), so that its tests and examples find it as well.
        Ok(FoundCrate::Itself) => FACADE.replace('-', "_"),
        Err(error) => {
            errors.push(syn::Error::new(
                Span::call_site(),
                format!("`{FACADE}` must be among this crate's dependencies: {error}"),
            ));
            FACADE.replace('-', "_")
        }
    };
    let name = Ident::new_raw(&name, Span::call_site());
    quote!(::#name::__private)
}
