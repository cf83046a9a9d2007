//! Makes the functions that read, write and describe a field.
//!
//! Each field gets three inherent functions of the type, which serde and schemars call by attribute. The functions
//! have two purposes: an unsupported field type is reported once, at the field, and null for a field with a default
//! means that the field was omitted, as for a tool's parameters.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Data, DeriveInput, Expr, ExprLit, Field, Fields, GenericArgument, Lit, Meta, PathArguments, Type,
    ext::IdentExt, parse_quote, spanned::Spanned,
};

use super::{
    attributes::{self, AttributeTarget},
    bounds::FieldBounds,
};
use crate::{attr::key, errors::Errors, expand::shown_at};

/// Gives every field its functions. Returns the functions, for an `impl` of the type, and assertions that the
/// fields have supported types.
pub(crate) fn connect(facade: &TokenStream, input: &mut DeriveInput) -> (TokenStream, TokenStream) {
    // Drop mistakes here: the rules have already reported them.
    let container = attributes::serde(&input.attrs, AttributeTarget::Container, &mut Errors::default());
    let has = |name: &str| container.iter().any(|meta| key(meta) == name);
    let name = &input.ident;
    let mut functions = TokenStream::new();
    let mut assertions = TokenStream::new();
    let mut connect = |variant: Option<&Ident>, fields: &mut Fields| {
        let target = FieldContext { facade, name, variant, default: has("default"), tagged: has("tag") };
        for (index, field) in fields.iter_mut().enumerate() {
            // If the author provides a schema, the type need not have one.
            let own_schema = attributes::has_own_schema(&field.attrs);
            let Some(field_functions) = target.field(index, field) else {
                continue;
            };
            functions.extend(field_functions);
            if !own_schema {
                let mut leaves = Vec::new();
                find_leaves(&field.ty, &mut leaves);
                for leaf in leaves {
                    assertions.extend(quote_spanned! {shown_at(leaf.span())=>
                        #facade::field::assert_field::<#leaf>();
                    });
                }
            }
        }
    };
    match &mut input.data {
        Data::Struct(data) => connect(None, &mut data.fields),
        Data::Enum(data) => {
            for variant in &mut data.variants {
                connect(Some(&variant.ident.clone()), &mut variant.fields);
            }
        }
        Data::Union(_) => {}
    }
    (functions, assertions)
}

/// The context of a field: its type, its variant, and the attributes above it.
struct FieldContext<'a> {
    facade: &'a TokenStream,
    name: &'a Ident,
    variant: Option<&'a Ident>,
    /// Whether the structure has `#[serde(default)]`.
    default: bool,
    /// Whether the enumeration has a tag.
    tagged: bool,
}

impl FieldContext<'_> {
    fn field(&self, index: usize, field: &mut Field) -> Option<TokenStream> {
        let Self { facade, name, .. } = self;
        let metas = attributes::serde(&field.attrs, AttributeTarget::Field, &mut Errors::default());
        let bounds = FieldBounds::parse(field, &mut Errors::default()).map(|bounds| bounds.arguments(facade));
        field.attrs.retain(|attr| !attr.path().is_ident("arg"));
        if metas.iter().any(|meta| key(meta) == "skip") {
            return None;
        }
        let label = field.ident.as_ref().map_or_else(|| index.to_string(), |ident| ident.unraw().to_string());
        let label = match self.variant {
            Some(variant) => format!("{}_{label}", variant.unraw()),
            None => label,
        };
        let function = |verb: &str| format_ident!("__portcullis_{verb}_{label}", span = Span::call_site());
        let (read_name, write_name, describe_name) =
            (function("read"), function("write"), function("describe"));
        let path = |function: &Ident| format!("{name}::{function}");
        let (read_path, write_path, describe_path) =
            (path(&read_name), path(&write_name), path(&describe_name));
        let defaulted = self.default || metas.iter().any(|meta| key(meta) == "default");
        let optional = is_option(&field.ty) && field.ident.is_some();
        // serde accepts a missing `Option` field only without a custom function, so the default must be explicit.
        if optional && !defaulted {
            field.attrs.push(parse_quote!(#[serde(default)]));
        }
        field.attrs.push(parse_quote!(#[serde(deserialize_with = #read_path)]));
        // To show the default of a field with a function for writing, schemars would emit the path `serde::Serializer`,
        // which may not exist in the author's crate.
        let writes = !(defaulted || optional);
        if writes {
            field.attrs.push(parse_quote!(#[serde(serialize_with = #write_path)]));
        }
        let own_schema = attributes::has_own_schema(&field.attrs);
        if !own_schema {
            field.attrs.push(parse_quote!(#[schemars(schema_with = #describe_path)]));
        }
        let ty = &field.ty;
        let default = self.default_of(field.ident.as_ref(), &metas).filter(|_| !optional);
        let read_function = expand_read(facade, &read_name, ty, bounds.as_ref(), default);
        let write_function = writes.then(|| expand_write(facade, &write_name, ty));
        let beside_tag = self.tagged && field.ident.is_none();
        let describing =
            (!own_schema).then(|| expand_describe(facade, &describe_name, ty, bounds.as_ref(), beside_tag));
        Some(quote! {
            #read_function

            #write_function

            #describing
        })
    }

    /// Returns the function that makes the value of an omitted field.
    fn default_of(&self, field: Option<&Ident>, metas: &[Meta]) -> Option<TokenStream> {
        match metas.iter().find(|meta| key(meta) == "default") {
            Some(Meta::NameValue(pair)) => {
                let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &pair.value else {
                    return None;
                };
                let path: syn::ExprPath = path.parse().ok()?;
                Some(quote!(#path))
            }
            Some(_) => Some(quote!(::core::default::Default::default)),
            None if self.default => Some(quote!(|| <Self as ::core::default::Default>::default().#field)),
            None => None,
        }
    }
}

/// Returns the function that reads a field. If there is a `default`, null means that the field was omitted.
fn expand_read(
    facade: &TokenStream,
    function: &Ident,
    ty: &Type,
    bounds: Option<&TokenStream>,
    default: Option<TokenStream>,
) -> TokenStream {
    let read_as = |ty: TokenStream| match bounds {
        Some(bounds) => quote!(#facade::field::read_within::<#ty, __D>(deserializer, #bounds)),
        None => quote!((&&#facade::field::Field::<#ty>::NEW).read(deserializer)),
    };
    let reading = match default {
        Some(default) => {
            let read = read_as(quote!(::core::option::Option<#ty>));
            quote! {
                let value: ::core::option::Option<#ty> = #read?;
                ::core::result::Result::Ok(value.unwrap_or_else(#default))
            }
        }
        None => read_as(quote!(#ty)),
    };
    quote! {
        #[allow(non_snake_case)]
        fn #function<'de, __D: #facade::serde::Deserializer<'de>>(
            deserializer: __D,
        ) -> ::core::result::Result<#ty, __D::Error> {
            #[allow(unused_imports)]
            use #facade::field::{Read as _, ReadFallback as _};
            #reading
        }
    }
}

/// Returns the function that writes a field.
fn expand_write(facade: &TokenStream, function: &Ident, ty: &Type) -> TokenStream {
    quote! {
        #[allow(non_snake_case)]
        fn #function<__S: #facade::serde::Serializer>(
            value: &#ty,
            serializer: __S,
        ) -> ::core::result::Result<__S::Ok, __S::Error> {
            #[allow(unused_imports)]
            use #facade::field::{Write as _, WriteFallback as _};
            (&&#facade::field::Field::<#ty>::NEW).write(value, serializer)
        }
    }
}

/// Returns the function that returns a field's schema. `beside_tag` means that the field is the content of a
/// tagged variant.
fn expand_describe(
    facade: &TokenStream,
    function: &Ident,
    ty: &Type,
    bounds: Option<&TokenStream>,
    beside_tag: bool,
) -> TokenStream {
    let schema = if beside_tag { quote!(schema_beside_tag) } else { quote!(schema) };
    let described = quote!((&&#facade::field::Field::<#ty>::NEW).#schema(generator));
    let described = match bounds {
        Some(bounds) => quote!(#facade::field::bounded(#described, #bounds)),
        None => described,
    };
    quote! {
        #[allow(non_snake_case)]
        fn #function(generator: &mut #facade::schemars::SchemaGenerator) -> #facade::schemars::Schema {
            #[allow(unused_imports)]
            use #facade::field::{Describe as _, DescribeFallback as _};
            #described
        }
    }
}

/// Finds the types within containers of the standard library, because an error should name these inner types.
fn find_leaves<'t>(ty: &'t Type, leaves: &mut Vec<&'t Type>) {
    const CONTAINERS: [&str; 10] =
        ["Arc", "BTreeMap", "BTreeSet", "Box", "HashMap", "HashSet", "Option", "Rc", "Vec", "VecDeque"];
    match ty {
        Type::Group(group) => find_leaves(&group.elem, leaves),
        Type::Paren(paren) => find_leaves(&paren.elem, leaves),
        Type::Array(array) => find_leaves(&array.elem, leaves),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|elem| find_leaves(elem, leaves)),
        Type::Path(path) => match path.path.segments.last() {
            Some(segment) if CONTAINERS.iter().any(|name| segment.ident == name) => {
                if let PathArguments::AngleBracketed(list) = &segment.arguments {
                    for argument in &list.args {
                        if let GenericArgument::Type(inner) = argument {
                            find_leaves(inner, leaves);
                        }
                    }
                }
            }
            _ => leaves.push(ty),
        },
        _ => leaves.push(ty),
    }
}

fn is_option(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == "Option"))
}
