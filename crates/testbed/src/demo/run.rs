//! Starting the demo's programs and seeing them end.

use super::programs::{Data, MOST_WORK, Program};
use crate::entry::Entry;
use crate::error::{Context, Error, Result};
use crate::sys;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A program that was started. It is killed when this is dropped before its end.
pub struct Running {
    /// Our child: the program itself, or the `pando run` that started it.
    child: u32,
    /// The program's pid, once it is known.
    program: Option<u32>,
    /// How it ended.
    pub end: Option<End>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Its wait status.
    pub status: i32,
    /// CPU time that this kernel charged it.
    pub cpu: Duration,
}

impl Running {
    /// Starts `program` with its output in `dir`: by `pando run` at a node, or just so.
    pub fn start(program: &Program, data: &Data, dir: &Path, node: Option<Start>) -> Result<Running> {
        let mut command = match &node {
            None => Command::new(&program.path),
            Some(start) => {
                let mut command = Command::new(&start.pando);
                command.arg("run").args(start.options).arg(&program.path);
                command
            }
        };
        command.args(program.args(data)).stdin(program.input(dir)?);
        command.stdout(File::create(output(program, dir)).at("create", &output(program, dir))?);
        let complaints = complaints(program, dir);
        command.stderr(File::create(&complaints).at("create", &complaints)?);
        command.env("LC_ALL", "C").env("TMPDIR", dir).env("BC_LINE_LENGTH", "0").current_dir(dir);
        let by_pando = node.is_some();
        if let Some(start) = node {
            command.envs(start.environment);
            start.entry.attach(&mut command);
        }
        let child = command.spawn().at("start", &program.path)?.id();
        Ok(Running { child, program: (!by_pando).then_some(child), end: None })
    }

    /// The program's pid, if it has begun.
    pub fn pid(&mut self) -> Option<u32> {
        let first = || pando_kernel::procfs::children(self.child as i32).first().map(|pid| pid.unsigned_abs());
        self.program = self.program.or_else(first);
        self.program
    }

    /// Looks whether it has ended.
    pub fn look(&mut self) -> Option<End> {
        if self.end.is_none() {
            let mut status = 0;
            // SAFETY: rusage is plain data; both places outlive the call; the pid is our child, not reaped yet.
            let (got, usage) = unsafe {
                let mut usage = std::mem::zeroed::<libc::rusage>();
                (libc::wait4(self.child as i32, &mut status, libc::WNOHANG, &mut usage), usage)
            };
            if got == self.child as i32 {
                let cpu = time(usage.ru_utime) + time(usage.ru_stime);
                self.end = Some(End { status, cpu });
            }
        }
        self.end
    }

    /// Waits for the end.
    fn wait(mut self) -> Result<End> {
        loop {
            if let Some(end) = self.look() {
                return Ok(end);
            }
            if sys::interrupted().is_some() {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.end.is_none() {
            // `pando run` can't pass this signal on.
            for pid in self.pid().into_iter().chain([self.child]) {
                drop(sys::kill(pid, libc::SIGKILL));
            }
            for _ in 0..500 {
                if self.look().is_some() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// How a program is started at a node.
pub struct Start {
    /// The way in.
    pub entry: Entry,
    /// Environment variables of the node.
    pub environment: Vec<(&'static str, std::ffi::OsString)>,
    /// The program `pando`.
    pub pando: PathBuf,
    /// Options of `pando run`.
    pub options: &'static [&'static str],
}

fn time(t: libc::timeval) -> Duration {
    Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
}

/// Where a program's output goes.
pub fn output(program: &Program, dir: &Path) -> PathBuf {
    dir.join(format!("{}.out", program.name))
}

/// Where a program's complaints go.
pub fn complaints(program: &Program, dir: &Path) -> PathBuf {
    dir.join(format!("{}.err", program.name))
}

/// Gives every program work for about `wanted` seconds of a CPU. Those that fail in their trial are left out,
/// with a word about it.
pub fn scale(programs: &mut Vec<Program>, data: &Data, wanted: f64) -> Result<()> {
    let mut good = Vec::new();
    let (mut cpu, begin) = (0.0, Instant::now());
    for mut program in programs.drain(..) {
        match costs(&mut program, data, &mut cpu)? {
            Ok(cost) => good.push((program, cost)),
            Err(said) => eprintln!("pando demo: {} is left out: {said}", program.name),
        }
    }
    // On a machine that is busy with other things a CPU second takes longer.
    let share = (cpu / begin.elapsed().as_secs_f64()).clamp(0.1, 1.0);
    let sized = |(mut program, (start, unit)): (Program, (f64, f64))| {
        program.set_count((wanted * share - start) / unit);
        program
    };
    programs.extend(good.into_iter().map(sized));
    Ok(())
}

/// Seconds that tell a unit of work from the start of the program.
const TRIAL: f64 = 0.06;

/// Seconds of CPU time to start the program, and for a unit of its work; or why it does not work here.
fn costs(program: &mut Program, data: &Data, total: &mut f64) -> Result<std::result::Result<(f64, f64), String>> {
    let mut start = None;
    loop {
        let end = Running::start(program, data, &data.dir, None)?.wait()?;
        if end.status != 0 {
            let said = std::fs::read_to_string(complaints(program, &data.dir)).unwrap_or_default();
            return Ok(Err(format!("{}: {}", sys::status_text(end.status), said.trim())));
        }
        let took = end.cpu.as_secs_f64();
        *total += took;
        let Some(first) = start else {
            start = Some(took);
            program.set_count(8.0);
            continue;
        };
        if took - first >= TRIAL || program.count >= MOST_WORK {
            let unit = (took - first).max(1e-6) / (program.count - 1) as f64;
            return Ok(Ok((first - unit, unit)));
        }
        program.set_count(program.count as f64 * 6.0);
    }
}

/// Runs all of them here, as many at a time as there are CPUs.
pub fn unmoved(programs: &[Program], data: &Data, dir: &Path, cpus: usize) -> Result<Vec<End>> {
    let mut running: Vec<Option<Running>> = programs.iter().map(|_| None).collect();
    let mut next = 0;
    loop {
        let busy = running.iter_mut().flatten().filter_map(|r| r.look().is_none().then_some(())).count();
        if busy == 0 && next == programs.len() {
            return Ok(running.into_iter().flatten().filter_map(|r| r.end).collect());
        }
        if busy < cpus && next < programs.len() {
            running[next] = Some(Running::start(&programs[next], data, dir, None)?);
            next += 1;
            continue;
        }
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether two files have the same bytes.
pub fn same(a: &Path, b: &Path) -> Result<bool> {
    Ok(std::fs::read(a).at("read", a)? == std::fs::read(b).at("read", b)?)
}
