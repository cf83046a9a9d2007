//! Emits a function with mistakes: the mistakes, the function, and stubs of everything that other code may
//! refer to, so that each mistake is reported once, without follow-up errors.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn, Pat, parse_quote};

use crate::{errors::Errors, expand, kind, model::CompanionNames, parse::Parsed};

/// The mistakes, the function and its stubs.
pub(crate) fn fallback(facade: &TokenStream, parsed: Parsed, errors: Errors) -> TokenStream {
    let Parsed { mut item, receiver, .. } = parsed;
    // From the signature as written, since other code refers to the stubs by these names.
    let names = CompanionNames::of(&item.sig);
    // These mistakes are reported already; the compiler would report them again.
    item.sig.constness = None;
    item.sig.variadic = None;
    item.sig.abi = None;
    item.sig.inputs.iter_mut().for_each(drop_rest);
    complete(&mut item);
    let errors = errors.into_tokens();
    // A receiver means that the function is in an `impl`, where stubs cannot stand.
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

/// Reduces `name @ ..`, which the compiler refuses too, to `name`.
fn drop_rest(input: &mut FnArg) {
    if let FnArg::Typed(param) = input
        && let Pat::Ident(name) = &mut *param.pat
        && let Some((_, rest)) = &name.subpat
        && let Pat::Rest(_) = **rest
    {
        name.subpat = None;
    }
}

/// Replaces unfinished types. The body may not fit the new types, so it is removed too.
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
