//! What is emitted for a function with mistakes: the mistakes, the function, and stubs of all that other
//! code may name, so that a mistake is reported once and nothing else is.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn, Pat, parse_quote};

use crate::{errors::Errors, expand, kind, model::Names, parse::Parsed};

/// The mistakes, the function and its stubs.
pub(crate) fn fallback(facade: &TokenStream, parsed: Parsed, errors: Errors) -> TokenStream {
    let Parsed { mut item, receiver, .. } = parsed;
    // From the signature as it was written: other code names the stubs by it.
    let names = Names::of(&item.sig);
    // Reported already; the compiler would report them again in its own words.
    item.sig.constness = None;
    item.sig.variadic = None;
    item.sig.abi = None;
    item.sig.inputs.iter_mut().for_each(drop_rest);
    complete(&mut item);
    let errors = errors.into_tokens();
    // A receiver means that we stand in an `impl`, where no stub can.
    if receiver.is_some() {
        return quote!(#errors #item);
    }
    let spec = quote!(#facade::ToolSpec::STUB);
    let body = quote! {{
        let _ = (__portcullis_ctx, __portcullis_text);
        ::core::unreachable!()
    }};
    let stubs = expand::companions(facade, &names, &item.vis, &item.attrs, &spec, &body);
    quote!(#errors #item #stubs)
}

/// Leaves `name` of `name @ ..`, which is no parameter to the compiler either.
fn drop_rest(input: &mut FnArg) {
    if let FnArg::Typed(param) = input
        && let Pat::Ident(name) = &mut *param.pat
        && let Some((_, rest)) = &name.subpat
        && let Pat::Rest(_) = **rest
    {
        name.subpat = None;
    }
}

/// Puts a type in the place of each that the author has not written out. What the body does with it is unknown
/// then, so there is none.
fn complete(item: &mut ItemFn) {
    let mut found = false;
    for input in &mut item.sig.inputs {
        if let FnArg::Typed(param) = input
            && kind::is_unfinished(&param.ty)
        {
            *param.ty = parse_quote!(());
            found = true;
        }
    }
    if found {
        item.attrs.push(parse_quote!(#[allow(unused_variables)]));
        item.block = parse_quote!({ ::core::unreachable!() });
    }
}
