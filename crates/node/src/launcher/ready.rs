//! What can be found out before a job begins: may its user run programs here, is there such a program, and such a directory?

use pando_kernel::job_group::JobGroup;
use pando_kernel::rank::{self, User, as_user};
use pando_kernel::turns;
use pando_launch::{Environment, Identity, Need, Order, Program, Task, base, listed};
use serde_bytes::ByteBuf;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the loader looks for libraries, and its list of those elsewhere.
const LIBRARIES: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const LIST: &str = "/etc/ld.so.cache";
/// Where programs are looked for when the user's environment says nothing.
const USUAL_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// See above.
pub struct Ready {
    /// The program's file.
    pub program: PathBuf,
    /// That file, if it came with the job.
    pub open: Option<OwnedFd>,
    /// The directory with the other files that came, if there are any.
    pub along: Option<OsString>,
    /// A descriptor that ranks keep: that of a script, which its interpreter opens (a shell, if it names none).
    pub keep: Option<RawFd>,
    /// See [`pando_launch::Work::mark`].
    pub mark: String,
    /// Whose rights ranks get; none: ours, and we have no others.
    pub user: Option<User>,
    /// The working directory.
    pub directory: CString,
    /// Files and working directories of other programs than the first one, if ranks run several.
    pub others: Vec<(PathBuf, CString)>,
    /// The CPUs of each rank of this node.
    pub cpus: Vec<Vec<u16>>,
    /// Variables in the place of the user's.
    pub variables: Environment,
    /// Of the control groups of the batch job that ranks are part of, and of their gang.
    pub doors: Vec<File>,
    /// Those of the job's resource limits that this process has otherwise.
    pub limits: Vec<(u32, u64, u64)>,
    /// Signals that this process ignores, and ranks do not.
    pub ignored: Vec<i32>,
}

/// What the daemon gives a job's ranks: see [`pando_launch::Work`].
pub struct Given {
    /// CPUs of each.
    pub cpus: Vec<Vec<u16>>,
    /// Control groups.
    pub groups: Vec<ByteBuf>,
    /// That of its gang.
    pub gang: Option<ByteBuf>,
    /// Variables.
    pub variables: Environment,
}

impl Ready {
    /// Looks. The error is for people.
    pub fn make(
        order: &Order,
        user: Option<Identity>,
        (program, along): (Option<ByteBuf>, Option<ByteBuf>),
        Given { cpus, groups: held, gang, variables }: Given,
        mark: String,
    ) -> Result<Ready, String> {
        let name = &order.user;
        let (uid, gid, groups) = user.ok_or_else(|| format!("there is no user {name} here"))?;
        let user = User { uid, gid, groups };
        let me = crate::sys::effective_uid();
        if me != 0 && me != user.uid {
            return Err(format!(
                "the node runs in personal mode, for {}, and not for {name}",
                crate::sys::user_name(me)
            ));
        }
        let task = &order.task;
        let who = (me == 0).then_some((user.uid, user.gid));
        let programs = order.group.as_ref().map_or(&[][..], |group| &group.programs);
        let directory = directory(programs.first(), task, who)?;
        let program = program.map(opened).transpose()?;
        let (file, keep) = match &program {
            Some(program) => came_along(program),
            None => (as_user(who, || find(programs.first(), task, &directory))?, None),
        };
        // It comes only where all run the same.
        let came = program.is_some();
        let other = |program: &Program| {
            let directory = self::directory(Some(program), task, who)?;
            Ok((if came { file.clone() } else { as_user(who, || find(Some(program), task, &directory))? }, directory))
        };
        let others = programs.iter().skip(1).map(other).collect::<Result<Vec<_>, String>>()?;
        if let Some(need) = order.needs.iter().find(|need| !as_user(who, || is_here(need))) {
            let library = String::from_utf8_lossy(base(&need.path)).into_owned();
            return Err(format!("the program needs {library}, which is not installed here"));
        }
        let along = along.map(|dir| OsString::from_vec(dir.into_vec()));
        let user = (me == 0).then_some(user);
        let dirs = held.into_iter().map(|dir| PathBuf::from(OsString::from_vec(dir.into_vec()))).collect();
        let mut doors = JobGroup::again(dirs).doors();
        if let Some(list) = gang {
            let list = PathBuf::from(OsString::from_vec(list.into_vec()));
            let door = File::options().write(true).open(&list).map_err(|e| format!("{}: {e}", list.display()))?;
            // Where there is one hierarchy for all (version 2) nobody is in two groups: turns come first, and others look at memory and time.
            if !turns::is_alone(&list) {
                doors.clear();
            }
            doors.push(door);
        }
        let (mine, ignored) = (rank::limits(), rank::ignored());
        let limits = order.task.limits.iter().filter(|limit| !mine.contains(limit)).copied().collect();
        let (program, open) = (file, program);
        Ok(Ready { doors, variables, program, open, along, keep, mark, user, directory, others, cpus, limits, ignored })
    }

    /// The file of one of the programs, and its working directory.
    pub fn of(&self, program: usize) -> (&Path, &CString) {
        let other = program.checked_sub(1).and_then(|at| self.others.get(at));
        other.map_or((&self.program, &self.directory), |(file, directory)| (file, directory))
    }
}

/// Where a program is to work: in a directory of its own, or in the job's.
fn directory(program: Option<&Program>, task: &Task, who: Option<(u32, u32)>) -> Result<CString, String> {
    let own = program.and_then(|program| program.directory.as_ref()).map_or(&[][..], |dir| dir.as_slice());
    let of_job = Path::new(OsStr::from_bytes(&task.directory));
    let directory = if own.is_empty() { of_job.to_owned() } else { of_job.join(OsStr::from_bytes(own)) };
    if !as_user(who, || directory.is_dir()) {
        let shown = directory.display();
        return Err(match own {
            [] => format!("there is no directory {shown} here: `pando run --chdir DIR` takes another one"),
            _ => format!("there is no directory {shown} here (wdir)"),
        });
    }
    CString::new(directory.into_os_string().into_vec()).map_err(|e| e.to_string())
}

/// Has this node what the program needs, in the same place or where the loader looks?
fn is_here(need: &Need) -> bool {
    let is_file = |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.is_file());
    if is_file(Path::new(OsStr::from_bytes(&need.path))) {
        return true;
    }
    let name = base(&need.path);
    let usual = || LIBRARIES.iter().any(|dir| is_file(&Path::new(dir).join(OsStr::from_bytes(name))));
    let listed = || {
        let list = std::fs::read(LIST).unwrap_or_default();
        std::str::from_utf8(name).is_ok_and(|name| !listed(&list, name).is_empty())
    };
    need.anywhere && (usual() || listed())
}

/// The file of the program that came with the job: it runs on when it is not kept any more.
fn opened(path: ByteBuf) -> Result<OwnedFd, String> {
    let path = OsString::from_vec(path.into_vec());
    File::open(path).map(OwnedFd::from).map_err(|e| format!("the program's file: {e}"))
}

/// The program that came with the job. Its directory is closed to the user, who may execute it all the same.
fn came_along(program: &OwnedFd) -> (PathBuf, Option<RawFd>) {
    let number = program.as_raw_fd();
    let path = PathBuf::from(format!("/proc/self/fd/{number}"));
    let mut first = [0; 2];
    let read = File::open(&path).and_then(|mut file| file.read_exact(&mut first));
    let keep = (read.is_ok() && first != *b"\x7fE").then_some(number);
    (path, keep)
}

/// The program's file, as a shell would find it.
fn find(program: Option<&Program>, task: &Task, directory: &CString) -> Result<PathBuf, String> {
    let words = program.map_or(&task.words, |program| &program.words);
    let word = OsStr::from_bytes(words.first().map_or(&[], |w| w.as_slice()));
    let directory = Path::new(OsStr::from_bytes(directory.to_bytes()));
    if word.as_bytes().contains(&b'/') {
        let file = directory.join(word);
        return match is_program(&file) {
            Ok(()) => Ok(file),
            Err(why) => Err(format!("{}: {why}", word.display())),
        };
    }
    let path = task.environment.iter().find(|(n, _)| n.as_slice() == b"PATH").map(|(_, v)| v.as_slice());
    let own = program.and_then(|program| program.path.as_ref()).map(|path| path.as_slice());
    let places = own.into_iter().chain([path.unwrap_or(USUAL_PATH)]).flat_map(|path| path.split(|b| *b == b':'));
    let mut files = places.map(|place| directory.join(OsStr::from_bytes(place)).join(word));
    let found = files.find(|file| is_program(file).is_ok());
    found.ok_or_else(|| format!("{}: there is no such program in PATH", word.display()))
}

fn is_program(file: &Path) -> Result<(), String> {
    let about = std::fs::metadata(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such file here".to_owned(),
        kind => kind.to_string(),
    })?;
    match about.is_file() && about.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err("it is no program".into()),
    }
}
