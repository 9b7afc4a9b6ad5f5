//! The crate graph keeps its direction: a crate depends only on those to the right of it.
//!
//! `server → frontend → meta → stream → connector, storage → common`

use std::path::Path;

/// Each crate, and the crates of ours that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("storage", &["common"]),
    ("connector", &["common"]),
    ("stream", &["connector", "storage", "common"]),
    ("meta", &["stream", "connector", "storage", "common"]),
    ("frontend", &["meta", "stream", "connector", "storage", "common"]),
    ("server", &["frontend", "meta", "stream", "connector", "storage", "common"]),
    ("e2e_test", &[]),
];

#[test]
fn crates_depend_in_one_direction() {
    // Not `env!`: checkouts share built tests, and each must read its own files.
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is")).join("..");
    for (name, allowed) in ALLOWED {
        let manifest = std::fs::read_to_string(root.join(name).join("Cargo.toml")).expect("read the manifest");
        for line in manifest.lines() {
            if let Some(rest) = line.strip_prefix("weir-") {
                let used: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
                assert!(allowed.contains(&used.as_str()), "{name} must not depend on {used}");
            }
        }
    }
}
