//! Lists the files of the page, so that the program embeds all of them.

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("page");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    list(&folder, &folder, &mut files)?;
    files.sort();
    let mut text =
        String::from("/// The files of the page, by their paths.\nconst FILES: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),").expect("a string takes all");
    }
    text.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("page_files.rs"), text)
}

fn list(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(root, &path, files)?;
        } else if let (Ok(name), Some(path)) = (path.strip_prefix(root), path.to_str()) {
            files.push((name.to_string_lossy().into_owned(), path.to_owned()));
        }
    }
    Ok(())
}
