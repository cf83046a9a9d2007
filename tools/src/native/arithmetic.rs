//! `add`, `subtract`, `multiply`, `divide`: one implementation, four tools.

use std::time::Duration;

use portcullis_types::{
    DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolOutput, async_trait,
};
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::input::{declare, decode, results};

/// An arithmetic tool: two numbers in, `{"result": …}` out.
///
/// Integers are computed exactly as long as the operands and the result fit in 64 bits. Everything else is
/// computed in double precision. A result without a fraction is written as an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b`, which fails if `b` is zero.
    Divide,
}

impl Arithmetic {
    /// All four tools.
    pub const ALL: [Self; 4] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide];

    /// The tool's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Add => "Adds two numbers.",
            Self::Subtract => "Subtracts the second number from the first.",
            Self::Multiply => "Multiplies two numbers.",
            Self::Divide => "Divides the first number by the second.",
        }
    }

    fn compute(self, args: &str) -> Result<Value, ToolError> {
        let Operands { a, b } = decode(args)?;
        if self == Self::Divide && b.as_f64() == Some(0.0) {
            return Err(ToolError::failed("division by zero"));
        }
        let integer_result = a.as_i128().zip(b.as_i128()).and_then(|(a, b)| self.compute_exactly(a, b));
        let result = match integer_result.and_then(Number::from_i128) {
            Some(exact) => exact,
            None => a
                .as_f64()
                .zip(b.as_f64())
                .and_then(|(a, b)| number(self.compute_in_double(a, b)))
                .ok_or_else(|| {
                    ToolError::failed(format!("the result of {a} {} {b} is too large", self.symbol()))
                })?,
        };
        Ok(json!({ "result": result }))
    }

    fn compute_exactly(self, a: i128, b: i128) -> Option<i128> {
        match self {
            Self::Add => a.checked_add(b),
            Self::Subtract => a.checked_sub(b),
            Self::Multiply => a.checked_mul(b),
            // A quotient is exact only if there is no remainder.
            Self::Divide => (a.checked_rem(b)? == 0).then(|| a.checked_div(b)).flatten(),
        }
    }

    fn compute_in_double(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
        }
    }

    const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operands {
    a: Number,
    b: Number,
}

/// Converts a finite double to a JSON number, without a fraction if the double is a whole number below 2^53.
fn number(double: f64) -> Option<Number> {
    if double.fract() == 0.0 && double.abs() < 9_007_199_254_740_992.0 {
        return format!("{double:.0}").parse::<i64>().ok().map(Number::from);
    }
    Number::from_f64(double)
}

#[async_trait]
impl Tool for Arithmetic {
    fn schema(&self) -> FunctionDecl {
        declare(
            self.name(),
            self.description(),
            &json!({
                "a": {"type": "number", "description": "The first number."},
                "b": {"type": "number", "description": "The second number."},
            }),
            &["a", "b"],
        )
    }

    fn output_schema(&self) -> Option<JsonSchema> {
        Some(results(&json!({"result": {"type": "number", "description": "The result."}})))
    }

    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        self.compute(args).map(|result| result.to_string())
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }

    async fn call(&self, _ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.compute(args.text()).map(ToolOutput::structured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tool: Arithmetic, a: &str, b: &str, expected: Result<&str, &str>) {
        let result = tool.compute(&format!("{{\"a\":{a},\"b\":{b}}}"));
        let result = result.map(|value| value["result"].to_string()).map_err(|error| error.to_string());
        assert_eq!(result.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn results_are_exact_where_they_can_be() {
        check(Arithmetic::Add, "2", "3", Ok("5"));
        check(Arithmetic::Add, "0.5", "1.5", Ok("2"));
        check(Arithmetic::Add, "9223372036854775807", "9223372036854775807", Ok("18446744073709551614"));
        check(Arithmetic::Subtract, "2", "3.25", Ok("-1.25"));
        check(Arithmetic::Multiply, "-4", "2.5", Ok("-10"));
        check(Arithmetic::Multiply, "18446744073709551615", "10", Ok("1.844674407370955e+20"));
        check(Arithmetic::Divide, "7", "2", Ok("3.5"));
        check(Arithmetic::Divide, "-6", "3", Ok("-2"));
    }

    #[test]
    fn operation_without_a_result_fails() {
        for zero in ["0", "0.0", "-0.0"] {
            check(Arithmetic::Divide, "1", zero, Err("division by zero"));
        }
        check(Arithmetic::Multiply, "1e308", "10", Err("the result of 1e+308 * 10 is too large"));
        check(Arithmetic::Divide, "1e308", "0.1", Err("the result of 1e+308 / 0.1 is too large"));
    }
}
