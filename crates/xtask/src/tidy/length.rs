//! Files of at most 600 lines, functions of at most 70.

use super::{File, Offence};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

pub fn check(file: &File, found: &mut Vec<Offence>) {
    if !file.is_rust() {
        return;
    }
    let lines = file.text.lines().count();
    if lines > FILE_LINES {
        let what = format!("{lines} lines, {FILE_LINES} at most");
        found.push(Offence::new("file-length", &file.path, what));
    }
    for (name, lines) in functions(&file.text) {
        if lines > FUNCTION_LINES {
            let what = format!("{lines} lines, {FUNCTION_LINES} at most");
            found.push(Offence::new("function-length", format!("{}:{name}", file.path), what));
        }
    }
}

/// Names and lengths of the functions in formatted source: each ends at a brace that is indented as it is.
fn functions(text: &str) -> Vec<(String, usize)> {
    let mut open: Vec<(&str, String, usize)> = Vec::new();
    let mut done = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(name) = function_name(line) {
            if !line.ends_with(';') && !line.ends_with('}') {
                let indent = &line[..line.len() - line.trim_start().len()];
                open.push((indent, name, number));
            }
            continue;
        }
        let Some((indent, name, start)) = open.last() else {
            continue;
        };
        let Some(rest) = line.strip_prefix(indent) else {
            continue;
        };
        if rest == "}" {
            done.push((name.clone(), number - start + 1));
            open.pop();
        } else if rest.starts_with(')') && rest.ends_with(';') {
            open.pop();
        }
    }
    done
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    loop {
        match words.next()? {
            "fn" => break,
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"" => {}
            word if word.starts_with("pub(") => {}
            _ => return None,
        }
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(name[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_functions() {
        let text = "trait T {\n    fn a(\n        &self,\n    ) -> u8;\n    fn b(&self) {\n        1;\n    }\n}\n\
                    pub(crate) const async fn c() {\n    fn d() {\n    }\n}\nfn e() {}\n";
        let expected = [("b", 3), ("d", 2), ("c", 4)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(functions(text), expected);
    }

    #[test]
    fn reports_what_is_too_long() {
        let body = "    x();\n".repeat(FUNCTION_LINES);
        let text = format!("fn long() {{\n{body}}}\n{}", "//\n".repeat(FILE_LINES));
        let path = "crates/x/src/lib.rs".to_owned();
        let mut found = Vec::new();
        check(&File { path, text }, &mut found);
        let rules: Vec<_> = found.iter().map(|o| o.rule).collect();
        assert_eq!(rules, ["file-length", "function-length"]);
    }
}
