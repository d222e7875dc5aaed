//! Where a batch job reads and writes: files of its user, opened with that user's rights.

use crate::queue::errand::Order;
use pando_queue::{Filling, Id};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Open for the whole life of the job.
pub struct Files {
    /// Standard input.
    pub input: File,
    /// Standard output.
    pub output: File,
    /// Standard error.
    pub error: File,
    /// The same for the helper's own words, which never wait.
    pub words: File,
}

/// Opens them, as the caller may. The error is for people.
pub fn open(order: &Order, node: &str, directory: &Path) -> Result<Files, String> {
    let names = Names { id: order.key.id, number: order.number, name: &order.name, user: &order.user, node };
    let file = |pattern: &[u8]| directory.join(OsStr::from_bytes(&filled(pattern, &names)));
    let output_name = file(pattern(&order.files, order.key.id, false));
    let input_name = order.files.input.as_ref().map_or_else(|| Path::new("/dev/null").to_owned(), |p| file(&p.0));
    let output = write(&output_name, order.files.append).map_err(|why| format!("node {node}: {why}"))?;
    let error = match order.files.error.as_ref().map(|p| file(&p.0)).filter(|name| *name != output_name) {
        Some(name) => write(&name, order.files.append).map_err(|why| format!("node {node}: {why}"))?,
        None => output.try_clone().map_err(|e| e.to_string())?,
    };
    let input = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&input_name);
    let input = input.map_err(|e| format!("node {node}: {} can't be read: {e}", input_name.display()))?;
    if !input.metadata().map_err(|e| e.to_string())?.is_file() {
        // The script is not to find that there is nothing to read just now.
        pando_kernel::description::wait_again(&input).map_err(|e| e.to_string())?;
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let words =
        OpenOptions::new().append(true).custom_flags(flags).open(format!("/proc/self/fd/{}", error.as_raw_fd()));
    let words = words.or_else(|_| error.try_clone()).map_err(|e| e.to_string())?;
    Ok(Files { input, output, error, words })
}

/// What its file is called before it is filled in: that of its output, or of its errors.
pub fn pattern(files: &pando_queue::Files, id: Id, error: bool) -> &[u8] {
    let usual: &[u8] = if id.task.is_some() { b"pando-%A_%a.out" } else { b"pando-%j.out" };
    let output = files.output.as_ref().map_or(usual, |p| &p.0);
    files.error.as_ref().filter(|_| error).map_or(output, |p| &p.0)
}

/// What patterns are filled in with.
pub struct Names<'a> {
    /// The task.
    pub id: Id,
    /// Its own number; 0, if it is not known (earlier versions').
    pub number: u64,
    /// What people call it.
    pub name: &'a str,
    /// Whose it is.
    pub user: &'a str,
    /// Where it runs.
    pub node: &'a str,
}

/// Two jobs, or two streams of one, may have the same file: each writes at its end.
fn write(name: &Path, append: bool) -> Result<File, String> {
    let why = |e: std::io::Error| format!("{} can't be written: {e}", name.display());
    // A FIFO that nobody reads would make it wait for ever.
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o644).custom_flags(libc::O_NONBLOCK).open(name).map_err(why)?;
    match file.metadata().map_err(why)?.is_file() {
        true if append => {}
        true => file.set_len(0).map_err(why)?,
        // The script is not to find that it can't write just now: somebody reads it, so this one does not wait.
        false => pando_kernel::description::wait_again(&file).map_err(why)?,
    }
    Ok(file)
}

/// `%j` and the like filled in, as sbatch does it: `%A` job, `%a` task, `%j` the task's own number, `%x` name, `%u` user, `%N` node; `%4a` with zeroes.
pub fn filled(pattern: &[u8], names: &Names) -> Vec<u8> {
    let id = names.id;
    pando_queue::filled(pattern, |letter| {
        Some(match letter {
            b'j' | b'J' => match (id.task, names.number) {
                (None, _) => Filling::number(id.job),
                (Some(_), 0) => Filling::Text(id.to_string().into_bytes()),
                (Some(_), own) => Filling::number(own),
            },
            b'A' => Filling::number(id.job),
            b'a' => Filling::number(id.task.unwrap_or(0)),
            b'x' => Filling::name(names.name),
            b'u' => Filling::name(names.user),
            b'N' => Filling::name(names.node),
            b'n' | b't' | b's' => Filling::number(0),
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let names = |task| Names { id: Id { job: 17, task }, number: 21, name: "a/b", user: "ann", node: "n2" };
        let of = |pattern: &str, task| String::from_utf8(filled(pattern.as_bytes(), &names(task))).unwrap();
        assert_eq!(of("pando-%j.out", None), "pando-17.out");
        assert_eq!(of("%A_%a %4a %j %x %u %N %% %q 100%", Some(4)), "17_4 0004 21 a_b ann n2 % %q 100%");
        assert_eq!(of("%", None), "%");
        assert_eq!(of("%99", None), "%99");
    }
}
