//! The types that a parameter may have, recognized by their notation.
//!
//! A macro sees tokens, not types. Paths of the standard library are therefore matched by their last segment, with
//! or without the library's module before it. If such a name is a type of the author, the compiler reports a
//! mismatch at the parameter. Any other path is a type with its own schema, which the compiler checks through
//! the facade's `ToolParam`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Expr, GenericArgument, Ident, PathArguments, PathSegment, Type, TypeArray, TypePath, TypeReference,
    TypeTuple,
};

pub(crate) enum ParameterKind {
    /// A value from the arguments.
    Value(Shape),
    /// The call's context. It is not part of the schema.
    Context,
    /// `&State<T>`: a value of the registry, with the type `T`. It is not part of the schema.
    State(Box<Type>),
}

/// The shape of an argument.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) value: ValueType,
    /// `Option<…>`.
    pub(crate) optional: bool,
    /// `&str`: decoded as a `String`, then borrowed.
    pub(crate) borrowed: bool,
}

/// The value within `Option` and `&`.
#[derive(Clone)]
pub(crate) enum ValueType {
    Primitive(JsonPrimitive),
    /// Any JSON.
    Any,
    /// `Vec<T>`.
    List(Box<ValueType>),
    /// `[T; N]`.
    Array(Box<ValueType>, Box<Expr>),
    Tuple(Vec<ValueType>),
    /// `HashMap<String, T>` or `BTreeMap<String, T>`, with the map's name.
    Map(&'static str, Box<ValueType>),
    /// `Option<T>` within another type.
    Nullable(Box<ValueType>),
    /// A type with its own schema.
    Typed(Box<Type>),
}

/// The primitive types of JSON.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum JsonPrimitive {
    String,
    Bool,
    Integer(Integer),
    Float(&'static str),
}

/// An integer type and its range, as far as JSON Schema and literals can express it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Integer {
    pub(crate) name: &'static str,
    pub(crate) min: i128,
    pub(crate) max: i128,
}

impl Shape {
    /// The shape of a value of any type. It stands for each type that is not a number and therefore cannot have bounds.
    pub(crate) const ANY_VALUE: Self = Self { value: ValueType::Any, optional: false, borrowed: false };

    fn from_value(value: ValueType) -> Self {
        Self { value, optional: false, borrowed: false }
    }

    /// Returns the primitive, if the value is one.
    pub(crate) fn primitive(&self) -> Option<JsonPrimitive> {
        match self.value {
            ValueType::Primitive(primitive) => Some(primitive),
            _ => None,
        }
    }
}

impl ValueType {
    /// Returns the type, written with paths that no name in scope can shadow. The author's own types stay as
    /// written.
    pub(crate) fn path(&self, facade: &TokenStream) -> TokenStream {
        match self {
            Self::Primitive(primitive) => primitive.path(),
            Self::Any => quote!(#facade::serde_json::Value),
            Self::List(items) => {
                let items = items.path(facade);
                quote!(::std::vec::Vec<#items>)
            }
            Self::Array(items, length) => {
                let items = items.path(facade);
                quote!([#items; #length])
            }
            Self::Tuple(elements) => {
                let elements = elements.iter().map(|element| element.path(facade));
                quote!((#(#elements,)*))
            }
            Self::Map(name, values) => {
                let name = Ident::new(name, proc_macro2::Span::call_site());
                let values = values.path(facade);
                quote!(::std::collections::#name<::std::string::String, #values>)
            }
            Self::Nullable(inner) => {
                let inner = inner.path(facade);
                quote!(::core::option::Option<#inner>)
            }
            Self::Typed(ty) => ty.to_token_stream(),
        }
    }
}

impl JsonPrimitive {
    /// Returns the type, written with a path that no name in scope can shadow.
    pub(crate) fn path(self) -> TokenStream {
        match self {
            Self::String => quote!(::std::string::String),
            Self::Bool => quote!(::core::primitive::bool),
            Self::Integer(Integer { name, .. }) | Self::Float(name) => {
                let name = Ident::new(name, proc_macro2::Span::call_site());
                quote!(::core::primitive::#name)
            }
        }
    }
}

/// Recognizes a parameter's type.
pub(crate) fn classify(ty: &Type) -> syn::Result<ParameterKind> {
    match ty {
        Type::Group(group) => classify(&group.elem),
        Type::Paren(paren) => classify(&paren.elem),
        Type::Reference(reference) => classify_reference(reference),
        Type::Path(_) => match last_segment(ty) {
            Some(segment) if segment.ident == "Option" => classify_option(segment, ty),
            _ => value(ty).map(Shape::from_value).map(ParameterKind::Value),
        },
        _ => value(ty).map(Shape::from_value).map(ParameterKind::Value),
    }
}

/// Whether a type contains `impl`.
pub(crate) fn mentions_impl(tokens: &impl ToTokens) -> bool {
    fn search(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(word) => word == "impl",
            proc_macro2::TokenTree::Group(group) => search(group.stream()),
            _ => false,
        })
    }
    search(tokens.to_token_stream())
}

/// Whether a type is incomplete, such as `_` and `Vec`. The compiler reports such a type itself.
pub(crate) fn is_unfinished(ty: &Type) -> bool {
    match ty {
        Type::Infer(_) => true,
        Type::Group(group) => is_unfinished(&group.elem),
        Type::Paren(paren) => is_unfinished(&paren.elem),
        // A state without its type. The author's own type `State` is not borrowed.
        Type::Reference(reference)
            if last_segment(&reference.elem)
                .is_some_and(|segment| segment.ident == "State" && arguments(segment).is_empty()) =>
        {
            true
        }
        Type::Reference(reference) => is_unfinished(&reference.elem),
        Type::Array(array) => is_unfinished(&array.elem),
        Type::Tuple(tuple) => tuple.elems.iter().any(is_unfinished),
        Type::Path(_) => last_segment(ty).is_some_and(|segment| {
            let min_arguments = match segment.ident.to_string().as_str() {
                "Option" | "Vec" => 1,
                "HashMap" | "BTreeMap" => 2,
                _ => 0,
            };
            let arguments = arguments(segment);
            arguments.len() < min_arguments || arguments.into_iter().any(is_unfinished)
        }),
        _ => false,
    }
}

const SUPPORTED: &str = "a parameter is a text, a number, a `bool`, a list, tuple or map of these, a type with `#[portcullis_sdk::args]`, an `Option` of one of them, or `&ToolContext`";

fn classify_reference(reference: &TypeReference) -> syn::Result<ParameterKind> {
    let reference_type = Type::Reference(reference.clone());
    let Some(name) = last_segment(&reference.elem).map(|segment| segment.ident.to_string()) else {
        return Err(refusal(
            &reference_type,
            "an argument cannot be a reference",
            &suggest_by_value(&reference.elem),
        ));
    };
    let is_plain_reference = reference.lifetime.is_none() && reference.mutability.is_none();
    match name.as_str() {
        "str" if is_plain_reference => Ok(ParameterKind::Value(Shape {
            value: ValueType::Primitive(JsonPrimitive::String),
            optional: false,
            borrowed: true,
        })),
        "ToolContext" if is_plain_reference => Ok(ParameterKind::Context),
        "State" => classify_state(reference, is_plain_reference),
        "str" | "String" => {
            Err(refusal(&reference_type, &unsupported(&reference_type), "write `&str` or `String`"))
        }
        "ToolContext" => Err(refusal(&reference_type, &unsupported(&reference_type), "write `&ToolContext`")),
        "Path" | "PathBuf" | "OsStr" | "OsString" => Err(path_refusal(&reference_type)),
        // A number or a `bool` is copied, so a reference to one has no use.
        _ if primitive(&name).is_some() => {
            Err(refusal(&reference_type, "a number or `bool` is passed by value", &format!("write `{name}`")))
        }
        _ => Err(refusal(
            &reference_type,
            "an argument cannot be a reference",
            &suggest_by_value(&reference.elem),
        )),
    }
}

/// `&State<T>`. A type `State` without a type in brackets is the author's own.
fn classify_state(reference: &TypeReference, is_plain_reference: bool) -> syn::Result<ParameterKind> {
    let reference_type = Type::Reference(reference.clone());
    let state = last_segment(&reference.elem).map(arguments).unwrap_or_default();
    match state[..] {
        [ty] if is_plain_reference => Ok(ParameterKind::State(Box::new(ty.clone()))),
        [ty] => Err(refusal(
            &reference_type,
            "calls share a state, which is borrowed",
            &format!("write `&State<{}>`, with a lock in the type if it changes", source_text(ty)),
        )),
        _ => Err(refusal(
            &reference_type,
            "an argument cannot be a reference, and a state has a type",
            "write `State` for an argument, or `&State<Counter>`, for example, for a state",
        )),
    }
}

fn suggest_by_value(elem: &Type) -> String {
    match elem {
        Type::Slice(slice) => format!("write `Vec<{}>`", source_text(&slice.elem)),
        Type::TraitObject(_) => format!("write the type that it is ({SUPPORTED})"),
        other => format!("write `{}`", source_text(other)),
    }
}

fn classify_option(segment: &PathSegment, ty: &Type) -> syn::Result<ParameterKind> {
    let [inner] = arguments(segment)[..] else {
        return Err(refusal(ty, "`Option` needs its type", "write `Option<String>`, for example"));
    };
    match classify(inner)? {
        ParameterKind::Value(shape) if shape.optional => {
            Err(refusal(ty, "an absent value and a null are the same", "write one `Option`"))
        }
        ParameterKind::Value(shape) => Ok(ParameterKind::Value(Shape { optional: true, ..shape })),
        ParameterKind::Context => Err(refusal(ty, "the context is always there", "write `&ToolContext`")),
        ParameterKind::State(state) => {
            Err(refusal(ty, "a state is always there", &format!("write `&State<{}>`", source_text(&state))))
        }
    }
}

/// Recognizes a type that owns its value.
fn value(ty: &Type) -> syn::Result<ValueType> {
    match ty {
        Type::Group(group) => value(&group.elem),
        Type::Paren(paren) => value(&paren.elem),
        Type::Path(path) => value_of_path(path, ty),
        Type::Array(TypeArray { elem, len, .. }) => {
            Ok(ValueType::Array(Box::new(value(elem)?), Box::new(len.clone())))
        }
        Type::Tuple(TypeTuple { elems, .. }) if !elems.is_empty() => {
            elems.iter().map(value).collect::<syn::Result<_>>().map(ValueType::Tuple)
        }
        Type::Reference(reference) if matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("str")) => {
            Err(refusal(ty, "a text within another type is not borrowed", "write `String`"))
        }
        Type::Reference(reference) => {
            Err(refusal(ty, "an argument cannot be a reference", &suggest_by_value(&reference.elem)))
        }
        Type::ImplTrait(_) => Err(refusal(ty, "`impl Trait` is a generic", SUPPORTED)),
        Type::Infer(_) => Err(refusal(ty, "a schema needs the type", "write it out")),
        _ => Err(refusal(ty, &unsupported(ty), SUPPORTED)),
    }
}

fn value_of_path(path: &TypePath, ty: &Type) -> syn::Result<ValueType> {
    if mentions_impl(path) {
        return Err(refusal(ty, "`impl Trait` is a generic", SUPPORTED));
    }
    // The full path is compared, because a type of the author can have the same last name.
    if is_json_value(path) {
        return Ok(ValueType::Any);
    }
    let Some(segment) = last_segment(ty) else {
        return Ok(ValueType::Typed(Box::new(ty.clone())));
    };
    let name = segment.ident.to_string();
    let arguments = arguments(segment);
    match (name.as_str(), &arguments[..]) {
        ("Option", [element]) => match value(element)? {
            ValueType::Nullable(_) => Err(refusal(ty, "there is one null", "write one `Option`")),
            inner => Ok(ValueType::Nullable(Box::new(inner))),
        },
        ("Vec", [items]) => Ok(ValueType::List(Box::new(value(items)?))),
        ("HashMap", [keys, values]) => map("HashMap", keys, values),
        ("BTreeMap", [keys, values]) => map("BTreeMap", keys, values),
        ("Box" | "Rc" | "Arc", [inner]) => {
            Err(refusal(ty, "an argument is given by value", &format!("write `{}`", source_text(inner))))
        }
        ("Option" | "Vec", _) => Err(refusal(
            ty,
            &format!("`{name}` needs its type"),
            &format!("write `{name}<String>`, for example"),
        )),
        ("HashMap" | "BTreeMap", _) => Err(refusal(
            ty,
            &format!("`{name}` needs its types"),
            &format!("write `{name}<String, u32>`, for example"),
        )),
        ("ToolContext", _) => Err(refusal(ty, "the context is borrowed, not owned", "write `&ToolContext`")),
        ("State", [state]) => Err(refusal(
            ty,
            "calls share a state, which is borrowed",
            &format!("write `&State<{}>`", source_text(state)),
        )),
        ("Path" | "PathBuf" | "OsStr" | "OsString", _) => Err(path_refusal(ty)),
        ("Result", _) => {
            Err(refusal(ty, "an argument cannot be a `Result`", "write its type, or an `Option` of it"))
        }
        ("char" | "Cow" | "str", _) => Err(refusal(ty, &unsupported(ty), "write `String`")),
        _ => match primitive(&name) {
            Some(primitive) if segment.arguments.is_none() => Ok(ValueType::Primitive(primitive)),
            _ => Ok(ValueType::Typed(Box::new(ty.clone()))),
        },
    }
}

fn map(name: &'static str, keys: &Type, values: &Type) -> syn::Result<ValueType> {
    match value(keys)? {
        ValueType::Primitive(JsonPrimitive::String) => Ok(ValueType::Map(name, Box::new(value(values)?))),
        _ => Err(refusal(keys, "the keys of a JSON object are texts", "write `String`")),
    }
}

/// Whether a type is `serde_json::Value`, by any path that names the crate. A `Value` without a path may be another
/// type.
fn is_json_value(path: &TypePath) -> bool {
    let segments = &path.path.segments;
    segments.last().is_some_and(|segment| segment.ident == "Value" && segment.arguments.is_none())
        && segments.iter().any(|segment| segment.ident == "serde_json")
}

/// The types between the angle brackets.
fn arguments(segment: &PathSegment) -> Vec<&Type> {
    match &segment.arguments {
        PathArguments::AngleBracketed(list) => list
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the last segment of a path, if its meaning is certain: a bare name, or a name in the standard
/// library. The context and a state are recognized under any path.
fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        Type::Path(path) if path.qself.is_none() => {
            let segments = &path.path.segments;
            let standard =
                segments.len() == 1 || ["std", "core", "alloc"].iter().any(|name| segments[0].ident == name);
            segments.last().filter(|segment| {
                standard || ["ToolContext", "State"].iter().any(|name| segment.ident == name)
            })
        }
        _ => None,
    }
}

fn primitive(name: &str) -> Option<JsonPrimitive> {
    macro_rules! integers {
        ($($ty:ident),*) => {
            match name {
                $(stringify!($ty) => Some(JsonPrimitive::Integer(Integer {
                    name: stringify!($ty),
                    min: i128::try_from($ty::MIN).unwrap_or(i128::MIN),
                    max: i128::try_from($ty::MAX).unwrap_or(i128::MAX),
                })),)*
                _ => None,
            }
        };
    }
    match name {
        "String" => Some(JsonPrimitive::String),
        "bool" => Some(JsonPrimitive::Bool),
        "f32" => Some(JsonPrimitive::Float("f32")),
        "f64" => Some(JsonPrimitive::Float("f64")),
        // In a guest `usize` has 32 bits, natively it has 64, and a literal must fit both.
        "usize" => Some(JsonPrimitive::Integer(Integer { name: "usize", min: 0, max: u32::MAX.into() })),
        "isize" => Some(JsonPrimitive::Integer(Integer {
            name: "isize",
            min: i32::MIN.into(),
            max: i32::MAX.into(),
        })),
        _ => integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128),
    }
}

fn unsupported(ty: &impl ToTokens) -> String {
    format!("`{}` is not a parameter type", source_text(ty))
}

fn path_refusal(ty: &impl ToTokens) -> syn::Error {
    let hint = "write `String` with `#[arg(path = \"read\")]` or `#[arg(path = \"write\")]`, so that the policy sees the path";
    refusal(ty, &unsupported(ty), hint)
}

fn refusal(ty: &impl ToTokens, reason: &str, hint: &str) -> syn::Error {
    syn::Error::new_spanned(ty, format!("{reason}: {hint}"))
}

/// Tokens in the notation of people: `Vec<u8>`, not `Vec < u8 >`.
fn source_text(tokens: &impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    [
        (" < ", "<"),
        (" <", "<"),
        (" > ", ">"),
        (" >", ">"),
        (" :: ", "::"),
        (":: ", "::"),
        ("& ", "&"),
        (" ,", ","),
    ]
    .iter()
    .fold(text, |text, (from, to)| text.replace(from, to))
}
