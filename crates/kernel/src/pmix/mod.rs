//! OpenPMIx's server library, which Open MPI's programs and others find each other through: this process is the server of a node's ranks.
//!
//! It is found when it is needed (dlopen) and called as its header says ([`ffi`]); what it calls becomes events ([`called`]). There is one server in
//! a process, as the library has global state.

mod called;
mod ffi;
mod info;
mod published;

pub use called::{Answer, Asked, Done, Event, Listener};
use called::{LISTENER, RUNS, SPACE};
use ffi::{Library, Module};
use info::{Infos, proc};
pub use published::{Finder, Found};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::PoisonError;

/// A rank is not known, or nothing of it: what an [`Answer`] fails with.
pub const NOT_FOUND: i32 = ffi::NOT_FOUND;
/// Something else.
pub const ERROR: i32 = ffi::ERROR;
/// There is one of that name already.
pub const DUPLICATE: i32 = ffi::DUPLICATE;
/// That can't be done here.
pub const NOT_SUPPORTED: i32 = ffi::NOT_SUPPORTED;

/// A node and its ranks.
pub struct Host<'a> {
    /// Its name.
    pub name: &'a str,
    /// The first of its ranks.
    pub first: u32,
    /// How many.
    pub ranks: u32,
}

/// A job as its ranks are told of it.
pub struct Job<'a> {
    /// The job's name. Who knows it may speak for its ranks: it should be hard to guess.
    pub space: &'a str,
    /// The job's number.
    pub number: u64,
    /// Nodes with ranks, in the order of their ranks.
    pub hosts: &'a [Host<'a>],
    /// Which of them this is.
    pub here: usize,
    /// Which of the job's programs each rank is.
    pub programs: &'a [u32],
    /// Whose ranks these are.
    pub user: u32,
    /// Their main group.
    pub group: u32,
    /// Where ranks may put what they need while they run.
    pub directory: &'a Path,
}

/// The server. It is shut down when this is dropped.
pub struct Server {
    library: Library,
    space: String,
}

impl Server {
    /// Becomes the server of that job's ranks here. What the library itself writes goes to `directory`. Once in a process, while that has one
    /// thread. The error is for people.
    pub fn start(directory: &Path, job: &Job, listener: Listener) -> Result<Server, String> {
        let library = Library::load()?;
        LISTENER.set(listener).map_err(|_| "there is a PMIx server in this process already".to_owned())?;
        let _ = SPACE.set(job.space.to_owned());
        // With its other stores it writes files of root's into directories of the user's, who could have put a link there.
        // And what it finds out about the machine is not used: it should not wake graphics cards for that.
        // SAFETY: the caller has one thread.
        unsafe {
            std::env::set_var("PMIX_MCA_gds", "hash");
            std::env::set_var("HWLOC_COMPONENTS", "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero,-pci");
            std::env::set_var("HWLOC_PLUGINS_PATH", directory);
        }
        let mut infos = Infos::default();
        let shown = directory.to_string_lossy();
        infos.text("pmix.srvr.tmpdir", &shown);
        infos.text("pmix.sys.tmpdir", &shown);
        infos.text("pmix.hname", job.hosts[job.here].name);
        let (list, length) = infos.raw();
        // SAFETY: an all-null module is what the header allows: nothing is offered.
        let mut module: Module = unsafe { std::mem::zeroed() };
        module.finalized = Some(called::finalized);
        module.abort = Some(called::abort);
        module.fence = Some(called::fence);
        module.direct_modex = Some(called::direct_modex);
        module.publish = Some(published::publish);
        module.lookup = Some(published::lookup);
        module.unpublish = Some(published::unpublish);
        module.spawn = Some(called::spawn);
        module.connect = Some(called::meet);
        module.disconnect = Some(called::meet);
        module.connected2 = Some(called::connected);
        // Some versions keep the pointer.
        let module = Box::leak(Box::new(module));
        // SAFETY: the functions have the header's types, the list lives until the call returns.
        let status = unsafe { (library.init)(module, list, length) };
        library.check("PMIx_server_init", status)?;
        *RUNS.write().unwrap_or_else(PoisonError::into_inner) = true;
        let server = Server { library, space: job.space.to_owned() };
        server.register(job)?;
        Ok(server)
    }

    fn register(&self, job: &Job) -> Result<(), String> {
        let mut infos = describe(job);
        let names: Vec<&str> = job.hosts.iter().map(|h| h.name).collect();
        let of = |h: &Host| (h.first..h.first + h.ranks).map(|r| r.to_string()).collect::<Vec<_>>().join(",");
        let ranks: Vec<String> = job.hosts.iter().map(of).collect();
        let nodes = infos.empty("pmix.nmap");
        let procs = infos.empty("pmix.pmap");
        self.map(infos.value(nodes), &names.join(","), self.library.regex)?;
        self.map(infos.value(procs), &ranks.join(";"), self.library.ppn)?;
        let local = job.hosts[job.here].ranks;
        let space = proc(job.space, 0).space;
        let (list, length) = infos.raw();
        // SAFETY: the name is terminated, the list lives until the call returns, which without a function to be called is when it is done.
        let status = unsafe {
            (self.library.register_space)(space.as_ptr(), local as i32, list, length, None, std::ptr::null_mut())
        };
        for at in [nodes, procs] {
            // SAFETY: `map` had the library fill it.
            unsafe { (self.library.value_destruct)(infos.value(at)) };
        }
        self.library.check("PMIx_server_register_nspace", status)?;
        let first = job.hosts[job.here].first;
        for rank in first..first + local {
            let client = proc(job.space, rank);
            // SAFETY: as above; the object is handed back as it is, and not used.
            let status = unsafe {
                let nothing = std::ptr::null_mut();
                (self.library.register_client)(&client, job.user, job.group, nothing, None, nothing)
            };
            self.library.check("PMIx_server_register_client", status)?;
        }
        Ok(())
    }

    /// Has the library write a map in the form that it likes best.
    fn map(
        &self,
        value: *mut ffi::Value,
        text: &str,
        make: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> i32,
    ) -> Result<(), String> {
        let text = CString::new(text).map_err(|e| e.to_string())?;
        let mut made: *mut c_char = std::ptr::null_mut();
        // SAFETY: the text is terminated, and the place for the result is ours.
        let status = unsafe { make(text.as_ptr(), &mut made) };
        self.library.check("PMIx_generate_regex", status)?;
        // SAFETY: the value is ours and empty; the library made what is copied into it, and knows how long it is; it is ours to free.
        let status = unsafe {
            let status = (self.library.value_load)(value, made.cast(), ffi::REGEX);
            libc::free(made.cast());
            status
        };
        self.library.check("PMIx_Value_load", status)
    }

    /// What a rank of this node has to find in its environment.
    pub fn environment(&self, rank: u32) -> Result<Vec<(OsString, OsString)>, String> {
        let client = proc(&self.space, rank);
        let mut list: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: an empty list, which the library makes longer with malloc.
        let status = unsafe { (self.library.setup_fork)(&client, &mut list) };
        let mut found = Vec::new();
        if !list.is_null() {
            // SAFETY: the list ends with a null; its texts are terminated, and with itself ours to free.
            unsafe {
                let mut at = list;
                while !(*at).is_null() {
                    let text = CStr::from_ptr(*at).to_bytes();
                    if let Some(end) = text.iter().position(|b| *b == b'=') {
                        let (name, value) = (OsStr::from_bytes(&text[..end]), OsStr::from_bytes(&text[end + 1..]));
                        found.push((name.to_owned(), value.to_owned()));
                    }
                    libc::free((*at).cast());
                    at = at.add(1);
                }
                libc::free(list.cast());
            }
        }
        self.library.check("PMIx_server_setup_fork", status).map(|()| found)
    }

    /// Asks what a rank of this node has said to others. It is answered when the rank has said it, perhaps on another thread.
    pub fn ask(&self, rank: u32, asked: Asked) {
        let client = proc(&self.space, rank);
        let data = Box::into_raw(Box::new(asked));
        // SAFETY: the library copies the rank, and hands the box to `answered` once, unless it refuses.
        let status = unsafe { (self.library.dmodex)(&client, called::answered, data.cast()) };
        if status != ffi::SUCCESS {
            // SAFETY: it refused, so the box is still ours.
            unsafe { Box::from_raw(data)(None) };
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *RUNS.write().unwrap_or_else(PoisonError::into_inner) = false;
        // SAFETY: it was started, and nobody answers any more.
        unsafe { (self.library.finalize)() };
    }
}

/// All but the maps.
fn describe(job: &Job) -> Infos {
    let size = job.hosts.iter().map(|h| h.ranks).sum();
    let here = &job.hosts[job.here];
    let peers: Vec<String> = (here.first..here.first + here.ranks).map(|r| r.to_string()).collect();
    let directory = job.directory.to_string_lossy();
    let mut all = Infos::default();
    for key in ["pmix.univ.size", "pmix.job.size", "pmix.max.size", "pmix.app.size"] {
        all.number(key, size);
    }
    all.number("pmix.job.napps", job.programs.iter().max().map_or(1, |last| last + 1));
    all.number("pmix.num.nodes", job.hosts.len() as u32);
    all.number("pmix.local.size", here.ranks);
    all.number("pmix.node.size", here.ranks);
    all.number("pmix.nodeid", job.here as u32);
    all.rank("pmix.lldr", here.first);
    all.rank("pmix.aldr", 0);
    all.text("pmix.lpeers", &peers.join(","));
    all.text("pmix.jobid", &job.number.to_string());
    all.text("pmix.hname", here.name);
    all.text("pmix.tmpdir", &directory);
    all.text("pmix.nsdir", &directory);
    // What is in there is taken away when the job ends.
    all.flag("pmix.tdir.rmclean", true);
    // Ranks of each program so far.
    let mut places = BTreeMap::new();
    for (node, host) in job.hosts.iter().enumerate() {
        for local in 0..host.ranks {
            let rank = host.first + local;
            let mut one = Infos::default();
            one.rank("pmix.rank", rank);
            one.rank("pmix.grank", rank);
            let program = job.programs.get(rank as usize).copied().unwrap_or(0);
            let place = places.entry(program).or_insert(0);
            one.rank("pmix.apprank", *place);
            *place += 1;
            one.number("pmix.appnum", program);
            one.small("pmix.lrank", local as u16);
            one.small("pmix.nrank", local as u16);
            one.number("pmix.nodeid", node as u32);
            one.text("pmix.hname", host.name);
            if node == job.here {
                one.text("pmix.pdir", &format!("{directory}/{rank}"));
            }
            all.list("pmix.pdata", one);
        }
    }
    all
}
