//! Writes out a type that tools can take as a parameter.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Meta, ext::IdentExt, parse_quote};

use super::{
    attributes::Keys,
    fields,
    rules::{JsonForm, is_schema_derive},
};
use crate::{attr::metas, errors::Errors};

/// Returns the type with its derives, and with the code that makes the decoder accept only what the schema
/// allows.
pub(crate) fn expand(
    facade: &TokenStream,
    keys: &Keys,
    mut input: DeriveInput,
    form: JsonForm,
) -> TokenStream {
    let name = input.ident.clone();
    let (functions, assertions) = fields::connect(facade, &mut input);
    let serde = quote!(#facade::serde).to_string();
    let schemars = quote!(#facade::schemars).to_string();
    let title = name.unraw().to_string();
    let mut attrs: Vec<Attribute> = vec![
        parse_quote! {
            #[derive(#facade::serde::Deserialize, #facade::serde::Serialize, #facade::schemars::JsonSchema)]
        },
        parse_quote!(#[serde(crate = #serde)]),
        parse_quote!(#[schemars(crate = #schemars)]),
    ];
    if keys.deny_unknown.is_some() {
        attrs.push(parse_quote!(#[serde(deny_unknown_fields)]));
    }
    let adapter = match form {
        JsonForm::Object => Some(quote!(ObjectOnly)),
        JsonForm::Choice => Some(quote!(Choice)),
        JsonForm::Inner => None,
    };
    if adapter.is_some() {
        // serde then writes its code as inherent functions of the type, and the traits below call these functions. The
        // schema keeps the type's own name.
        attrs.push(parse_quote!(#[serde(remote = "Self")]));
        attrs.push(parse_quote!(#[schemars(rename = #title)]));
    }
    attrs.append(&mut input.attrs);
    input.attrs = attrs;
    let traits = adapter.map(|adapter| traits(facade, &name, &adapter));
    let functions = (!functions.is_empty()).then(|| quote!(impl #name { #functions }));
    let assertions =
        (!assertions.is_empty()).then(|| quote!(const __PORTCULLIS_FIELDS: () = { #assertions };));
    quote! {
        #input

        const _: () = {
            #traits
            #functions
            #assertions
        };
    }
}

/// Returns the traits of a type whose code serde wrote as inherent functions. The `adapter` refuses every
/// other notation.
fn traits(facade: &TokenStream, name: &Ident, adapter: &TokenStream) -> TokenStream {
    quote! {
        impl<'de> #facade::serde::Deserialize<'de> for #name {
            fn deserialize<__D: #facade::serde::Deserializer<'de>>(
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                #name::deserialize(#facade::#adapter(deserializer))
            }
        }

        impl #facade::serde::Serialize for #name {
            fn serialize<__S: #facade::serde::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                #name::serialize(self, serializer)
            }
        }
    }
}

/// The mistakes, the type as written, and stubs of the traits. The stubs prevent follow-up errors.
pub(crate) fn fallback(facade: &TokenStream, mut input: DeriveInput, errors: Errors) -> TokenStream {
    let errors = errors.into_tokens();
    strip(&mut input.attrs);
    match &mut input.data {
        Data::Struct(data) => data.fields.iter_mut().for_each(|field| strip(&mut field.attrs)),
        Data::Enum(data) => {
            for variant in &mut data.variants {
                strip(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| strip(&mut field.attrs));
            }
        }
        Data::Union(_) => {}
    }
    let name = &input.ident;
    let (generics, types, clause) = input.generics.split_for_impl();
    let mut lent = input.generics.clone();
    // Lifetimes come before types in a list of generics.
    lent.params.insert(0, parse_quote!('__de));
    let (lent, _, _) = lent.split_for_impl();
    quote! {
        #errors
        #input

        const _: () = {
            impl #lent #facade::serde::Deserialize<'__de> for #name #types #clause {
                fn deserialize<__D: #facade::serde::Deserializer<'__de>>(
                    _: __D,
                ) -> ::core::result::Result<Self, __D::Error> {
                    ::core::unreachable!()
                }
            }

            impl #generics #facade::serde::Serialize for #name #types #clause {
                fn serialize<__S: #facade::serde::Serializer>(
                    &self,
                    _: __S,
                ) -> ::core::result::Result<__S::Ok, __S::Error> {
                    ::core::unreachable!()
                }
            }

            impl #generics #facade::schemars::JsonSchema for #name #types #clause {
                fn schema_name() -> ::std::borrow::Cow<'static, ::core::primitive::str> {
                    ::core::unreachable!()
                }

                fn json_schema(_: &mut #facade::schemars::SchemaGenerator) -> #facade::schemars::Schema {
                    ::core::unreachable!()
                }
            }
        };
    }
}

/// Removes helper attributes that only the derives understand, and derives that `#[args]` adds itself.
fn strip(attrs: &mut Vec<Attribute>) {
    attrs.retain(|attr| {
        !["serde", "schemars", "arg", "validate", "garde"].iter().any(|name| attr.path().is_ident(name))
    });
    for attr in attrs.iter_mut().filter(|attr| attr.path().is_ident("derive")) {
        let remaining_derives: Vec<Meta> = match &attr.meta {
            Meta::List(list) => metas(list.tokens.clone(), &mut Errors::default()),
            Meta::Path(_) | Meta::NameValue(_) => continue,
        };
        let remaining_derives = remaining_derives.iter().filter(|meta| !is_schema_derive(meta.path()));
        *attr = parse_quote!(#[derive(#(#remaining_derives),*)]);
    }
}
