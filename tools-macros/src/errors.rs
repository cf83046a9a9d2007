//! Collects all mistakes of one function, so that one compilation reports all of them.

use std::fmt::Display;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// The mistakes found so far. A step continues after a mistake if the rest does not depend on it.
#[derive(Default)]
pub(crate) struct Errors(Vec<syn::Error>);

impl Errors {
    /// Reports a mistake, which underlines all of these tokens.
    pub(crate) fn add_at(&mut self, tokens: &impl ToTokens, message: impl Display) {
        self.0.push(syn::Error::new_spanned(tokens, message));
    }

    /// Reports a mistake that the parser found.
    pub(crate) fn push(&mut self, error: syn::Error) {
        self.0.push(error);
    }

    /// Returns the value, or reports its mistake.
    pub(crate) fn ok<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One `compile_error!` per mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.into_iter().map(|error| error.into_compile_error()).collect()
    }
}
