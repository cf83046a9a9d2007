//! The macros of Portcullis: `#[tool]`, `#[args]` and `export_tools!`.
//!
//! Tool authors never name this crate: they use the macros through `portcullis-sdk`, whose documentation
//! shows examples.
//!
//! A `#[tool]` function passes through the modules in order: it is parsed (`parse`), checked against the rules
//! (`validate`), and expanded (`expand`). A function with mistakes is instead emitted with stubs (`fallback`), so
//! that each mistake gives exactly one error.
//!
//! The crate has no run-time logic. It emits data and a few calls into the facade's hidden `__private`
//! module, where schema and decoding are ordinary, tested code.
#![forbid(unsafe_code)]

mod args;
mod attr;
mod errors;
mod expand;
#[cfg(test)]
mod expansions;
mod export;
mod facade;
mod fallback;
mod kind;
mod literal;
mod model;
mod parse;
mod spec;
mod suggest;
mod tool;
mod undocumented;
mod validate;

use proc_macro::TokenStream;

/// Makes a tool from an async function. Documented in `portcullis-sdk`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    tool::tool(attribute.into(), &item.into()).into()
}

/// Makes a type that tools can take as a parameter. Documented in `portcullis-sdk`.
#[proc_macro_attribute]
pub fn args(attribute: TokenStream, item: TokenStream) -> TokenStream {
    args::args(attribute.into(), &item.into()).into()
}

/// Makes the `fn main` of a module that exports tools. Documented in `portcullis-sdk`.
#[proc_macro]
pub fn export_tools(input: TokenStream) -> TokenStream {
    export::export_tools(input.into()).into()
}
