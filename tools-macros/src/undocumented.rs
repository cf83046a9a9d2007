//! The warning for a tool that says nothing of itself.
//!
//! Stable Rust lets no macro warn. What it may do is use something that is deprecated, with the words to say
//! about that; so the compiler's own lint speaks, and its levels apply.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Ident, ItemFn, Meta, Token, punctuated::Punctuated};

use crate::model::Model;

/// The warning, at the function's name; nothing for a tool with documentation.
pub(crate) fn warning(item: &mut ItemFn, model: &Model) -> TokenStream {
    if model.description.is_some() {
        return TokenStream::new();
    }
    // An expectation would be unmet at the function: what it waits for is here.
    let (expected, kept): (Vec<_>, _) =
        std::mem::take(&mut item.attrs).into_iter().partition(expects_deprecation);
    item.attrs = kept;
    let levels = item.attrs.iter().filter(|attr| is_any(attr, &LEVELS));
    let cfgs = item.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let note = format!(
        "tool `{}` has no documentation, and a model chooses by it: write `///` and what the tool does above the function",
        model.name
    );
    // The use is what is reported, and where.
    let used = Ident::new("UNDOCUMENTED_TOOL", item.sig.ident.span());
    quote! {
        #(#cfgs)*
        #(#levels)*
        #(#expected)*
        const _: () = {
            #[deprecated(note = #note)]
            const UNDOCUMENTED_TOOL: () = ();
            #used
        };
    }
}

/// The levels of lints that hold for the warning as they do for the function.
const LEVELS: [&str; 4] = ["allow", "warn", "deny", "forbid"];

fn is_any(attr: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attr.path().is_ident(name))
}

/// Whether this is `#[expect(deprecated)]`, with or without a reason, and of nothing else.
fn expects_deprecation(attr: &Attribute) -> bool {
    if !attr.path().is_ident("expect") {
        return false;
    }
    let Ok(metas) = attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
        return false;
    };
    let mut lints = metas.iter().filter(|meta| !meta.path().is_ident("reason"));
    lints.next().is_some_and(|lint| lint.path().is_ident("deprecated")) && lints.next().is_none()
}
