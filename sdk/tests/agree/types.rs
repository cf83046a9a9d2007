//! Types of every form that `#[args]` and `#[tool]` support, each used by one tool.

#![allow(dead_code, reason = "decoded, not read")]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portcullis_sdk::{DeclaredTool, ToolContext, args, serde_json, tool};

/// A structure with a bit of everything.
#[args]
pub(crate) struct Plain {
    /// Needed.
    text: String,
    count: Option<u8>,
    ratio: Option<f32>,
    #[serde(default)]
    flag: bool,
    #[serde(default = "five", rename = "fifth")]
    number: i64,
    letter: Option<char>,
    set: Option<BTreeSet<u16>>,
    above_zero: Option<std::num::NonZeroU8>,
    anything: Option<serde_json::Value>,
}

fn five() -> i64 {
    5
}

/// Nothing but what is declared.
#[args(deny_unknown)]
pub(crate) struct Strict {
    order: Order,
    #[serde(default)]
    inner: Option<Box<Strict>>,
    pair: Option<(String, u8)>,
}

/// An order.
#[args]
#[derive(Default)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// By name.
    #[default]
    ByName,
    /// Largest first.
    BySize,
    Unsorted,
}

#[args]
pub(crate) enum Size {
    Small,
    /// In bytes.
    Exact(u32),
    Range {
        least: u32,
        most: Option<u32>,
        #[serde(default)]
        order: Order,
    },
    Strict(Strict),
}

#[args]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Shape {
    /// Round.
    Circle {
        radius: f64,
    },
    Rectangle {
        width: f64,
        height: f64,
        #[serde(default)]
        label: Label,
    },
    /// From elsewhere.
    Known(Plain),
    Nothing,
}

#[args(deny_unknown)]
#[serde(tag = "kind")]
pub(crate) enum StrictShape {
    Circle { radius: f64 },
    Square { side: f64, order: Option<Order> },
    Known(Strict),
    Nothing {},
}

#[args]
#[serde(untagged)]
pub(crate) enum Either {
    Number(i64),
    Text(String),
    Order(Vec<Order>),
    Plain(Plain),
}

#[args]
#[derive(Default)]
pub(crate) struct Label(String);

#[args]
#[serde(transparent)]
pub(crate) struct Wrapped {
    inner: Plain,
}

/// A tree.
#[args]
pub(crate) struct Tree {
    name: String,
    #[serde(default)]
    children: Vec<Tree>,
}

#[args]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AllDefault {
    first_one: u8,
    second_one: String,
    order: Order,
    maybe: Option<u8>,
    #[serde(skip)]
    hidden: u8,
}

impl Default for AllDefault {
    fn default() -> Self {
        Self { first_one: 1, second_one: "two".into(), order: Order::BySize, maybe: None, hidden: 0 }
    }
}

#[args]
pub(crate) struct Wide {
    number: u128,
}

#[args]
pub(crate) struct Nested {
    list: Vec<Plain>,
    map: HashMap<String, Order>,
    shapes: BTreeMap<String, Vec<Shape>>,
    holes: Vec<Option<u8>>,
    choice: Option<Size>,
}

/// Numbers with bounds, in every place that a field can have.
#[args]
pub(crate) struct Bounded {
    #[arg(min = 2, max = 90)]
    number: u8,
    #[arg(max = 60)]
    count: Option<i64>,
    #[arg(min = 0.6)]
    #[arg(max = 6.5)]
    ratio: Option<f32>,
    #[arg(min = 0.5, max = 2.0)]
    exact: f64,
    #[serde(default = "five")]
    #[arg(min = 5)]
    defaulted: i64,
    level: Option<Level>,
    amount: Amount,
    dial: Option<Dial>,
}

#[args]
pub(crate) struct Level(#[arg(min = 1, max = 90)] u32);

#[args]
#[serde(untagged)]
pub(crate) enum Amount {
    Low(#[arg(max = 30)] i64),
    High(#[arg(min = 50)] i64),
    Text(String),
}

#[args(deny_unknown)]
#[serde(tag = "kind")]
pub(crate) enum Dial {
    Turn {
        #[arg(min = 1, max = 100)]
        radius: u16,
    },
    Off {
        #[serde(default)]
        #[arg(max = 90)]
        order: Option<u16>,
    },
}

macro_rules! takes {
    ($($name:ident: $ty:ty,)*) => {
        $(
            /// Takes a value.
            #[tool]
            async fn $name(value: $ty) {
                let _ = value;
            }
        )*
    };
}

takes! {
    take_plain: Plain,
    take_strict: Strict,
    take_order: Order,
    take_size: Size,
    take_shape: Shape,
    take_strict_shape: StrictShape,
    take_either: Either,
    take_label: Label,
    take_wrapped: Wrapped,
    take_tree: Tree,
    take_all_default: AllDefault,
    take_wide: Wide,
    take_nested: Nested,
    take_bounded_fields: Bounded,
    take_grid: [[u8; 2]; 2],
    take_pairs: Vec<(String, Option<Order>, bool)>,
    take_lookup: BTreeMap<String, Vec<f64>>,
    take_anything: serde_json::Value,
}

/// Takes what may be left out.
#[tool(deny_unknown)]
async fn take_optional(
    value: Option<Vec<Strict>>,
    #[arg(default)] order: Order,
    #[arg(default = vec![1])] numbers: Vec<u8>,
) {
    let _ = (value, order, numbers);
}

/// Takes what has bounds.
#[tool]
async fn take_bounded(
    value: Option<Vec<u8>>,
    #[arg(min = 2, max = 50)] radius: u8,
    #[arg(min = 0.5, max = 2.0)] inner: Option<f64>,
    #[arg(max = 2.0)] order: Option<f32>,
) {
    let _ = (value, radius, inner, order);
}

/// Takes texts, some of them listed, and primitives with defaults.
#[tool]
async fn take_primitives(
    #[arg(one_of("text", "by_name", ""))] value: &str,
    name: String,
    #[arg(one_of("x", "Small"))] order: Option<&str>,
    #[arg(default = "circle", one_of("circle", "Circle"))] kind: &str,
    #[arg(default = 7, min = 2)] radius: u8,
    #[arg(default = 0.5)] inner: f64,
    #[arg(default)] x: bool,
) {
    let _ = (value, name, order, kind, radius, inner, x);
}

/// Takes a context, and only what is declared.
#[tool(deny_unknown)]
async fn take_with_context(
    ctx: &ToolContext,
    value: Option<&str>,
    #[arg(default = -1)] radius: i64,
    #[arg(one_of("text", "null"))] name: String,
) {
    let _ = (ctx, value, radius, name);
}

/// One tool per type.
pub(crate) fn tools() -> Vec<&'static dyn DeclaredTool> {
    vec![
        &TakePlain,
        &TakeStrict,
        &TakeOrder,
        &TakeSize,
        &TakeShape,
        &TakeStrictShape,
        &TakeEither,
        &TakeLabel,
        &TakeWrapped,
        &TakeTree,
        &TakeAllDefault,
        &TakeWide,
        &TakeNested,
        &TakeBoundedFields,
        &TakeGrid,
        &TakePairs,
        &TakeLookup,
        &TakeAnything,
        &TakeOptional,
        &TakeBounded,
        &TakePrimitives,
        &TakeWithContext,
    ]
}
