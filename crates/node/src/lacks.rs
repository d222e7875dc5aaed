//! What this machine does not let the node do, in sentences with the next step: said at the start, and by `pando nodes`. Each move
//! finds out for itself; this is for whoever sets a node up.

use crate::sys;
use pando_kernel::pagemap::Pagemap;
use pando_kernel::uffd::{self, Uffd};
use std::fs;

/// All of it; empty on a machine as it should be.
pub fn lacks() -> Vec<String> {
    let root = sys::effective_uid() == 0;
    let setting = |path: &str| fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().parse().ok();
    let mut all = by_settings(root, setting);
    if let Err(e) = Pagemap::open(std::process::id() as i32).and_then(|map| map.present(0, pando_kernel::PAGE)) {
        all.push(format!("no program can leave: PAGEMAP_SCAN: {e} (it takes Linux 6.7 or newer)"));
    }
    match uffd::create().and_then(|(fd, full)| Uffd::new(fd).map(|_| full)) {
        Ok(true) => {}
        Ok(false) => all.push(
            "programs come here with all their memory, and stand still for longer: /dev/userfaultfd is closed to this user \
             (chmod or setfacl it, or sysctl vm.unprivileged_userfaultfd=1)"
                .into(),
        ),
        Err(e) => all.push(format!("no program can come here: userfaultfd: {e} (CONFIG_USERFAULTFD, Linux 6.7 or newer)")),
    }
    if fs::read(format!("/proc/self/task/{}/children", std::process::id())).is_err() {
        all.push(
            "children will not follow their parents: this kernel does not list them (CONFIG_PROC_CHILDREN)".into(),
        );
    }
    all
}

/// What the administrator's settings forbid.
fn by_settings(root: bool, setting: impl Fn(&str) -> Option<u64>) -> Vec<String> {
    let mut all = Vec::new();
    match setting("kernel/yama/ptrace_scope") {
        Some(3..) => {
            all.push("no program can leave: tracing is switched off until the next start (kernel.yama.ptrace_scope)")
        }
        Some(2) if !root => all.push(
            "no program can leave: only root may trace (sysctl kernel.yama.ptrace_scope=1, or run the node as root)",
        ),
        Some(1) if !root => all.push(
            "only what `pando run` starts can leave: sysctl kernel.yama.ptrace_scope=0 allows all of your programs",
        ),
        _ => {}
    }
    let forbidden = |path, value| setting(path) == Some(value);
    if forbidden("user/max_user_namespaces", 0) && !root {
        all.push("no program can come here: sysctl user.max_user_namespaces is 0");
    }
    if forbidden("kernel/unprivileged_userns_clone", 0) && !root {
        all.push("no program can come here: sysctl kernel.unprivileged_userns_clone is 0");
    }
    if forbidden("kernel/apparmor_restrict_unprivileged_userns", 1) && !root {
        all.push("no program can come here: sysctl kernel.apparmor_restrict_unprivileged_userns is 1");
    }
    all.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::by_settings;

    #[test]
    fn settings_that_forbid_are_named() {
        let with = |root, path: &'static str, value| by_settings(root, move |p| (p == path).then_some(value));
        assert!(by_settings(false, |_| None).is_empty());
        assert!(with(true, "kernel/yama/ptrace_scope", 2).is_empty(), "root may");
        assert!(with(true, "kernel/yama/ptrace_scope", 3)[0].contains("no program can leave"));
        assert!(with(false, "kernel/yama/ptrace_scope", 1)[0].contains("only what `pando run` starts"));
        assert!(with(false, "kernel/yama/ptrace_scope", 0).is_empty());
        assert!(with(true, "user/max_user_namespaces", 0).is_empty());
        for (path, value) in [
            ("user/max_user_namespaces", 0),
            ("kernel/unprivileged_userns_clone", 0),
            ("kernel/apparmor_restrict_unprivileged_userns", 1),
        ] {
            assert!(with(false, path, value)[0].contains(path.rsplit('/').next().unwrap()), "{path}");
        }
    }
}
