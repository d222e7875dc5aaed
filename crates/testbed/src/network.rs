//! The network of a testbed: a bridge in a namespace of its own, a namespace per node, a veth pair between.
//!
//! Nothing of it shows in the machine's own network. All of it lives as long as someone holds the namespaces: the
//! holder and the nodes' processes.

use crate::error::{Context, Error, Result};
use crate::place::{Plan, address};
use crate::relay;
use crate::sys;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// The network, as the holder has it.
pub struct Network {
    nodes: Vec<OwnedFd>,
    /// Namespaces in which each node has its own host name.
    names: Vec<OwnedFd>,
    /// The bridge's port of each node: the end of its wire, or of the wire behind the relay.
    ports: Vec<String>,
    cut: Vec<bool>,
    ambient: bool,
}

/// Says early what is not installed.
pub fn check_installed(rate: bool) -> Result<()> {
    for (wanted, program) in [(true, "ip"), (rate, "tc")] {
        let works = || Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if wanted && !works() {
            return Err(Error::Missing { program, package: "iproute2" });
        }
    }
    Ok(())
}

impl Network {
    /// Builds it. The calling process (single-threaded still) ends up in the bridge's namespace.
    pub fn build(plan: &Plan) -> Result<Network> {
        // First, because nobody but the machine's root could come back to the machine's own.
        sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWUTS).context("make the bridge's network namespace")?;
        let network = || new_namespace(libc::CLONE_NEWNET, "net", || Ok(()));
        let nodes = (0..plan.shape.nodes).map(|_| network()).collect::<Result<Vec<_>>>()?;
        let named = |name: String| new_namespace(libc::CLONE_NEWUTS, "uts", || sys::set_host_name(&name));
        let names = plan.nodes().into_iter().map(named).collect::<Result<Vec<_>>>()?;
        let ports = Vec::new();
        let mut network = Network { cut: vec![false; nodes.len()], nodes, names, ports, ambient: plan.user_namespace };
        network.wires()?;
        network.addresses()?;
        if let Some(ms) = plan.shape.delay_ms {
            network.delays(ms)?;
        } else {
            network.ports = (1..=network.nodes.len()).map(|i| format!("p{i}")).collect();
        }
        if let Some(rate) = plan.shape.rate_mbit {
            network.rates(rate)?;
        }
        let join = network.ports.iter().map(|p| format!("link set {p} master br0 up\n")).collect::<String>();
        network.ip(None, &join)?;
        Ok(network)
    }

    /// The namespace of each node: descriptor and inode.
    pub fn namespaces(&self) -> Result<Vec<(i32, u64)>> {
        let inode = |fd: &OwnedFd| File::from(fd.try_clone()?).metadata().map(|m| m.ino());
        self.nodes.iter().map(|fd| Ok((fd.as_raw_fd(), inode(fd).context("look at a namespace")?))).collect()
    }

    /// The descriptor of each node's host name.
    pub fn names(&self) -> Vec<i32> {
        self.names.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// A node's namespaces: network, and host name.
    pub fn namespace(&self, node: usize) -> (&OwnedFd, &OwnedFd) {
        (&self.nodes[node], &self.names[node])
    }

    /// Which nodes are cut off.
    pub fn cut_off(&self) -> &[bool] {
        &self.cut
    }

    /// Takes a node's port off the bridge, or gives it back. The node's own end stays up, as with a broken switch:
    /// packets vanish both ways, connections stay.
    pub fn set_cut(&mut self, node: usize, cut: bool) -> Result<()> {
        if self.cut[node] != cut {
            let port = &self.ports[node];
            let master = if cut { "nomaster" } else { "master br0" };
            self.ip(None, &format!("link set {port} {master}\n"))?;
            self.cut[node] = cut;
        }
        Ok(())
    }

    fn wires(&self) -> Result<()> {
        let mut batch = String::from("link set lo up\nlink add br0 type bridge\nlink set br0 up\n");
        for (i, fd) in self.nodes.iter().enumerate() {
            let fd = fd.as_raw_fd();
            let port = i + 1;
            batch += &format!("link add p{port} type veth peer name eth0 netns /proc/self/fd/{fd}\n");
            batch += &format!("link set p{port} up\n");
        }
        self.ip(None, &batch)
    }

    /// Everybody knows everybody's hardware address: the kernel learns a thousand of them at most, for all namespaces of the machine together
    /// (gc_thresh3), which is no more than thirty nodes need. Permanent ones do not count.
    fn addresses(&self) -> Result<()> {
        let hardware = |i: usize| format!("02:70:61:6e:{:02x}:{:02x}", i >> 8, i & 0xff);
        for i in 0..self.nodes.len() {
            let (mine, others) = (address(i), (0..self.nodes.len()).filter(|other| *other != i));
            let mut batch = format!("link set lo up\nlink set eth0 address {}\n", hardware(i));
            batch += &format!("address add {mine}/16 dev eth0\nlink set eth0 up\n");
            let known =
                |o: usize| format!("neigh replace {} lladdr {} dev eth0 nud permanent\n", address(o), hardware(o));
            batch.extend(others.map(known));
            self.ip(Some(i), &batch)?;
        }
        Ok(())
    }

    /// A second wire per node, to the bridge, with the relay between the two.
    fn delays(&mut self, ms: f64) -> Result<()> {
        let delay = std::time::Duration::from_secs_f64(ms / 1000.0);
        let wire = |i| format!("link add t{i} type veth peer name q{i}\nlink set t{i} up\nlink set q{i} up\n");
        let count = self.nodes.len();
        self.ip(None, &(1..=count).map(wire).collect::<String>())?;
        for i in 1..=count {
            relay::start(&format!("p{i}"), &format!("q{i}"), delay).context("delay packets by packet sockets")?;
            self.ports.push(format!("t{i}"));
        }
        Ok(())
    }

    /// A token bucket at both ends of each wire. The bucket holds at least one packet as big as the kernel makes them.
    fn rates(&self, mbit: f64) -> Result<()> {
        let bucket = ((mbit * 1e6 / 8.0 * 0.005) as u64).max(80_000);
        let tail = format!("root tbf rate {}kbit burst {bucket} latency 100ms\n", (mbit * 1000.0).max(1.0) as u64);
        for i in 0..self.nodes.len() {
            self.run(Some(i), "tc", &format!("qdisc add dev eth0 {tail}"))?;
            self.run(None, "tc", &format!("qdisc add dev p{} {tail}", i + 1))?;
        }
        Ok(())
    }

    fn ip(&self, node: Option<usize>, batch: &str) -> Result<()> {
        self.run(node, "ip", batch)
    }

    /// Runs a batch of `ip` or `tc` commands in the bridge's namespace or a node's.
    fn run(&self, node: Option<usize>, program: &'static str, batch: &str) -> Result<()> {
        let enter = node.map(|i| self.nodes[i].as_raw_fd());
        let keep: Vec<i32> = self.nodes.iter().map(|fd| fd.as_raw_fd()).collect();
        let ambient = self.ambient;
        let prepare = move || {
            keep.iter().try_for_each(|fd| sys::keep_over_exec(*fd))?;
            if let Some(fd) = enter {
                sys::setns(fd, libc::CLONE_NEWNET)?;
            }
            if ambient { sys::keep_capabilities(&[CAP_NET_ADMIN, CAP_NET_RAW]) } else { Ok(()) }
        };
        let mut command = Command::new(program);
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: `prepare` makes system calls only.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn().context(format!("run {program}"))?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(batch.as_bytes()).context(format!("talk to {program}"))?;
        }
        let output = child.wait_with_output().context(format!("wait for {program}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        Err(Error::Command { what: program.to_string(), said })
    }
}

/// A new namespace that nobody is in. The calling thread visits it, does something there, and comes back.
fn new_namespace(kind: libc::c_int, name: &str, there: impl FnOnce() -> std::io::Result<()>) -> Result<OwnedFd> {
    let here = || File::open(format!("/proc/thread-self/ns/{name}")).context(format!("open the {name} namespace"));
    let back = here()?;
    sys::unshare(kind).context(format!("make a {name} namespace"))?;
    let new = here();
    let done = there();
    sys::setns(back.as_raw_fd(), kind).context(format!("return to the {name} namespace"))?;
    done.context(format!("in a new {name} namespace"))?;
    Ok(new?.into())
}
