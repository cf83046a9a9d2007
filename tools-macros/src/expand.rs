//! Expands a valid tool.
//!
//! All paths are absolute, so that the author's definitions cannot change their meaning. The expansion is data as
//! far as possible: the facade derives the schema, the declaration and the decoding from one `static` description.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::{Attribute, ReturnType, Type, parse_quote_spanned, spanned::Spanned};

use crate::{
    kind::Shape,
    literal::Literal,
    model::{ArgumentDefault, CompanionNames, Model, Param, ToolArgument},
    parse::Parsed,
    spec, undocumented,
};

/// The function and its companions.
pub(crate) fn expand(facade: &TokenStream, parsed: Parsed, model: &Model) -> TokenStream {
    let Parsed { mut item, .. } = parsed;
    let names = CompanionNames::new(&item.sig);
    let spec = spec::spec(facade, &names, &item.sig.output, model);
    let defaults = defaults(facade, &names, &item.attrs, model);
    let warning = undocumented::warning(&mut item, model);
    let body = body(facade, &names, &item.sig.output, model);
    let companions = companions(facade, &names, &item.vis, &item.attrs, &model.states(), &spec, &body);
    if needs_errors_section(&item.sig.output, model) {
        // Lints ignore documentation with a macro's span, so this text gets the span of the function's name.
        item.attrs.push(parse_quote_spanned! {item.sig.ident.span()=>
            #[doc = "\n# Errors\nWhat the tool reports to its caller."]
        });
    }
    quote! {
        #item
        #warning
        #companions
        #defaults
    }
}

/// Returns the defaults that are expressions. Each is compiled once, because schema and decoding call the
/// same function.
fn defaults(facade: &TokenStream, names: &CompanionNames, attrs: &[Attribute], model: &Model) -> TokenStream {
    let functions: Vec<TokenStream> = model
        .arguments()
        .enumerate()
        .filter_map(|(index, argument)| {
            let value = match argument.default.as_ref()? {
                ArgumentDefault::Literal(_) => return None,
                ArgumentDefault::DefaultTrait => {
                    quote_spanned! {shown_at(argument.span)=> ::core::default::Default::default()}
                }
                ArgumentDefault::Expr(expr) => quote!(#expr),
            };
            let name = CompanionNames::default_function(index);
            let ty = argument.shape.value.path(facade);
            Some(quote!(fn #name() -> #ty { #value }))
        })
        .collect();
    if functions.is_empty() {
        return TokenStream::new();
    }
    let structure = &names.structure;
    let cfgs = attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    quote! {
        #(#cfgs)*
        impl #structure {
            #(#functions)*
        }
    }
}

/// Whether the documentation lacks the section `# Errors`, which rustdoc readers and clippy expect. A model does not
/// need the section, so it is not part of the description.
fn needs_errors_section(output: &ReturnType, model: &Model) -> bool {
    let fails = match output {
        ReturnType::Type(_, ty) => match &**ty {
            Type::Path(path) => path.path.segments.last().is_some_and(|segment| segment.ident == "Result"),
            _ => false,
        },
        ReturnType::Default => false,
    };
    fails && model.description.as_ref().is_some_and(|text| !text.contains("# Errors"))
}

/// Returns the companions of the function: structure, constructor, hidden functions and trait
/// implementations. The facade's `forward_to_declared!` writes the companions that are equal for every tool.
pub(crate) fn companions(
    facade: &TokenStream,
    names: &CompanionNames,
    vis: &syn::Visibility,
    attrs: &[Attribute],
    states: &[&Type],
    spec: &TokenStream,
    body: &TokenStream,
) -> TokenStream {
    let CompanionNames { function, structure, constructor, function_decl, declaration, meta } = names;
    let cfgs: Vec<&Attribute> = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
    let docs = format!("The tool made from the function `{function}`.");
    // A tool with states cannot be exported from a module.
    let stateful = (!states.is_empty()).then(|| quote!(, stateful));
    let states = (!states.is_empty()).then(|| {
        quote! {
            fn states(&self) -> ::std::vec::Vec<#facade::StateType> {
                ::std::vec![#(#facade::StateType::of::<#states>()),*]
            }
        }
    });
    quote! {
        #(#cfgs)*
        #[doc = #docs]
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
        #vis struct #structure;

        #(#cfgs)*
        #[doc = #docs]
        #[must_use]
        #vis fn #constructor() -> #structure {
            #structure
        }

        #(#cfgs)*
        impl #facade::DeclaredTool for #structure {
            fn spec(&self) -> &'static #facade::ToolSpec {
                static __PORTCULLIS_SPEC: #facade::ToolSpec = #spec;
                &__PORTCULLIS_SPEC
            }

            fn run<'__portcullis>(
                &'__portcullis self,
                __portcullis_ctx: &'__portcullis #facade::ToolContext,
                __portcullis_text: &'__portcullis ::core::primitive::str,
            ) -> #facade::ToolFuture<'__portcullis, #facade::ToolOutput> {
                #body
            }

            #states
        }

        #(#cfgs)*
        #facade::forward_to_declared! {
            #vis #structure, #constructor, #function_decl, #declaration, #meta #stateful
        }
    }
}

/// Decodes the arguments, calls the function, and converts its result.
fn body(facade: &TokenStream, names: &CompanionNames, output: &ReturnType, model: &Model) -> TokenStream {
    let function = &names.function;
    let mut arguments = Vec::new();
    let mut call_arguments = Vec::new();
    let mut states = Vec::new();
    for param in &model.params {
        match param {
            Param::Context => call_arguments.push(quote!(__portcullis_ctx)),
            Param::State(ty) => {
                let name = format_ident!("__portcullis_state_{}", states.len(), span = shown_at(ty.span()));
                call_arguments.push(quote!(#name));
                states.push(state(facade, &name, ty));
            }
            Param::Argument(argument) => {
                let mut name = format_ident!("__portcullis_{}", arguments.len());
                arguments.push((name.clone(), decode(facade, names, arguments.len(), argument)));
                // If a type only has the name of a supported one, the compiler reports a mismatch at this span, the
                // type's.
                name.set_span(shown_at(argument.span));
                call_arguments.push(argument_expression(&name, &argument.shape));
            }
        }
    }
    let (names, decoded): (Vec<Ident>, Vec<TokenStream>) = arguments.into_iter().unzip();
    // All arguments are decoded before the check, so one error names all mistakes of a call.
    let fields = quote! {
        #[allow(unused_imports)]
        use #facade::{CannotDecode as _, Decodes as _};
        let mut __portcullis_fields =
            #facade::Fields::parse(__portcullis_text, #facade::DeclaredTool::spec(self));
        #(let #names = #decoded;)*
        let (true, #(::core::option::Option::Some(#names),)*) = (__portcullis_fields.complete(), #(#names,)*)
        else {
            return ::core::result::Result::Err(__portcullis_fields.into_error());
        };
    };
    // Use a block, so that the decoder's values are dropped before the function runs.
    let fields = match names.len() {
        0 => quote!({ #fields }),
        _ => quote!(let (#(#names,)*) = { #fields (#(#names,)*) };),
    };
    // An unsupported return type is reported at this span.
    let output_span = match output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => function.span(),
    };
    let mut converted = convert(facade, function, &call_arguments, shown_at(output_span));
    if model.local {
        converted = quote!(#facade::run_local(async move { #converted }));
    }
    // Boxing as `dyn Future + Send` asserts `Send`. A failure is reported at the function's name.
    quote_spanned! {shown_at(function.span())=>
        ::std::boxed::Box::pin(async move {
            #fields
            #(#states)*
            #converted
        })
    }
}

/// Finds a state of the call's context.
fn state(facade: &TokenStream, name: &Ident, ty: &Type) -> TokenStream {
    // A type that threads cannot share is reported at this span.
    let span = shown_at(ty.span());
    let state = respan(quote!(#facade::State), span);
    let found = quote_spanned!(span=> #state::<#ty>::of(__portcullis_ctx));
    quote! {
        let #name = match #found {
            ::core::result::Result::Ok(__portcullis_state) => __portcullis_state,
            ::core::result::Result::Err(__portcullis_error) => {
                return ::core::result::Result::Err(__portcullis_error);
            }
        };
    }
}

/// Calls the function and converts its result according to the result's type; see the facade's `return_kind`.
fn convert(
    facade: &TokenStream,
    function: &Ident,
    call_arguments: &[TokenStream],
    span: Span,
) -> TokenStream {
    let mut called = function.clone();
    called.set_span(span);
    let ask = respan(quote!(#facade::return_kind::TypeProbe::about), span);
    let call = quote_spanned!(span=> #called(#(#call_arguments),*).await);
    let split = quote_spanned!(span=> (&&#ask(&__portcullis_returned)).split().split(__portcullis_returned));
    let output = quote_spanned!(span=> (&&&&#ask(&__portcullis_value)).output().output(__portcullis_value));
    let error = quote_spanned!(span=> (&&&#ask(&__portcullis_error)).error().error(__portcullis_error));
    quote! {
        #[allow(unused_imports)]
        use #facade::return_kind::{
            NotAnError as _, UnsupportedOutput as _, DataOutput as _, KnownError as _, KnownOutput as _, NestedResult as _,
            PlainValue as _, ResultValue as _, StandardError as _,
        };
        #[allow(clippy::let_unit_value)]
        let __portcullis_returned = #call;
        match #split {
            ::core::result::Result::Ok(__portcullis_value) => #output,
            ::core::result::Result::Err(__portcullis_error) => ::core::result::Result::Err(#error),
        }
    }
}

fn decode(
    facade: &TokenStream,
    names: &CompanionNames,
    index: usize,
    argument: &ToolArgument,
) -> TokenStream {
    let optional = argument.shape.optional;
    let Some(primitive) = argument.shape.primitive() else {
        let ty = argument.shape.value.path(facade);
        // The span lets the compiler point at the argument whose type has no decoder.
        let decoder = quote_spanned! {shown_at(argument.span)=>
            (&&#facade::Decoder::<#ty>::NEW).function()
        };
        return match &argument.default {
            Some(_) => {
                let structure = &names.structure;
                let default = CompanionNames::default_function(index);
                quote!(__portcullis_fields.defaulted_by(#index, #decoder, #structure::#default))
            }
            None if optional => quote!(__portcullis_fields.optional_by(#index, #decoder)),
            None => quote!(__portcullis_fields.required_by(#index, #decoder)),
        };
    };
    let ty = primitive.path();
    match &argument.default {
        Some(ArgumentDefault::Literal(default)) => {
            let value = match default {
                Literal::String(text) => quote!(::std::string::String::from(#text)),
                Literal::Bool(value) => quote!(#value),
                Literal::Integer(value) => {
                    // Without a suffix, the literal takes the type of the argument.
                    let digits = proc_macro2::Literal::i128_unsuffixed(*value);
                    quote!(#digits)
                }
                Literal::Float(value) => {
                    let digits = proc_macro2::Literal::f64_unsuffixed(*value);
                    quote!(#digits)
                }
            };
            quote!(__portcullis_fields.defaulted::<#ty>(#index, #value))
        }
        _ if optional => quote!(__portcullis_fields.optional::<#ty>(#index)),
        _ => quote!(__portcullis_fields.required::<#ty>(#index)),
    }
}

fn argument_expression(name: &Ident, shape: &Shape) -> TokenStream {
    match (shape.borrowed, shape.optional) {
        (true, true) => quote!(#name.as_deref()),
        (true, false) => quote!(#name.as_str()),
        (false, _) => quote!(#name),
    }
}

/// The same tokens with another span.
pub(crate) fn respan(tokens: TokenStream, span: Span) -> TokenStream {
    let set_span = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    tokens.into_iter().map(set_span).collect()
}

/// Returns a span that shows errors at the author's code, while lints treat the code as generated.
pub(crate) fn shown_at(span: Span) -> Span {
    span.resolved_at(Span::call_site())
}
