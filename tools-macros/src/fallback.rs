//! What is emitted for a function with mistakes: the mistakes, the function, and stubs of all that other
//! code may name, so that a mistake is reported once and nothing else is.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{errors::Errors, expand, model::Names, parse::Parsed};

/// The mistakes, the function and its stubs.
pub(crate) fn fallback(facade: &TokenStream, parsed: Parsed, errors: Errors) -> TokenStream {
    let Parsed { mut item, receiver, .. } = parsed;
    // Reported already; the compiler would report them again in its own words.
    item.sig.constness = None;
    item.sig.variadic = None;
    item.sig.abi = None;
    let errors = errors.into_tokens();
    // A receiver means that we stand in an `impl`, where no stub can.
    if receiver.is_some() {
        return quote!(#errors #item);
    }
    let names = Names::of(&item.sig);
    let spec = quote!(#facade::ToolSpec::STUB);
    let body = quote! {{
        let _ = (__portcullis_ctx, __portcullis_text);
        ::core::unreachable!()
    }};
    let stubs = expand::companions(facade, &names, &item.vis, &item.attrs, &spec, &body);
    quote!(#errors #item #stubs)
}
