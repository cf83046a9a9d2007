//! `export_tools![…]`: the `fn main` of a module.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Path, PathArguments, Token, ext::IdentExt, parse::Parser, punctuated::Punctuated};

use crate::{errors::Errors, facade};

/// Expands `export_tools![a, path::b]` to a `fn main` that serves the tools of these functions.
pub(crate) fn export_tools(input: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let facade = facade::path(None, &mut errors);
    let parsed = Punctuated::<Path, Token![,]>::parse_terminated.parse2(input);
    let paths = errors.ok(parsed).unwrap_or_default();
    if paths.is_empty() && errors.is_empty() {
        let hint = "name the functions to export: write `export_tools![file_read]`, for example";
        errors.push(syn::Error::new(proc_macro2::Span::call_site(), hint));
    }
    let mut seen = BTreeSet::new();
    let mut constructors = Vec::new();
    for mut path in paths {
        let written = path.to_token_stream().to_string();
        if !seen.insert(written) {
            errors.at(&path, "this tool is exported twice: name it once");
        }
        let Some(last) = path.segments.last_mut() else {
            continue;
        };
        if !matches!(last.arguments, PathArguments::None) {
            errors.at(&last.arguments, "a tool has no generics: name the function alone");
            // The mistake is reported already; the compiler would report it again.
            last.arguments = PathArguments::None;
        }
        last.ident = syn::Ident::new(&format!("{}_tool", last.ident.unraw()), last.ident.span());
        constructors.push(path);
    }
    let errors = errors.into_tokens();
    quote! {
        #errors

        fn main() -> ::std::process::ExitCode {
            #facade::main(&[#(&#constructors() as &dyn #facade::DeclaredTool),*])
        }
    }
}
