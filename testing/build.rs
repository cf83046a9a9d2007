//! Builds the hostile guests and the example `weather`, and generates a macro over the hostile guests' names,
//! so that a hostile guest without a test does not compile.

use std::{fmt::Write as _, fs, path::PathBuf};

use portcullis_guest_build as nested;

/// The prefix of the hostile guests' names.
const PREFIX: &str = "hostile_";

fn main() {
    if std::env::var_os("CARGO_FEATURE_FIXTURES").is_none() {
        return;
    }
    println!("cargo::rerun-if-changed=../guest-tools/src/bin");
    let folder = nested::build_guests(&["--bins"]);
    let mut names: Vec<String> = fs::read_dir("../guest-tools/src/bin")
        .unwrap_or_else(|error| nested::fail(&format!("cannot list the guests: {error}")))
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str()?.strip_prefix(PREFIX).map(str::to_owned))
        .collect();
    names.sort();
    let mut code = String::from(
        "/// The bytes of a hostile guest's module, or of the example `weather`.\n///\n/// # Panics\n/// If there is none with the name.\n#[must_use]\npub fn guest(name: &str) -> &'static [u8] {\n    match name {\n",
    );
    for name in &names {
        let module = folder.join(format!("{PREFIX}{name}.wasm"));
        nested::rerun_if_sources_change(&module);
        writeln!(code, "        {name:?} => include_bytes!({module:?}),").unwrap_or_default();
    }
    let weather = folder.join("weather.wasm");
    nested::rerun_if_sources_change(&weather);
    writeln!(code, "        \"weather\" => include_bytes!({weather:?}),").unwrap_or_default();
    code.push_str("        other => panic!(\"there is no hostile guest `{other}`\"),\n    }\n}\n\n");
    code.push_str("/// Calls a macro with the name of each hostile guest.\n#[macro_export]\nmacro_rules! foreach_hostile_guest {\n    ($call:ident) => {\n");
    for name in &names {
        writeln!(code, "        $call!({name});").unwrap_or_default();
    }
    code.push_str("    };\n}\n");
    let out = PathBuf::from(nested::required("OUT_DIR")).join("guests.rs");
    fs::write(&out, code)
        .unwrap_or_else(|error| nested::fail(&format!("cannot write `{}`: {error}", out.display())));
}
