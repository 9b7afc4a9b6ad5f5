//! Every sqllogictest file under `slt/`, each against a server of its own.
//!
//! `WEIR_SLT=part-of-a-path` runs the files whose path contains it.

use std::path::{Path, PathBuf};

use futures::StreamExt;

/// Files that run side by side.
const AT_ONCE: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn sqllogictest_files() {
    // Not `env!`: checkouts share built tests, and each must read its own files.
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is")).join("slt");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    if let Ok(part) = std::env::var("WEIR_SLT") {
        files.retain(|f| f.display().to_string().contains(&part));
    }
    assert!(!files.is_empty(), "no file to run");
    let failures: Vec<_> = futures::stream::iter(files)
        .map(|file| async move { weir_e2e::slt::run_file(&file).await.err().map(|e| (file, e)) })
        .buffer_unordered(AT_ONCE)
        .filter_map(|failure| async { failure })
        .collect()
        .await;
    for (file, error) in &failures {
        let name = file.strip_prefix(&root).unwrap_or(file).display();
        eprintln!("---- {name}\n{error:#}\n");
    }
    assert!(failures.is_empty(), "{} files failed", failures.len());
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("list the test files") {
        let path = entry.expect("list the test files").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "slt") {
            files.push(path);
        }
    }
}
