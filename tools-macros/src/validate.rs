//! The rules for a tool's function. Each mistake is reported at its place, with the correct form.

use syn::{Ident, LitStr, Pat, ReturnType, Safety, ext::IdentExt, spanned::Spanned};

use crate::{
    attr::{ArgKeys, DefaultKey, ToolKeys},
    errors::Errors,
    kind::{self, JsonPrimitive, ParameterKind, Shape},
    literal::{self, Literal},
    model::{ArgumentDefault, Model, Param, RoleAttribute, ToolArgument, ToolHints},
    parse::{Parsed, ParsedParam},
    suggest::did_you_mean,
};

/// Checks a function. The model is complete only if no mistake was reported.
pub(crate) fn validate(parsed: &Parsed, errors: &mut Errors) -> Option<Model> {
    signature(parsed, errors);
    let mut contexts = 0;
    let mut params = Vec::new();
    for param in &parsed.params {
        match self::param(param, errors) {
            Some(Param::Context) if contexts == 1 => {
                errors.add_at(&param.ty, "a tool has one context: remove this parameter");
            }
            Some(Param::Context) => {
                contexts += 1;
                params.push(Param::Context);
            }
            Some(argument) => params.push(argument),
            None => {}
        }
    }
    let keys = &parsed.keys;
    let name = name(keys, &parsed.item.sig.ident, errors);
    let hints = hints(keys, name.as_deref(), errors);
    let label = keys.label.as_ref().and_then(|label| self::label(label, errors));
    let tier = keys.tier.as_ref().and_then(|tier| known_word("tier", tier, &TIERS, errors));
    let timeout_ms = keys.timeout.as_ref().and_then(|timeout| self::timeout(timeout, errors));
    let hosts = keys.hosts.iter().flatten().filter_map(|text| host(text, errors)).collect();
    let approval = keys.approval.as_ref().and_then(|word| known_word("approval", word, &APPROVALS, errors));
    Some(Model {
        // The first `?` comes after all checks, so that all mistakes are reported together.
        name: name?,
        label,
        description: parsed.description.clone(),
        tier,
        timeout_ms,
        requires_approval: approval.is_some_and(|word| word == "required"),
        profile: keys.profile.as_ref().map(ToString::to_string),
        hosts,
        deny_unknown: keys.deny_unknown.is_some(),
        local: keys.local.is_some(),
        hints,
        params,
    })
}

/// Reads a host in the notation of the policy's `hosts`, or without a scheme, which means `https`. The
/// declaration always has the scheme. The runtime checks the host in full when it loads the module.
fn host(text: &LitStr, errors: &mut Errors) -> Option<String> {
    let value = text.value();
    let (scheme, authority) = match value.split_once("://") {
        Some((scheme, authority)) => (scheme, authority),
        None => ("https", value.as_str()),
    };
    let is_authority = !authority.is_empty() && !authority.contains(['/', '?', '#', '@', '\\', ' ']);
    if matches!(scheme, "https" | "http") && is_authority {
        return Some(format!("{scheme}://{authority}"));
    }
    errors.add_at(
        text,
        "a host has nothing after its port, and no scheme except `https` and `http`: write for example `api.example.com` or `http://localhost:8080`",
    );
    None
}

const TIERS: [&str; 3] = ["ReadOnly", "SideEffecting", "Privileged"];
const APPROVALS: [&str; 2] = ["auto", "required"];

fn signature(parsed: &Parsed, errors: &mut Errors) {
    let sig = &parsed.item.sig;
    if sig.asyncness.is_none() {
        errors.add_at(&sig.fn_token, "a tool is asynchronous: write `async fn`");
    }
    if let Some(constness) = &sig.constness {
        errors.add_at(constness, "a tool runs when it is called: remove `const`");
    }
    match &sig.safety {
        Safety::Unsafe(token) => errors.add_at(
            token,
            "a tool cannot be `unsafe`, because models call it: use an `unsafe` block in its body",
        ),
        // `safe` is only for items of an `extern` block, so the parser has refused it here.
        Safety::Safe(_) | Safety::Default => {}
    }
    if let Some(abi) = &sig.abi {
        errors.add_at(abi, "a tool is called by its name in JSON: remove `extern`");
    }
    if !sig.generics.params.is_empty() {
        errors.add_at(&sig.generics, "a tool has one schema, so it has no generics: write the types out");
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.add_at(clause, "a tool has no generics: remove the `where` clause");
    }
    if let Some(variadic) = &sig.variadic {
        errors.add_at(variadic, "a tool's parameters are fixed: write each one out");
    }
    if let Some(receiver) = &parsed.receiver {
        errors.add_at(
            receiver,
            "a tool is a free function: move it out of the `impl` and take `&State<T>` for what its calls share",
        );
    }
    if let ReturnType::Type(_, ty) = &sig.output
        && kind::mentions_impl(ty)
    {
        errors.add_at(ty, "`impl Trait` is a generic: name the type that is returned");
    }
}

fn param(param: &ParsedParam, errors: &mut Errors) -> Option<Param> {
    // Check the pattern first: the type of a destructured parameter would be a second mistake at the same place.
    let name = pattern(&param.pattern, errors)?;
    let kind = match &param.ctx {
        Some(ctx) => marked_context(ctx, &param.ty, errors)?,
        None => errors.ok(kind::classify(&param.ty))?,
    };
    let shape = match kind {
        ParameterKind::Context => {
            if let Some(arg) = &param.arg {
                errors.add_at(arg, "the context is not an argument of the call: remove `#[arg]`");
            }
            return Some(Param::Context);
        }
        ParameterKind::State(ty) => {
            if let Some(arg) = &param.arg {
                errors.add_at(arg, "a state is not an argument of the call: remove `#[arg]`");
            }
            return Some(Param::State(ty));
        }
        ParameterKind::Value(shape) => shape,
    };
    let keys = &param.keys;
    let (min, max) = bounds(keys, &shape, errors);
    let one_of = one_of(keys, &shape, errors);
    let default = default(keys, &shape, min.as_ref(), max.as_ref(), &one_of, errors);
    let role = role(keys, &shape, errors);
    Some(Param::Argument(Box::new(ToolArgument {
        name: name.unraw().to_string(),
        description: param.description.clone(),
        shape,
        span: param.ty.span(),
        default,
        min,
        max,
        one_of,
        role,
    })))
}

/// Returns the context, if `#[ctx]` marks a parameter whose type has a name that the macro does not know.
fn marked_context(ctx: &syn::Attribute, ty: &syn::Type, errors: &mut Errors) -> Option<ParameterKind> {
    match ty {
        syn::Type::Reference(reference) if reference.mutability.is_none() && reference.lifetime.is_none() => {
            Some(ParameterKind::Context)
        }
        _ => {
            errors.add_at(
                ctx,
                "`#[ctx]` marks the context, which is borrowed: write `&ToolContext` as the type",
            );
            None
        }
    }
}

fn pattern<'p>(pattern: &'p Pat, errors: &mut Errors) -> Option<&'p Ident> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(&name.ident),
        _ => {
            errors.add_at(
                pattern,
                "a parameter's name is the argument's name in the schema: write a plain name and take the value apart in the body",
            );
            None
        }
    }
}

/// Reads the bounds of a number.
pub(crate) fn bounds(
    keys: &ArgKeys,
    shape: &Shape,
    errors: &mut Errors,
) -> (Option<Literal>, Option<Literal>) {
    let Some(primitive @ (JsonPrimitive::Integer(_) | JsonPrimitive::Float(_))) = shape.primitive() else {
        for bound in keys.min.iter().chain(&keys.max) {
            errors.add_at(bound, "`min` and `max` are for numbers: check other types in the body");
        }
        return (None, None);
    };
    let mut read_bound = |expr: &Option<syn::Expr>| {
        expr.as_ref().and_then(|expr| errors.ok(literal::parse_typed(expr, primitive)))
    };
    let (min, max) = (read_bound(&keys.min), read_bound(&keys.max));
    if let (Some(minimum), Some(maximum), Some(expr)) = (&min, &max, &keys.max)
        && minimum.is_above(maximum)
    {
        errors.add_at(
            expr,
            format!("no number is at least {minimum} and at most {maximum}: swap `min` and `max`"),
        );
    }
    (min, max)
}

fn one_of(keys: &ArgKeys, shape: &Shape, errors: &mut Errors) -> Vec<String> {
    let Some(values) = &keys.one_of else {
        return Vec::new();
    };
    let mut texts: Vec<String> = Vec::new();
    for value in values {
        if shape.primitive() != Some(JsonPrimitive::String) {
            errors.add_at(value, "`one_of` is for strings: make the parameter a `String` or `&str`");
            break;
        }
        if texts.contains(&value.value()) {
            errors.add_at(value, "this value is listed twice: remove one");
        }
        texts.push(value.value());
    }
    texts
}

fn default(
    keys: &ArgKeys,
    shape: &Shape,
    min: Option<&Literal>,
    max: Option<&Literal>,
    one_of: &[String],
    errors: &mut Errors,
) -> Option<ArgumentDefault> {
    let key = keys.default.as_ref()?;
    if shape.optional {
        errors.add_at(key, "an `Option` with a default is never `None`: remove the `Option` or the default");
        return None;
    }
    let value = match (shape.primitive(), key) {
        (None, DefaultKey::Own(_)) => return Some(ArgumentDefault::DefaultTrait),
        (None, DefaultKey::Value(expr)) => return Some(ArgumentDefault::Expr(Box::new(expr.clone()))),
        (Some(primitive), DefaultKey::Own(_)) => literal::default_literal(primitive),
        (Some(primitive), DefaultKey::Value(expr)) => errors.ok(literal::parse_typed(expr, primitive))?,
    };
    match &value {
        number
            if min.is_some_and(|min| min.is_above(number)) || max.is_some_and(|max| number.is_above(max)) =>
        {
            errors.add_at(key, "the default is not between `min` and `max`: change one of them");
        }
        Literal::String(text) if !one_of.is_empty() && !one_of.contains(text) => {
            errors.add_at(key, "the default is not in `one_of`: add it there or use one of its values");
        }
        _ => {}
    }
    Some(ArgumentDefault::Literal(value))
}

fn role(keys: &ArgKeys, shape: &Shape, errors: &mut Errors) -> Option<RoleAttribute> {
    let path = keys.path.as_ref().and_then(|access| match access.value().as_str() {
        "read" => Some(RoleAttribute::PathRead),
        "write" => Some(RoleAttribute::PathWrite),
        other => {
            let suggestion = did_you_mean(other, &["read", "write"]);
            errors.add_at(
                access,
                format!(
                    "`{other}` is not an access{suggestion}; write `path = \"read\"` or `path = \"write\"`"
                ),
            );
            None
        }
    });
    let mut roles = Vec::new();
    if let Some(access) = &keys.path {
        roles.push((access as &dyn quote::ToTokens, path));
    }
    if let Some(flag) = &keys.entry {
        roles.push((flag as &dyn quote::ToTokens, Some(RoleAttribute::Entry)));
    }
    if let Some(flag) = &keys.url {
        roles.push((flag as &dyn quote::ToTokens, Some(RoleAttribute::Url)));
    }
    if let Some(flag) = &keys.command {
        roles.push((flag as &dyn quote::ToTokens, Some(RoleAttribute::Command)));
    }
    // With two roles, the policy would check one text as two different things.
    if let Some((token, _)) = roles.get(1) {
        errors.add_at(token, "an argument is a path, an entry, a url or a command: keep one of them");
    } else if let Some((token, _)) = roles.first()
        && shape.primitive() != Some(JsonPrimitive::String)
    {
        errors.add_at(
            token,
            "paths, entries, urls and commands are texts: make the parameter a `String` or `&str`",
        );
    }
    roles.first().and_then(|(_, role)| *role)
}

const NAME_RULE: &str = "a tool's name has 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`";

fn is_tool_name(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn hints(keys: &ToolKeys, name: Option<&str>, errors: &mut Errors) -> ToolHints {
    let mut aliases: Vec<String> = Vec::new();
    for alias in keys.aliases.iter().flatten() {
        let text = alias.value();
        if !is_tool_name(&text) {
            errors.add_at(alias, format!("`{}` is not a tool name: {NAME_RULE}", text.escape_default()));
        } else if name.is_some_and(|name| name.eq_ignore_ascii_case(&text)) {
            errors.add_at(alias, "this is the tool's name: remove it from the aliases");
        } else if aliases.iter().any(|alias| alias.eq_ignore_ascii_case(&text)) {
            errors.add_at(alias, "this alias is listed twice: remove one");
        }
        aliases.push(text);
    }
    if let (Some(idempotent), Some(tier)) = (&keys.idempotent, &keys.tier)
        && tier == "ReadOnly"
    {
        errors.add_at(
            idempotent,
            "a `ReadOnly` tool changes nothing, so a second call does not either: remove `idempotent`",
        );
    }
    ToolHints {
        aliases,
        idempotent: keys.idempotent.is_some(),
        hidden: keys.hidden.is_some(),
        output_cap_bytes: keys.output_cap.as_ref().and_then(|cap| bytes(cap, errors)),
    }
}

fn bytes(size: &LitStr, errors: &mut Errors) -> Option<u64> {
    let text = size.value();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        _ => None,
    };
    match number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit)) {
        Some(bytes) if bytes > 0 => Some(bytes),
        _ => {
            errors.add_at(
                size,
                format!("`{text}` is not a size above zero: write `\"512B\"`, `\"16KiB\"` or `\"1MiB\"`"),
            );
            None
        }
    }
}

fn name(keys: &ToolKeys, function: &Ident, errors: &mut Errors) -> Option<String> {
    match &keys.name {
        Some(name) if is_tool_name(&name.value()) => Some(name.value()),
        Some(name) => {
            errors
                .add_at(name, format!("`{}` is not a tool name: {NAME_RULE}", name.value().escape_default()));
            None
        }
        None => {
            let name = function.unraw().to_string();
            if is_tool_name(&name) {
                return Some(name);
            }
            errors.add_at(
                function,
                format!("`{name}` is not a tool name: {NAME_RULE}; write `#[tool(name = \"…\")]`"),
            );
            None
        }
    }
}

fn label(label: &LitStr, errors: &mut Errors) -> Option<String> {
    let text = label.value();
    if text.trim().is_empty() {
        errors.add_at(label, "a label is shown to people: write one or remove the key");
        return None;
    }
    Some(text)
}

fn known_word(key: &str, word: &Ident, known: &[&str], errors: &mut Errors) -> Option<Ident> {
    let text = word.to_string();
    if known.contains(&text.as_str()) {
        return Some(word.clone());
    }
    let suggestion = did_you_mean(&text, known);
    let known_list = known.join("`, `");
    errors.add_at(word, format!("unknown {key} `{text}`{suggestion} (write one of `{known_list}`)"));
    None
}

fn timeout(timeout: &LitStr, errors: &mut Errors) -> Option<u64> {
    let text = timeout.value();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" | "min" => Some(60_000),
        _ => None,
    };
    let milliseconds = number.parse::<u64>().ok().zip(unit_ms).and_then(|(n, unit)| n.checked_mul(unit));
    match milliseconds {
        Some(milliseconds) if milliseconds > 0 => Some(milliseconds),
        _ => {
            errors.add_at(
                timeout,
                format!("`{text}` is not a duration above zero: write `\"500ms\"`, `\"20s\"` or `\"2m\"`"),
            );
            None
        }
    }
}
