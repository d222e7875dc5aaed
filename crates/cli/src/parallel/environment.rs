//! Which variables ranks get.

use super::bytes_of;
use pando_launch::Environment;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// By name.
pub type Variables = BTreeMap<OsString, OsString>;

/// What tells a program that it is in another job, or which daemon to speak to here, is not for this one.
fn is_of_another(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let ours = [b"PANDO_SOCKET".as_slice(), b"PANDO_STATE", b"PANDO_JOB_DIR"].contains(&name);
    ours || [b"PMI_".as_slice(), b"PMIX_", b"SLURM_"].iter().any(|p| name.starts_with(p))
}

/// `NAME=VALUE` or `NAME`. The error is for people.
fn pair<'a>(word: &'a OsStr, option: &str) -> Result<(&'a OsStr, Option<&'a OsStr>), String> {
    let bytes = word.as_bytes();
    let end = bytes.iter().position(|b| *b == b'=').unwrap_or(bytes.len());
    if end == 0 {
        return Err(format!("{option}: `{}` has no name of a variable: write NAME=VALUE", word.display()));
    }
    Ok((OsStr::from_bytes(&bytes[..end]), bytes.get(end + 1..).map(OsStr::from_bytes)))
}

/// As --export (Slurm's) and --env have it, of those that there are.
pub fn environment(all: Variables, export: Option<&OsStr>, more: &[OsString]) -> Result<Environment, String> {
    let mut chosen = match export.map(OsStr::as_bytes) {
        None | Some(b"ALL") => all.clone(),
        Some(b"NONE" | b"NIL") => Variables::new(),
        Some(list) => of_list(&all, list)?,
    };
    chosen.retain(|name, _| !name.is_empty() && !is_of_another(name) && name != "PWD");
    for word in more {
        if let (name, Some(value)) = with(&all, word, "--env")? {
            chosen.insert(name, value);
        }
    }
    Ok(chosen.iter().map(|(n, v)| (bytes_of(n), bytes_of(v))).collect())
}

/// What a login gives everybody, where it is not there: programs are found, and have a home.
pub fn with_login(chosen: Environment, all: &Variables) -> Environment {
    let of_login = |name: &str| match name {
        "PATH" => Some(login_path().into()),
        _ => all.get(OsStr::new(name)).cloned().filter(|value| !value.is_empty()),
    };
    let has: Vec<String> = chosen.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    let missing =
        ["HOME", "LOGNAME", "PATH", "SHELL", "USER"].into_iter().filter(|name| !has.iter().any(|n| n == name));
    let more = missing.filter_map(|name| Some((bytes_of(OsStr::new(name)), bytes_of(&of_login(name)?))));
    let mut chosen = chosen;
    chosen.extend(more.collect::<Vec<_>>());
    chosen
}

/// As login(1) has it.
fn login_path() -> String {
    let text = std::fs::read_to_string("/etc/login.defs").unwrap_or_default();
    let name = if pando_node::sys::effective_uid() == 0 { "ENV_SUPATH" } else { "ENV_PATH" };
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix("PATH="));
    found.filter(|path| !path.is_empty()).unwrap_or("/usr/local/bin:/usr/bin:/bin").to_owned()
}

fn of_list(all: &Variables, list: &[u8]) -> Result<Variables, String> {
    let words: Vec<&OsStr> = list.split(|b| *b == b',').map(OsStr::from_bytes).filter(|w| !w.is_empty()).collect();
    let mut chosen = if words.iter().any(|w| *w == "ALL") { all.clone() } else { Variables::new() };
    for word in words.into_iter().filter(|w| *w != "ALL") {
        if let (name, Some(value)) = with(all, word, "--export")? {
            chosen.insert(name, value);
        }
    }
    Ok(chosen)
}

/// One that is named and not there has no value.
fn with(all: &Variables, word: &OsStr, option: &str) -> Result<(OsString, Option<OsString>), String> {
    let (name, value) = pair(word, option)?;
    Ok((name.to_owned(), value.map(OsStr::to_owned).or_else(|| all.get(name).cloned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(export: Option<&str>, more: &[&str]) -> String {
        let all = [("A", "1"), ("B", "2"), ("PWD", "/"), ("SLURM_NTASKS", "9"), ("PMI_FD", "3")];
        let all = all.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect();
        let more: Vec<OsString> = more.iter().map(OsString::from).collect();
        match environment(all, export.map(OsStr::new), &more) {
            Ok(all) => {
                let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                all.iter().map(|(n, v)| format!("{}={}", text(n), text(v))).collect::<Vec<_>>().join(" ")
            }
            Err(why) => why,
        }
    }

    #[test]
    fn what_a_login_gives_is_there_besides() {
        let all: Variables =
            [("HOME", "/h"), ("USER", "u"), ("SHELL", ""), ("A", "1")].map(|(n, v)| (n.into(), v.into())).into();
        let names = |environment: Environment| {
            let names = environment.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(with_login(Vec::new(), &all)), "HOME PATH USER");
        let own = environment(all.clone(), Some(OsStr::new("PATH=/x,A")), &[]).unwrap();
        assert_eq!(names(with_login(own, &all)), "A PATH HOME USER");
        assert!(login_path().contains("/bin"));
    }

    #[test]
    fn ranks_get_what_is_exported() {
        assert_eq!(given(None, &[]), "A=1 B=2");
        assert_eq!(given(Some("ALL"), &[]), "A=1 B=2");
        assert_eq!(given(Some("NONE"), &[]), "");
        assert_eq!(given(Some("B"), &[]), "B=2");
        assert_eq!(given(Some("X=a=b,A,Y"), &[]), "A=1 X=a=b");
        assert_eq!(given(Some("ALL,X="), &[]), "A=1 B=2 X=");
        assert_eq!(given(Some("NONE"), &["B", "C=3", "D"]), "B=2 C=3");
        assert_eq!(given(None, &["A=a,b"]), "A=a,b B=2");
        assert!(given(Some("=x"), &[]).contains("has no name") && given(None, &["=x"]).contains("--env"));
    }
}
