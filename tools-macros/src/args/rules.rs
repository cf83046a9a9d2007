//! The rules for a type. They make decoder and schema agree on every value.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Data, DataEnum, DeriveInput, Fields, Meta, Path};

use super::{
    attributes::{self, AttributeTarget, Keys},
    bounds::FieldBounds,
};
use crate::{attr::key, errors::Errors};

/// The notation of a type's values in JSON.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum JsonForm {
    Object,
    /// A variant's name, or an object whose only key is that name.
    Choice,
    /// The notation of the type's only field.
    Inner,
}

/// Checks a type. The returned form is valid only if no mistake was reported.
pub(crate) fn check(keys: &Keys, input: &DeriveInput, errors: &mut Errors) -> Option<JsonForm> {
    if !input.generics.params.is_empty() {
        errors.add_at(
            &input.generics,
            "an argument has one schema, so its type has no generics: write the types out",
        );
    }
    if let Some(clause) = &input.generics.where_clause {
        errors.add_at(clause, "an argument's type has no generics: remove the `where` clause");
    }
    derives(&input.attrs, errors);
    let container = attributes::serde(&input.attrs, AttributeTarget::Container, errors);
    attributes::schemars(&input.attrs, errors);
    attributes::refuse_arg_attributes(&input.attrs, errors);
    match &input.data {
        Data::Struct(data) => structure(input, &data.fields, &container, errors),
        Data::Enum(data) => enumeration(keys, input, data, &container, errors),
        Data::Union(data) => {
            errors
                .add_at(&data.union_token, "JSON cannot distinguish the fields of a union: write an `enum`");
            None
        }
    }
}

/// Refuses derives that `#[args]` adds itself.
fn derives(attrs: &[Attribute], errors: &mut Errors) {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("derive")) {
        let Meta::List(list) = &attr.meta else { continue };
        for meta in crate::attr::metas(list.tokens.clone(), errors) {
            if is_schema_derive(meta.path()) {
                errors.add_at(&meta, "`#[args]` derives this: remove it here");
            }
        }
    }
}

/// Whether `#[args]` adds this derive itself.
pub(crate) fn is_schema_derive(path: &Path) -> bool {
    let schema_derives = ["Deserialize", "Serialize", "JsonSchema"];
    path.segments.last().is_some_and(|segment| schema_derives.iter().any(|name| segment.ident == name))
}

fn structure(
    input: &DeriveInput,
    fields: &Fields,
    container: &[Meta],
    errors: &mut Errors,
) -> Option<JsonForm> {
    for meta in container {
        if ["tag", "untagged", "rename_all_fields"].contains(&key(meta).as_str()) {
            errors.add_at(meta, format!("`{}` is for an `enum`: remove it", key(meta)));
        }
    }
    self::fields(fields, errors);
    match fields {
        Fields::Named(_) => {
            let transparent = container.iter().any(|meta| key(meta) == "transparent");
            Some(if transparent { JsonForm::Inner } else { JsonForm::Object })
        }
        Fields::Unnamed(unnamed) if unnamed.unnamed.len() == 1 => Some(JsonForm::Inner),
        Fields::Unnamed(_) => {
            errors.add_at(fields, "a model fills in fields by name: name them");
            None
        }
        Fields::Unit => {
            errors.add_at(
                &input.ident,
                "a structure without fields is written as an object: write `{}` after its name",
            );
            None
        }
    }
}

fn enumeration(
    keys: &Keys,
    input: &DeriveInput,
    data: &DataEnum,
    container: &[Meta],
    errors: &mut Errors,
) -> Option<JsonForm> {
    if data.variants.is_empty() {
        errors.add_at(&input.ident, "no value fits an `enum` without variants: add one");
    }
    let has = |name: &str| container.iter().any(|meta| key(meta) == name);
    let (tagged, untagged) = (has("tag"), has("untagged"));
    for meta in container.iter().filter(|meta| ["default", "transparent"].contains(&key(meta).as_str())) {
        errors.add_at(meta, format!("`{}` is for a `struct`: remove it", key(meta)));
    }
    // Each variant is checked even after a mistake, so that all mistakes are reported together.
    for variant in &data.variants {
        attributes::serde(&variant.attrs, AttributeTarget::Variant, errors);
        attributes::schemars(&variant.attrs, errors);
        attributes::refuse_arg_attributes(&variant.attrs, errors);
        fields(&variant.fields, errors);
        match &variant.fields {
            Fields::Unnamed(unnamed) if unnamed.unnamed.len() != 1 => {
                errors.add_at(&variant.fields, "a model fills in fields by name: write `{ name: Type }`");
            }
            Fields::Unnamed(unnamed)
                if tagged && is_primitive(&unnamed.unnamed[0].ty.to_token_stream().to_string()) =>
            {
                errors.add_at(
                    &variant.fields,
                    "the tag is a field of the object, so the variant's fields need names: write `{ name: Type }`",
                );
            }
            Fields::Unit if tagged && keys.deny_unknown.is_some() => {
                errors.add_at(
                    variant,
                    "serde ignores unknown fields of a unit variant with a tag: write `{}` after the variant's name",
                );
            }
            Fields::Unit | Fields::Named(_) if untagged => {
                errors.add_at(
                    variant,
                    "an untagged variant is recognized by its content: give it its own type, as in `Name(Type)`",
                );
            }
            _ => {}
        }
    }
    Some(match (tagged, untagged) {
        (true, _) => JsonForm::Object,
        (_, true) => JsonForm::Inner,
        _ => JsonForm::Choice,
    })
}

fn fields(fields: &Fields, errors: &mut Errors) {
    for field in fields {
        if is_path(&field.ty.to_token_stream()) {
            errors.add_at(
                &field.ty,
                "the policy sees no path within an argument: make it a parameter of the tool, a `String` with `#[arg(path = \"read\")]` or `#[arg(path = \"write\")]`",
            );
        }
        attributes::serde(&field.attrs, AttributeTarget::Field, errors);
        attributes::schemars(&field.attrs, errors);
        FieldBounds::parse(field, errors);
    }
}

/// Whether a type contains one of the standard library's path types.
fn is_path(ty: &TokenStream) -> bool {
    ty.clone().into_iter().any(|token| match token {
        TokenTree::Ident(word) => ["PathBuf", "OsString"].iter().any(|name| word == name),
        TokenTree::Group(group) => is_path(&group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Whether a type is certainly not an object. For other types the compiler and serde decide.
fn is_primitive(ty: &str) -> bool {
    [
        "String", "bool", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128",
        "usize", "f32", "f64", "char",
    ]
    .contains(&ty)
        || ty.starts_with("Vec ")
}
