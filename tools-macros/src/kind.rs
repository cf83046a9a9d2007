//! Which Rust types a parameter may have, recognised by how they are written.
//!
//! A macro sees tokens, not types. Paths are therefore matched by their last segment, with or without the
//! standard library's module before it; a type of the author's own under such a name is refused by the
//! compiler at the parameter, as a mismatch.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{GenericArgument, Ident, PathArguments, PathSegment, Type, TypePath, TypeReference};

/// What a parameter is.
pub(crate) enum Kind {
    /// A value out of the arguments.
    Value(Shape),
    /// The call's context; not part of the schema.
    Context,
}

/// The shape of a value.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) primitive: Primitive,
    /// `Option<…>`.
    pub(crate) optional: bool,
    /// `&str`: decoded as a `String`, then borrowed.
    pub(crate) borrowed: bool,
}

/// The primitive below `Option` and `&`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Primitive {
    String,
    Bool,
    Integer(Integer),
    Float(&'static str),
}

/// An integer type and its range, as far as JSON schema and literals can say it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Integer {
    pub(crate) name: &'static str,
    pub(crate) min: i128,
    pub(crate) max: i128,
}

impl Primitive {
    /// The type, by a path that nothing in the author's scope can shadow.
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

/// Recognises a parameter's type.
pub(crate) fn classify(ty: &Type) -> syn::Result<Kind> {
    match ty {
        Type::Group(group) => classify(&group.elem),
        Type::Paren(paren) => classify(&paren.elem),
        Type::Reference(reference) => classify_reference(reference),
        Type::Path(path) => classify_path(path, ty),
        Type::ImplTrait(_) => Err(refusal(ty, "`impl Trait` is a generic", SUPPORTED)),
        _ => Err(refusal(ty, &unsupported(ty), SUPPORTED)),
    }
}

/// Whether a type is written with `impl` anywhere.
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

const SUPPORTED: &str =
    "a parameter is a `String`, `&str`, `bool`, an integer, a float, an `Option` of these, or `&ToolContext`";

fn classify_reference(reference: &TypeReference) -> syn::Result<Kind> {
    let written = Type::Reference(reference.clone());
    let Some(name) = last_segment(&reference.elem).map(|segment| segment.ident.to_string()) else {
        return Err(refusal(&written, &unsupported(&written), SUPPORTED));
    };
    let plain = reference.lifetime.is_none() && reference.mutability.is_none();
    match name.as_str() {
        "str" if plain => {
            Ok(Kind::Value(Shape { primitive: Primitive::String, optional: false, borrowed: true }))
        }
        "ToolContext" if plain => Ok(Kind::Context),
        "str" | "String" => Err(refusal(&written, &unsupported(&written), "write `&str` or `String`")),
        "ToolContext" => Err(refusal(&written, &unsupported(&written), "write `&ToolContext`")),
        "Path" | "PathBuf" | "OsStr" | "OsString" => Err(path_refusal(&written)),
        _ if primitive(&name).is_some() => {
            Err(refusal(&written, "a number or `bool` is passed by value", &format!("write `{name}`")))
        }
        _ => Err(refusal(&written, &unsupported(&written), SUPPORTED)),
    }
}

fn classify_path(path: &TypePath, ty: &Type) -> syn::Result<Kind> {
    let Some(segment) = last_segment(ty) else {
        return Err(refusal(path, &unsupported(path), SUPPORTED));
    };
    let name = segment.ident.to_string();
    match name.as_str() {
        "Option" => classify_option(segment, ty),
        "ToolContext" => Err(refusal(ty, "the context is lent, not given", "write `&ToolContext`")),
        "Path" | "PathBuf" | "OsStr" | "OsString" => Err(path_refusal(ty)),
        "char" | "Cow" | "Box" | "Arc" | "Rc" => Err(refusal(ty, &unsupported(ty), "write `String`")),
        _ => match primitive(&name) {
            Some(primitive) if segment.arguments.is_none() => {
                Ok(Kind::Value(Shape { primitive, optional: false, borrowed: false }))
            }
            _ => Err(refusal(ty, &unsupported(ty), SUPPORTED)),
        },
    }
}

fn classify_option(segment: &PathSegment, ty: &Type) -> syn::Result<Kind> {
    let inner = match &segment.arguments {
        PathArguments::AngleBracketed(list) if list.args.len() == 1 => match &list.args[0] {
            GenericArgument::Type(inner) => Some(inner),
            _ => None,
        },
        _ => None,
    };
    let Some(inner) = inner else {
        return Err(refusal(ty, "`Option` needs its type", "write `Option<String>`, for example"));
    };
    match classify(inner)? {
        Kind::Value(shape) if shape.optional => {
            Err(refusal(ty, "an absent value and a null are the same", "write one `Option`"))
        }
        Kind::Value(shape) => Ok(Kind::Value(Shape { optional: true, ..shape })),
        Kind::Context => Err(refusal(ty, "the context is always there", "write `&ToolContext`")),
    }
}

/// The last segment of a path, if it may mean what it says: a bare name, or one in the standard library; the
/// context alone is known under any path.
fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        Type::Path(path) if path.qself.is_none() => {
            let segments = &path.path.segments;
            let standard =
                segments.len() == 1 || ["std", "core", "alloc"].iter().any(|name| segments[0].ident == name);
            segments.last().filter(|last| standard || last.ident == "ToolContext")
        }
        _ => None,
    }
}

fn primitive(name: &str) -> Option<Primitive> {
    macro_rules! integers {
        ($($ty:ident),*) => {
            match name {
                $(stringify!($ty) => Some(Primitive::Integer(Integer {
                    name: stringify!($ty),
                    min: i128::try_from($ty::MIN).unwrap_or(i128::MIN),
                    max: i128::try_from($ty::MAX).unwrap_or(i128::MAX),
                })),)*
                _ => None,
            }
        };
    }
    match name {
        "String" => Some(Primitive::String),
        "bool" => Some(Primitive::Bool),
        "f32" => Some(Primitive::Float("f32")),
        "f64" => Some(Primitive::Float("f64")),
        // A guest's `usize` has 32 bits, its host's 64; a literal must fit both.
        "usize" => Some(Primitive::Integer(Integer { name: "usize", min: 0, max: u32::MAX.into() })),
        "isize" => {
            Some(Primitive::Integer(Integer { name: "isize", min: i32::MIN.into(), max: i32::MAX.into() }))
        }
        _ => integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128),
    }
}

fn unsupported(ty: &impl ToTokens) -> String {
    format!("`{}` is not a parameter type", written(ty))
}

fn path_refusal(ty: &impl ToTokens) -> syn::Error {
    let hint = "write `String` with `#[arg(path = \"read\")]` or `#[arg(path = \"write\")]`, so that the policy sees the path";
    refusal(ty, &unsupported(ty), hint)
}

fn refusal(ty: &impl ToTokens, reason: &str, hint: &str) -> syn::Error {
    syn::Error::new_spanned(ty, format!("{reason}: {hint}"))
}

/// Tokens as people write them: `Vec<u8>`, not `Vec < u8 >`.
fn written(tokens: &impl ToTokens) -> String {
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
