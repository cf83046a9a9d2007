//! Literals in `#[arg(default = …, min = …, max = …)]`, checked against the type of the parameter.

use syn::{Expr, ExprLit, ExprUnary, Lit, UnOp};

use crate::kind::{Integer, JsonPrimitive};

/// A checked literal.
#[derive(Clone, PartialEq)]
pub(crate) enum Literal {
    String(String),
    Bool(bool),
    Integer(i128),
    Float(f64),
}

impl Literal {
    /// Whether both are numbers of one type and this one is greater.
    pub(crate) fn is_above(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left > right,
            (Self::Float(left), Self::Float(right)) => left > right,
            _ => false,
        }
    }
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::String(text) => text.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => write!(f, "{number:?}"),
        }
    }
}

/// The integers that JSON Schema handles reliably: those that fit into an `i64` or a `u64`.
const SCHEMA_RANGE: std::ops::RangeInclusive<i128> = (i64::MIN as i128)..=(u64::MAX as i128);

/// Reads a default or a bound for a parameter of this type.
pub(crate) fn parse_typed(expr: &Expr, primitive: JsonPrimitive) -> syn::Result<Literal> {
    match primitive {
        JsonPrimitive::String => match literal(expr) {
            Some((Lit::Str(text), false)) => Ok(Literal::String(text.value())),
            _ => Err(mismatch(expr, "a string, such as `default = \"text\"`")),
        },
        JsonPrimitive::Bool => match literal(expr) {
            Some((Lit::Bool(value), false)) => Ok(Literal::Bool(value.value)),
            _ => Err(mismatch(expr, "`default = true` or `default = false`")),
        },
        JsonPrimitive::Integer(kind) => integer(expr, kind).map(Literal::Integer),
        JsonPrimitive::Float(name) => float(expr, name).map(Literal::Float),
    }
}

/// The type's own default, as a literal.
pub(crate) fn default_literal(primitive: JsonPrimitive) -> Literal {
    match primitive {
        JsonPrimitive::String => Literal::String(String::new()),
        JsonPrimitive::Bool => Literal::Bool(false),
        JsonPrimitive::Integer(_) => Literal::Integer(0),
        JsonPrimitive::Float(_) => Literal::Float(0.0),
    }
}

/// Reads an integer within the type's range.
fn integer(expr: &Expr, kind: Integer) -> syn::Result<i128> {
    let Some((Lit::Int(digits), negative)) = literal(expr) else {
        return Err(mismatch(expr, "a whole number, such as `1`"));
    };
    if !digits.suffix().is_empty() && digits.suffix() != kind.name {
        return Err(mismatch(expr, &format!("a number of the parameter's type `{}`", kind.name)));
    }
    let value = digits.base10_parse::<i128>().map(|value| if negative { -value } else { value });
    match value {
        Ok(value) if (kind.min..=kind.max).contains(&value) && SCHEMA_RANGE.contains(&value) => Ok(value),
        _ => {
            let (min, max) = (kind.min.max(*SCHEMA_RANGE.start()), kind.max.min(*SCHEMA_RANGE.end()));
            Err(mismatch(expr, &format!("a number from {min} to {max} for `{}`", kind.name)))
        }
    }
}

fn float(expr: &Expr, name: &str) -> syn::Result<f64> {
    let Some((Lit::Float(digits), negative)) = literal(expr) else {
        return Err(mismatch(expr, "a number with a point, such as `1.0`"));
    };
    if !digits.suffix().is_empty() && digits.suffix() != name {
        return Err(mismatch(expr, &format!("a number of the parameter's type `{name}`")));
    }
    match digits.base10_parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(if negative { -value } else { value }),
        _ => Err(mismatch(expr, "a finite number")),
    }
}

/// The literal, and whether a minus sign precedes it.
fn literal(expr: &Expr) -> Option<(&Lit, bool)> {
    match expr {
        Expr::Group(group) => literal(&group.expr),
        Expr::Paren(paren) => literal(&paren.expr),
        Expr::Lit(ExprLit { lit, .. }) => Some((lit, false)),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match literal(expr)? {
            (lit @ (Lit::Int(_) | Lit::Float(_)), false) => Some((lit, true)),
            _ => None,
        },
        _ => None,
    }
}

fn mismatch(expr: &Expr, expected: &str) -> syn::Error {
    syn::Error::new_spanned(expr, format!("this does not fit the parameter's type: write {expected}"))
}
