//! Reading the tree: what git knows and does not ignore, or all there is where git can't say.

use super::File;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

pub fn read(root: &Path) -> io::Result<Vec<File>> {
    let mut paths = from_git(root).unwrap_or_default();
    if paths.is_empty() {
        walk(root, "", &mut paths)?;
    }
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        // A path that git knows may be gone, or be no text.
        if let Ok(bytes) = fs::read(root.join(&path)) {
            let text = String::from_utf8(bytes).unwrap_or_default();
            files.push(File { path, text });
        }
    }
    Ok(files)
}

fn from_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    let paths = list.split('\0').filter(|p| !p.is_empty());
    output.status.success().then(|| paths.map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "target" && name != ".git" {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}
