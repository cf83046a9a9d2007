//! Whole tools in every dialect, compared with `golden/TOOL.PROFILE.json`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p portcullis-sdk --test schemas` rewrites the goldens; review the difference.
//! A tool that a dialect cannot express has `golden/TOOL.PROFILE.refused` instead.

#![allow(dead_code, reason = "described, not called")]

use std::{collections::HashMap, fs, path::Path};

use portcullis_sdk::{DeclaredTool, SchemaDialect, args, serde_json, tool};

/// Reads the contents of a file at the given path.
#[tool]
async fn file_read(path: String) -> String {
    path
}

/// Search recursively for text.
#[tool(deny_unknown)]
async fn file_search(
    /// Root to search.
    #[arg(default = "/shared", path = "read")]
    path: String,
    query: String,
    #[arg(min = 1, max = 200)] limit: Option<u32>,
    #[arg(default)] order: SortOrder,
    filters: Vec<Filter>,
) -> String {
    let _ = (path, limit, order, filters);
    query
}

#[args]
#[derive(Default)]
#[serde(rename_all = "snake_case")]
enum SortOrder {
    /// A to Z.
    #[default]
    Name,
    /// Largest first.
    Size,
}

/// Which files.
#[args(deny_unknown)]
struct Filter {
    /// A pattern such as `*.rs`.
    glob: String,
    max_size: Option<u64>,
    #[serde(default)]
    hidden: bool,
    order: Option<SortOrder>,
}

/// Draws.
#[tool]
async fn draw(shapes: Vec<Shape>, size: Option<Size>) {
    let _ = (shapes, size);
}

/// A shape.
#[args]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Shape {
    /// Round.
    Circle {
        radius: f64,
    },
    Rectangle {
        width: f64,
        height: f64,
        label: Option<String>,
    },
}

#[args]
enum Size {
    Exact { width: u32, height: u32 },
    Percent(u8),
}

/// Plants.
#[tool]
async fn plant(tree: Tree) {
    let _ = tree;
}

/// A tree.
#[args]
struct Tree {
    name: String,
    #[serde(default)]
    children: Vec<Tree>,
}

/// Takes what has no name of its own.
#[tool]
async fn loose(tags: HashMap<String, String>, any: Option<serde_json::Value>) {
    let _ = (tags, any);
}

/// Takes places.
#[tool]
async fn fixed(point: (f64, f64), mixed: (String, u8), choice: Option<Choice>) {
    let _ = (point, mixed, choice);
}

#[args]
enum Choice {
    None,
    Some(String),
}

#[test]
fn every_tool_has_the_reviewed_schema_in_every_dialect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let tools: [&dyn DeclaredTool; 6] =
        [&file_read_tool(), &file_search_tool(), &draw_tool(), &plant_tool(), &loose_tool(), &fixed_tool()];
    for tool in tools {
        for dialect in SchemaDialect::ALL {
            let name = format!("{}.{}", tool.spec().name, dialect.as_str());
            let (file, text) = match dialect.render(&tool.spec().parameters()) {
                Ok(schema) => {
                    let text = serde_json::to_string_pretty(&schema).expect("encodes");
                    (format!("{name}.json"), text + "\n")
                }
                Err(error) => (format!("{name}.refused"), format!("{error}\n")),
            };
            let golden = folder.join(&file);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::create_dir_all(&folder).expect("can be made");
                fs::write(&golden, &text).expect("can be written");
            }
            let reviewed = fs::read_to_string(&golden).unwrap_or_default();
            assert!(reviewed == text, "{file} is something else now:\n{text}");
        }
    }
}

#[test]
fn the_same_tool_gives_the_same_bytes() {
    for _ in 0..10 {
        let first_declaration = serde_json::to_string(&__tool_declaration_file_search()).expect("encodes");
        let second_declaration =
            std::thread::spawn(|| serde_json::to_string(&__tool_declaration_file_search()));
        assert_eq!(first_declaration, second_declaration.join().expect("runs").expect("encodes"));
    }
}

#[test]
fn a_tool_of_primitives_has_the_specifications_exact_bytes() {
    assert_eq!(
        serde_json::to_string(&__tool_function_decl_file_read()).expect("encodes"),
        r#"{"name":"file_read","description":"Reads the contents of a file at the given path.","parameters":{"properties":{"path":{"type":"string"}},"required":["path"],"type":"object"}}"#
    );
}
