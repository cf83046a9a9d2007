//! Expands a function that has mistakes: emits the errors, the function, and stubs of everything that other code may
//! refer to. The stubs prevent follow-up errors, so each mistake is reported once.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn, Pat, parse_quote};

use crate::{errors::Errors, expand, kind, model::CompanionNames, parse::Parsed};

/// The errors, the function and its stubs.
pub(crate) fn fallback(facade: &TokenStream, parsed: Parsed, errors: Errors) -> TokenStream {
    let Parsed { mut item, receiver, .. } = parsed;
    // Take the names from the signature as written, because other code refers to the stubs by them.
    let names = CompanionNames::new(&item.sig);
    // Remove the mistakes that are reported already, because the compiler would report them again.
    item.sig.constness = None;
    item.sig.variadic = None;
    item.sig.abi = None;
    item.sig.inputs.iter_mut().for_each(drop_rest);
    replace_unfinished_types(&mut item);
    let errors = errors.into_tokens();
    // With a receiver the function is in an `impl`, where items cannot be defined.
    if receiver.is_some() {
        return quote!(#errors #item);
    }
    let spec = quote!(#facade::ToolSpec::STUB);
    let body = quote! {{
        let _ = (__portcullis_ctx, __portcullis_text);
        ::core::unreachable!()
    }};
    let stubs = expand::companions(facade, &names, &item.vis, &item.attrs, &[], &spec, &body);
    quote!(#errors #item #stubs)
}

/// Reduces `name @ ..` to `name`, because the compiler would refuse the pattern again.
fn drop_rest(input: &mut FnArg) {
    if let FnArg::Typed(param) = input
        && let Pat::Ident(name) = &mut *param.pat
        && let Some((_, rest)) = &name.subpat
        && let Pat::Rest(_) = **rest
    {
        name.subpat = None;
    }
}

/// Replaces unfinished types by `()`. The body may not fit the new types, so it is replaced too.
fn replace_unfinished_types(item: &mut ItemFn) {
    let mut has_unfinished = false;
    for input in &mut item.sig.inputs {
        if let FnArg::Typed(param) = input
            && kind::is_unfinished(&param.ty)
        {
            *param.ty = parse_quote!(());
            has_unfinished = true;
        }
    }
    if has_unfinished {
        item.attrs.push(parse_quote!(#[allow(unused_variables)]));
        item.block = parse_quote!({ ::core::unreachable!() });
    }
}
