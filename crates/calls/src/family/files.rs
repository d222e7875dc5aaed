//! Files, directories, pipes and attributes.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{self, Gather, In, InOut, Out, OutRet, Path, Scatter, Text};
use crate::item::Len::{A, I, Min, N, U};
use crate::walk::Spec;

const STAT: Item = Out(1, N(144));
const STATFS: Item = Out(1, N(120));
/// The kernel reads and writes the size that it is told, if that is known to it.
const MAX_EXTENSIBLE: u32 = 4096;
const ATTRIBUTE: u32 = 256;

pub(super) fn spec(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_close
        | n::SYS_lseek
        | n::SYS_dup
        | n::SYS_dup2
        | n::SYS_dup3
        | n::SYS_flock
        | n::SYS_fsync
        | n::SYS_fdatasync
        | n::SYS_ftruncate
        | n::SYS_fchdir
        | n::SYS_fchmod
        | n::SYS_fchown
        | n::SYS_umask
        | n::SYS_vhangup
        | n::SYS_sync
        | n::SYS_syncfs
        | n::SYS_readahead
        | n::SYS_fadvise64
        | n::SYS_sync_file_range
        | n::SYS_fallocate
        | n::SYS_close_range
        | n::SYS_inotify_init
        | n::SYS_inotify_init1
        | n::SYS_inotify_rm_watch => NOTHING,
        _ => {
            return contents(nr).or_else(|| names(nr)).or_else(|| attributes(nr));
        }
    })
}

/// What is in them.
fn contents(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_read | n::SYS_pread64 => Spec::Items(&[OutRet(1, A(2))]),
        n::SYS_write | n::SYS_pwrite64 => Spec::Items(&[In(1, A(2))]),
        n::SYS_readv | n::SYS_preadv | n::SYS_preadv2 => Spec::Items(&[Scatter(1, 2)]),
        n::SYS_writev | n::SYS_pwritev | n::SYS_pwritev2 => Spec::Items(&[Gather(1, 2)]),
        n::SYS_pipe => Spec::Items(&[Out(0, N(8))]),
        n::SYS_pipe2 => Spec::Items(&[Out(0, N(8))]),
        n::SYS_sendfile => Spec::Items(&[InOut(2, N(8))]),
        n::SYS_splice | n::SYS_copy_file_range => Spec::Items(&[InOut(1, N(8)), InOut(3, N(8))]),
        n::SYS_tee => NOTHING,
        n::SYS_getdents | n::SYS_getdents64 => Spec::Items(&[OutRet(1, U(2))]),
        n::SYS_memfd_create => Spec::Items(&[Text(0, 256)]),
        451 => Spec::Items(&[In(1, N(16)), Out(2, N(40))]), // cachestat
        _ => return None,
    })
}

/// Calls that take names.
fn names(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_open
        | n::SYS_creat
        | n::SYS_access
        | n::SYS_truncate
        | n::SYS_chdir
        | n::SYS_chroot
        | n::SYS_mkdir
        | n::SYS_rmdir
        | n::SYS_unlink
        | n::SYS_chmod
        | n::SYS_chown
        | n::SYS_lchown
        | n::SYS_mknod => Spec::Items(&[Path(0)]),
        n::SYS_openat
        | n::SYS_mkdirat
        | n::SYS_mknodat
        | n::SYS_fchownat
        | n::SYS_unlinkat
        | n::SYS_fchmodat
        | n::SYS_fchmodat2
        | n::SYS_faccessat
        | n::SYS_faccessat2
        | n::SYS_inotify_add_watch => Spec::Items(&[Path(1)]),
        n::SYS_rename | n::SYS_link | n::SYS_symlink => Spec::Items(&[Path(0), Path(1)]),
        n::SYS_renameat | n::SYS_renameat2 | n::SYS_linkat => Spec::Items(&[Path(1), Path(3)]),
        n::SYS_symlinkat => Spec::Items(&[Path(0), Path(2)]),
        n::SYS_openat2 => Spec::Items(&[Path(1), In(2, Min(3, MAX_EXTENSIBLE))]),
        n::SYS_readlink => Spec::Items(&[Path(0), OutRet(1, I(2))]),
        n::SYS_readlinkat => Spec::Items(&[Path(1), OutRet(2, I(3))]),
        n::SYS_getcwd => Spec::Items(&[OutRet(0, A(1))]),
        _ => return None,
    })
}

/// What is known about them.
fn attributes(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_stat | n::SYS_lstat => Spec::Items(&[Path(0), STAT]),
        n::SYS_fstat => Spec::Items(&[STAT]),
        n::SYS_newfstatat => Spec::Items(&[Path(1), Out(2, N(144))]),
        n::SYS_statx => Spec::Items(&[Path(1), Out(4, N(256))]),
        n::SYS_statfs => Spec::Items(&[Path(0), STATFS]),
        n::SYS_fstatfs => Spec::Items(&[STATFS]),
        n::SYS_ustat => Spec::Items(&[InOut(1, N(32))]),
        n::SYS_utime => Spec::Items(&[Path(0), In(1, N(16))]),
        n::SYS_utimes => Spec::Items(&[Path(0), In(1, N(32))]),
        n::SYS_futimesat | n::SYS_utimensat => Spec::Items(&[Path(1), In(2, N(32))]),
        n::SYS_setxattr | n::SYS_lsetxattr => Spec::Items(&[Path(0), Text(1, ATTRIBUTE), In(2, A(3))]),
        n::SYS_fsetxattr => Spec::Items(&[Text(1, ATTRIBUTE), In(2, A(3))]),
        n::SYS_getxattr | n::SYS_lgetxattr => Spec::Items(&[Path(0), Text(1, ATTRIBUTE), OutRet(2, A(3))]),
        n::SYS_fgetxattr => Spec::Items(&[Text(1, ATTRIBUTE), OutRet(2, A(3))]),
        n::SYS_listxattr | n::SYS_llistxattr => Spec::Items(&[Path(0), OutRet(1, A(2))]),
        n::SYS_flistxattr => Spec::Items(&[OutRet(1, A(2))]),
        n::SYS_removexattr | n::SYS_lremovexattr => Spec::Items(&[Path(0), Text(1, ATTRIBUTE)]),
        n::SYS_fremovexattr => Spec::Items(&[Text(1, ATTRIBUTE)]),
        465 => Spec::Items(&[Path(1), OutRet(3, A(4))]), // listxattrat
        466 => Spec::Items(&[Path(1), Text(3, ATTRIBUTE)]), // removexattrat
        468 => Spec::Items(&[Path(1), InOut(2, Min(3, MAX_EXTENSIBLE))]), // file_getattr
        469 => Spec::Items(&[Path(1), In(2, Min(3, MAX_EXTENSIBLE))]), // file_setattr
        _ => return None,
    })
}
