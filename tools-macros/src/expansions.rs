//! Checks reviewed expansions: `tests/expansions/NAME.rs` expands to `NAME.expanded.rs` beside it.
//!
//! `UPDATE_GOLDEN=1 cargo test -p portcullis-tools-macros` rewrites the expansions; review the difference.

use std::{fs, path::Path};

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Item, Meta};

#[test]
fn expansions_are_the_reviewed_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expansions");
    let mut checked = 0;
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("can be listed").path();
        let name = path.file_name().expect("has a name").to_string_lossy().into_owned();
        if name.ends_with(".expanded.rs") {
            continue;
        }
        let expanded = expand(&fs::read_to_string(&path).expect("can be read"));
        let golden = path.with_extension("expanded.rs");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &expanded).expect("can be written");
        }
        let reviewed = fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            reviewed == expanded,
            "{name} expands to something else; `UPDATE_GOLDEN=1` shows what:\n{expanded}"
        );
        checked += 1;
    }
    assert!(checked >= 4, "the inputs are there");
}

fn expand(source: &str) -> String {
    let file = syn::parse_file(source).expect("the input is Rust");
    let expanded = file.items.into_iter().map(expand_item).collect::<TokenStream>();
    let file = syn::parse2(expanded).expect("the expansion is Rust");
    format!("// What the macros write; see `src/expansions.rs`.\n\n{}", prettyplease::unparse(&file))
}

fn expand_item(mut item: Item) -> TokenStream {
    let attrs = match &mut item {
        Item::Fn(item) => &mut item.attrs,
        Item::Struct(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        other => return other.to_token_stream(),
    };
    let Some(position) =
        attrs.iter().position(|attr| attr.path().is_ident("tool") || attr.path().is_ident("args"))
    else {
        return item.to_token_stream();
    };
    let attr = attrs.remove(position);
    let macro_name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
    let item = item.to_token_stream();
    match macro_name.as_str() {
        "tool" => crate::tool::tool(keys(attr), &item),
        _ => crate::args::args(keys(attr), &item),
    }
}

fn keys(attr: Attribute) -> TokenStream {
    match attr.meta {
        Meta::List(list) => list.tokens,
        Meta::Path(_) | Meta::NameValue(_) => TokenStream::new(),
    }
}
