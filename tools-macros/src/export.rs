//! `export_tools![…]`: makes the `fn main` of a module.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Path, PathArguments, Token, ext::IdentExt, parse::Parser, punctuated::Punctuated, spanned::Spanned,
};

use crate::{errors::Errors, expand::shown_at, facade};

/// Expands `export_tools![a, path::b]` to a `fn main` that serves the tools made from these functions.
pub(crate) fn export_tools(input: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let facade = facade::path(None, &mut errors);
    let parsed = Punctuated::<Path, Token![,]>::parse_terminated.parse2(input);
    let paths = errors.ok(parsed).unwrap_or_default();
    if paths.is_empty() && errors.is_empty() {
        let hint = "name the functions to export: write `export_tools![file_read]`, for example";
        errors.push(syn::Error::new(proc_macro2::Span::call_site(), hint));
    }
    let mut seen_paths = BTreeSet::new();
    let mut constructors = Vec::new();
    for mut path in paths {
        let path_text = path.to_token_stream().to_string();
        if !seen_paths.insert(path_text) {
            errors.add_at(&path, "this tool is exported twice: name it once");
        }
        let Some(segment) = path.segments.last_mut() else {
            continue;
        };
        if !matches!(segment.arguments, PathArguments::None) {
            errors.add_at(&segment.arguments, "a tool has no generics: name only the function");
            // Remove the arguments: the mistake is reported already, and the compiler would report it again.
            segment.arguments = PathArguments::None;
        }
        segment.ident = syn::Ident::new(&format!("{}_tool", segment.ident.unraw()), segment.ident.span());
        // A tool that cannot be exported is reported at its name.
        constructors.push(quote_spanned!(shown_at(path.span())=> #facade::module_tool(&#path())));
    }
    let errors = errors.into_tokens();
    quote! {
        #errors

        fn main() -> ::std::process::ExitCode {
            #facade::main(&[#(#constructors),*])
        }
    }
}
