//! Warns about a tool without documentation.
//!
//! Stable Rust does not let macros warn. But a macro can emit a deprecated item with a message of its choice, and a
//! use of that item. The compiler's own lint then reports the use, and lint levels apply.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Ident, ItemFn, Meta, Token, punctuated::Punctuated};

use crate::model::Model;

/// The warning, at the function's name; empty for a documented tool.
pub(crate) fn warning(item: &mut ItemFn, model: &Model) -> TokenStream {
    if model.description.is_some() {
        return TokenStream::new();
    }
    // Move an `expect` to the use of the deprecated item below. At the function it would be unfulfilled.
    let (expected, other_attrs): (Vec<_>, _) =
        std::mem::take(&mut item.attrs).into_iter().partition(expects_deprecation);
    item.attrs = other_attrs;
    let levels = item.attrs.iter().filter(|attr| is_any(attr, &LEVELS));
    let cfgs = item.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let note = format!(
        "tool `{}` has no documentation, and a model chooses by it: write `///` and what the tool does above the function",
        model.name
    );
    // The warning is reported at the span of this use.
    let warning_name = Ident::new("UNDOCUMENTED_TOOL", item.sig.ident.span());
    quote! {
        #(#cfgs)*
        #(#levels)*
        #(#expected)*
        const _: () = {
            #[deprecated(note = #note)]
            const UNDOCUMENTED_TOOL: () = ();
            #warning_name
        };
    }
}

/// The lint levels of the function, which must apply to the warning too.
const LEVELS: [&str; 4] = ["allow", "warn", "deny", "forbid"];

fn is_any(attr: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attr.path().is_ident(name))
}

/// Whether this is exactly `#[expect(deprecated)]`, with or without a reason.
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
