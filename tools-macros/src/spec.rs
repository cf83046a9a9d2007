//! Writes a tool's declarations as a constant of the facade's `ToolSpec`.

use proc_macro2::{Literal as Token, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{ReturnType, spanned::Spanned};

use crate::{
    expand::{respan, shown_at},
    kind::{JsonPrimitive, ValueType},
    literal::Literal,
    model::{ArgumentDefault, CompanionNames, Model, RoleAttribute, ToolArgument, ToolHints},
};

/// The expression of the tool's `ToolSpec`. It is constant, so a `static` can hold it.
pub(crate) fn spec(
    facade: &TokenStream,
    names: &CompanionNames,
    output: &ReturnType,
    model: &Model,
) -> TokenStream {
    let name = &model.name;
    let label = option(model.label.as_ref());
    let description = option(model.description.as_ref());
    let tier = option(model.tier.as_ref().map(|tier| quote!(#facade::SafetyTier::#tier)));
    let timeout_ms = option(model.timeout_ms);
    let policy = if model.requires_approval { quote!(RequiresApproval) } else { quote!(Auto) };
    let profile = option(model.profile.as_ref());
    let hosts = &model.hosts;
    let unknown_keys = if model.deny_unknown { quote!(Refuse) } else { quote!(Ignore) };
    let params = model.arguments().enumerate().map(|(index, argument)| param(facade, names, index, argument));
    let output_schema = output_schema(facade, output);
    let hints = hints(facade, &model.hints);
    quote! {
        #facade::ToolSpec {
            name: #name,
            label: #label,
            description: #description,
            tier: #tier,
            timeout_ms: #timeout_ms,
            policy: #facade::ToolPolicy::#policy,
            profile: #profile,
            hosts: &[#(#hosts),*],
            unknown_keys: #facade::UnknownKeys::#unknown_keys,
            params: &[#(#params),*],
            output_schema: #output_schema,
            hints: #hints,
        }
    }
}

/// Returns the function that returns the schema of results. The return type decides; see the facade's
/// `return_kind`.
fn output_schema(facade: &TokenStream, output: &ReturnType) -> TokenStream {
    let ReturnType::Type(_, ty) = output else {
        return quote!(|| ::core::option::Option::None);
    };
    let question = quote_spanned! {shown_at(ty.span())=>
        (&&&&&&&#facade::return_kind::OutputOf::<#ty>::NEW).schema()
    };
    quote! {
        || {
            #[allow(unused_imports)]
            use #facade::return_kind::{
                NoSchema as _, Declared as _, DescribedOutput as _, DescribedResult as _, ShownOutput as _,
                ShownResult as _, UndescribedJson as _,
            };
            #question
        }
    }
}

fn hints(facade: &TokenStream, hints: &ToolHints) -> TokenStream {
    let ToolHints { aliases, idempotent, hidden, output_cap_bytes } = hints;
    let output_cap_bytes = option(output_cap_bytes.map(Token::u64_suffixed));
    quote! {
        #facade::Hints {
            aliases: &[#(#aliases),*],
            idempotent: #idempotent,
            hidden: #hidden,
            output_cap_bytes: #output_cap_bytes,
        }
    }
}

fn param(facade: &TokenStream, names: &CompanionNames, index: usize, argument: &ToolArgument) -> TokenStream {
    let name = &argument.name;
    let description = option(argument.description.as_ref());
    let kind = kind(facade, &argument.shape.value);
    let requiredness = match &argument.default {
        Some(value) => {
            let value = default_value(facade, names, index, value);
            quote!(Default(#value))
        }
        None if argument.shape.optional => quote!(Optional),
        None => quote!(Required),
    };
    let minimum = bound(facade, argument.min.as_ref());
    let maximum = bound(facade, argument.max.as_ref());
    let one_of = &argument.one_of;
    let role = option(argument.role.map(|role| match role {
        RoleAttribute::PathRead => quote!(#facade::RoleKind::Path(#facade::Access::Read)),
        RoleAttribute::PathWrite => quote!(#facade::RoleKind::Path(#facade::Access::Write)),
        RoleAttribute::Entry => quote!(#facade::RoleKind::Entry),
        RoleAttribute::Url => quote!(#facade::RoleKind::Url),
        RoleAttribute::Command => quote!(#facade::RoleKind::Command),
    }));
    quote! {
        #facade::ParamSpec {
            name: #name,
            description: #description,
            kind: #kind,
            requiredness: #facade::Requiredness::#requiredness,
            minimum: #minimum,
            maximum: #maximum,
            one_of: &[#(#one_of),*],
            role: #role,
        }
    }
}

fn kind(facade: &TokenStream, value: &ValueType) -> TokenStream {
    let nested_kind = |value| kind(facade, value);
    let kind = match value {
        ValueType::Primitive(JsonPrimitive::String) => quote!(String),
        ValueType::Primitive(JsonPrimitive::Bool) => quote!(Boolean),
        ValueType::Primitive(JsonPrimitive::Integer(_)) => quote!(Integer),
        ValueType::Primitive(JsonPrimitive::Float(_)) => quote!(Number),
        ValueType::Any => quote!(Any),
        ValueType::List(items) => {
            let items = nested_kind(items);
            quote!(List { items: &#items, length: ::core::option::Option::None })
        }
        ValueType::Array(items, length) => {
            let items = nested_kind(items);
            quote!(List { items: &#items, length: ::core::option::Option::Some(#length) })
        }
        ValueType::Tuple(elements) => {
            let elements = elements.iter().map(nested_kind);
            quote!(Tuple(&[#(#elements),*]))
        }
        ValueType::Map(_, values) => {
            let values = nested_kind(values);
            quote!(Map(&#values))
        }
        ValueType::Nullable(inner) => {
            let inner = nested_kind(inner);
            quote!(Nullable(&#inner))
        }
        // This is the only place where a type without a schema is reported.
        ValueType::Typed(ty) => {
            let typed = respan(quote!(#facade::typed), shown_at(ty.span()));
            quote!(Typed(#typed::<#ty>))
        }
    };
    quote!(#facade::ParamKind::#kind)
}

fn default_value(
    facade: &TokenStream,
    names: &CompanionNames,
    index: usize,
    value: &ArgumentDefault,
) -> TokenStream {
    match value {
        ArgumentDefault::Literal(value) => {
            let value = literal(facade, value);
            quote!(#facade::DefaultValue::Literal(#value))
        }
        ArgumentDefault::DefaultTrait | ArgumentDefault::Expr(_) => {
            let structure = &names.structure;
            let default = CompanionNames::default_function(index);
            quote! {
                #facade::DefaultValue::Computed(|| {
                    #[allow(unused_imports)]
                    use #facade::return_kind::{SerializableDefault as _, OpaqueDefault as _};
                    let __portcullis_default = #structure::#default();
                    (&&#facade::return_kind::TypeProbe::about(&__portcullis_default)).show()(__portcullis_default)
                })
            }
        }
    }
}

/// An optional bound, as an expression.
pub(crate) fn bound(facade: &TokenStream, bound: Option<&Literal>) -> TokenStream {
    option(bound.map(|bound| literal(facade, bound)))
}

fn literal(facade: &TokenStream, value: &Literal) -> TokenStream {
    let value = match value {
        Literal::String(text) => quote!(String(#text)),
        Literal::Bool(value) => quote!(Boolean(#value)),
        Literal::Integer(value) => {
            let value = Token::i128_suffixed(*value);
            quote!(Integer(#value))
        }
        Literal::Float(value) => {
            let value = Token::f64_suffixed(*value);
            quote!(Number(#value))
        }
    };
    quote!(#facade::LiteralValue::#value)
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
