//! Writes a tool's description as a constant of the facade's `ToolSpec`.

use proc_macro2::{Literal as Token, TokenStream};
use quote::{ToTokens, quote};

use crate::{
    kind::Primitive,
    literal::Literal,
    model::{Argument, Model, Param, Role},
};

/// The expression of the tool's `ToolSpec`, fit for a `static`.
pub(crate) fn spec(facade: &TokenStream, model: &Model) -> TokenStream {
    let name = &model.name;
    let label = option(model.label.as_ref());
    let description = option(model.description.as_ref());
    let tier = option(model.tier.as_ref().map(|tier| quote!(#facade::SafetyTier::#tier)));
    let timeout_ms = option(model.timeout_ms);
    let policy = if model.requires_approval { quote!(RequiresApproval) } else { quote!(Auto) };
    let profile = option(model.profile.as_ref());
    let unknown_keys = if model.deny_unknown { quote!(Refuse) } else { quote!(Ignore) };
    let params = model.params.iter().filter_map(|param| match param {
        Param::Argument(argument) => Some(self::param(facade, argument)),
        Param::Context => None,
    });
    quote! {
        #facade::ToolSpec {
            name: #name,
            label: #label,
            description: #description,
            tier: #tier,
            timeout_ms: #timeout_ms,
            policy: #facade::ToolPolicy::#policy,
            profile: #profile,
            unknown_keys: #facade::UnknownKeys::#unknown_keys,
            params: &[#(#params),*],
        }
    }
}

fn param(facade: &TokenStream, argument: &Argument) -> TokenStream {
    let name = &argument.name;
    let description = option(argument.description.as_ref());
    let kind = match argument.shape.primitive {
        Primitive::String => quote!(String),
        Primitive::Bool => quote!(Boolean),
        Primitive::Integer(_) => quote!(Integer),
        Primitive::Float(_) => quote!(Number),
    };
    let presence = match &argument.default {
        Some(value) => {
            let value = default_value(facade, value);
            quote!(Default(#value))
        }
        None if argument.shape.optional => quote!(Optional),
        None => quote!(Required),
    };
    let minimum = option(argument.min.map(Token::i128_suffixed));
    let maximum = option(argument.max.map(Token::i128_suffixed));
    let one_of = &argument.one_of;
    let role = option(argument.role.map(|role| match role {
        Role::PathRead => quote!(#facade::RoleKind::Path(#facade::Access::Read)),
        Role::PathWrite => quote!(#facade::RoleKind::Path(#facade::Access::Write)),
        Role::Url => quote!(#facade::RoleKind::Url),
        Role::Command => quote!(#facade::RoleKind::Command),
    }));
    quote! {
        #facade::ParamSpec {
            name: #name,
            description: #description,
            kind: #facade::ParamKind::#kind,
            presence: #facade::Presence::#presence,
            minimum: #minimum,
            maximum: #maximum,
            one_of: &[#(#one_of),*],
            role: #role,
        }
    }
}

fn default_value(facade: &TokenStream, value: &Literal) -> TokenStream {
    match value {
        Literal::String(text) => quote!(#facade::DefaultValue::String(#text)),
        Literal::Bool(value) => quote!(#facade::DefaultValue::Boolean(#value)),
        Literal::Integer(value) => {
            let value = Token::i128_suffixed(*value);
            quote!(#facade::DefaultValue::Integer(#value))
        }
        Literal::Float(value) => {
            let value = Token::f64_suffixed(*value);
            quote!(#facade::DefaultValue::Number(#value))
        }
    }
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
