//! The file of a run: whoever is the first to make it has the run, and there is never another helper of it. A helper's later runs give a file that it has
//! already a second name: to make a file, and to remove it, costs more than all that is written in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Makes it, with this text. `spare`: a file that is this helper's alone, if there is one. False: another helper was first.
pub fn claim(name: &Path, spare: &Path, text: &[u8]) -> io::Result<bool> {
    match name_again(name, spare, text) {
        Ok(()) => return Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
        // There is none yet, or its file system knows no second names.
        Err(_) => {}
    }
    match File::create_new(name) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        made => made.and_then(|mut file| file.write_all(text)).map(|()| true),
    }
}

/// Nobody knows it by another name while it is written: what was in it was another run's.
fn name_again(name: &Path, spare: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(spare)?;
    file.write_all(text)?;
    if file.metadata()?.len() != text.len() as u64 {
        file.set_len(text.len() as u64)?;
    }
    fs::hard_link(spare, name)
}

/// Nothing says any more that the run was here. The file stays as its helper's, if that stays.
pub fn give_up(name: &Path, spare: Option<&Path>) {
    let left = spare.filter(|spare| !spare.exists()).is_some_and(|spare| fs::rename(name, spare).is_ok());
    if !left {
        let _ = fs::remove_file(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_a_run_and_its_file_goes_round() {
        let dir = std::env::temp_dir().join(format!("pando-claim-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let [one, two, spare, other] = ["one", "two", "spare", "other"].map(|name| dir.join(name));
        let read = |name: &Path| fs::read_to_string(name).unwrap();
        assert!(claim(&one, &spare, b"the first run").unwrap());
        assert!(!claim(&one, &other, b"another helper").unwrap());
        assert_eq!(read(&one), "the first run");
        give_up(&one, Some(&spare));
        assert!(!one.exists() && spare.exists());
        assert!(claim(&two, &spare, b"second").unwrap());
        assert_eq!(read(&two), "second");
        // Somebody else has had that run before: it is as it was.
        assert!(claim(&one, &other, b"theirs").unwrap());
        assert!(!claim(&one, &spare, b"mine").unwrap());
        assert_eq!(read(&one), "theirs");
        give_up(&two, Some(&spare));
        assert!(!two.exists() && spare.exists());
        give_up(&one, None);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "only the spare one is left");
        fs::remove_dir_all(&dir).unwrap();
    }
}
