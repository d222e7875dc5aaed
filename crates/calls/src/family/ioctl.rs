//! `ioctl`: the common requests of terminals, files, block devices and network interfaces one by one, others by what their
//! numbers say.

use super::NOTHING;
use crate::item::Item::{In, InOut, Out};
use crate::item::Len::N;
use crate::walk::{Spec, Walk, u64_at};

const HOME: Spec = Spec::Home("it called ioctl with a request that can't be forwarded");

macro_rules! reads {
    ($n:literal) => {
        Spec::Items(&[In(2, N($n))])
    };
}
macro_rules! writes {
    ($n:literal) => {
        Spec::Items(&[Out(2, N($n))])
    };
}
macro_rules! both {
    ($n:literal) => {
        Spec::Items(&[InOut(2, N($n))])
    };
}

pub(super) fn spec(request: u32) -> Spec {
    terminal(request)
        .or_else(|| file(request))
        .or_else(|| block(request))
        .or_else(|| network(request))
        .unwrap_or_else(|| numbered(request))
}

/// Terminals, and what all descriptors have.
fn terminal(request: u32) -> Option<Spec> {
    Some(match request {
        0x5401 => writes!(36),                                 // TCGETS
        0x5402..=0x5404 => reads!(36),                         // TCSETS, TCSETSW, TCSETSF
        0x5405 => writes!(18),                                 // TCGETA
        0x5406..=0x5408 => reads!(18),                         // TCSETA, TCSETAW, TCSETAF
        0x5409..=0x540b => NOTHING,                            // TCSBRK, TCXONC, TCFLSH
        0x540c..=0x540e => NOTHING,                            // TIOCEXCL, TIOCNXCL, TIOCSCTTY
        0x540f | 0x5411 => writes!(4),                         // TIOCGPGRP, TIOCOUTQ
        0x5410 => reads!(4),                                   // TIOCSPGRP
        0x5412 => reads!(1),                                   // TIOCSTI
        0x5413 => writes!(8),                                  // TIOCGWINSZ
        0x5414 => reads!(8),                                   // TIOCSWINSZ
        0x5415 | 0x5419 | 0x541b => writes!(4),                // TIOCMGET, TIOCGSOFTCAR, FIONREAD
        0x5416..=0x5418 | 0x541a => reads!(4),                 // TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCSSOFTCAR
        0x541d | 0x5422 => NOTHING,                            // TIOCCONS, TIOCNOTTY
        0x541e => writes!(72),                                 // TIOCGSERIAL
        0x541f => reads!(72),                                  // TIOCSSERIAL
        0x5420 | 0x5421 | 0x5423 => reads!(4),                 // TIOCPKT, FIONBIO, TIOCSETD
        0x5424 | 0x5429 => writes!(4),                         // TIOCGETD, TIOCGSID
        0x5425 | 0x5427 | 0x5428 => NOTHING,                   // TCSBRKP, TIOCSBRK, TIOCCBRK
        0x542e => writes!(32),                                 // TIOCGRS485
        0x542f => both!(32),                                   // TIOCSRS485
        0x802c_542a => writes!(44),                            // TCGETS2
        0x402c_542b..=0x402c_542d => reads!(44),               // TCSETS2, TCSETSW2, TCSETSF2
        0x8004_5430 | 0x8004_5432 => writes!(4),               // TIOCGPTN, TIOCGDEV
        0x8004_5438 | 0x8004_5439 | 0x8004_5440 => writes!(4), // TIOCGPKT, TIOCGPTLCK, TIOCGEXCL
        0x4004_5431 => reads!(4),                              // TIOCSPTLCK
        0x4004_5436 | 0x5437 | 0x5441 => NOTHING,              // TIOCSIG, TIOCVHANGUP, TIOCGPTPEER
        0x5450 | 0x5451 | 0x545c => NOTHING,                   // FIONCLEX, FIOCLEX, TIOCMIWAIT
        0x5452 => reads!(4),                                   // FIOASYNC
        0x5459 => writes!(4),                                  // TIOCSERGETLSR
        0x545d => writes!(80),                                 // TIOCGICOUNT
        0x5460 => writes!(8),                                  // FIOQSIZE
        // TUNSETIFF and TUNGETIFF, whose numbers lie about the size.
        0x4004_54ca | 0x8004_54d2 => both!(40),
        0x4000_0000..=0xffff_ffff if request & 0xff80 == 0x5480 => return tunnel(request),
        _ => return None,
    })
}

/// Tunnels take plain arguments for pointers, and programs.
fn tunnel(request: u32) -> Option<Spec> {
    Some(match request {
        // TUNSETNOCSUM, TUNSETDEBUG, TUNSETPERSIST, TUNSETOWNER, TUNSETLINK, TUNSETGROUP, TUNSETOFFLOAD
        0x4004_54c8 | 0x4004_54c9 | 0x4004_54cb | 0x4004_54cc | 0x4004_54cd | 0x4004_54ce | 0x4004_54d0 => NOTHING,
        // TUNATTACHFILTER, TUNDETACHFILTER, TUNGETFILTER
        0x4010_54d5 | 0x4010_54d6 | 0x8010_54db => HOME,
        _ => return None,
    })
}

/// Files and file systems.
fn file(request: u32) -> Option<Spec> {
    Some(match request {
        1 => both!(4),                          // FIBMAP
        2 => writes!(4),                        // FIGETBSZ
        0x4004_9409 => NOTHING,                 // FICLONE
        0x4020_940d => reads!(32),              // FICLONERANGE
        0x8008_6601 | 0x8008_7601 => both!(8),  // FS_IOC_GETFLAGS, FS_IOC_GETVERSION
        0x4008_6602 | 0x4008_7602 => reads!(8), // FS_IOC_SETFLAGS, FS_IOC_SETVERSION
        0x801c_581f => both!(28),               // FS_IOC_FSGETXATTR
        0x401c_5820 => reads!(28),              // FS_IOC_FSSETXATTR
        0xc004_5877 | 0xc004_5878 => both!(4),  // FIFREEZE, FITHAW
        0xc018_5879 => both!(24),               // FITRIM
        // Of a variable size, or with pointers: FIEMAP, verity, keys, policies.
        0xc020_660b | 0x4080_6685 | 0xc004_6686 | 0xc028_6687 | 0xc050_6617 | 0xc009_6616 | 0xc080_661a => HOME,
        0xb701..=0xb703 => NOTHING, // NS_GET_USERNS, NS_GET_PARENT, NS_GET_NSTYPE
        0xb704 => writes!(4),       // NS_GET_OWNER_UID
        0xff01..=0xff0a => NOTHING, // PIDFD_GET_*_NAMESPACE
        _ => return None,
    })
}

/// Block devices.
fn block(request: u32) -> Option<Spec> {
    Some(match request {
        0x125d => reads!(4),                          // BLKROSET
        0x125e | 0x1268 => both!(4),                  // BLKROGET, BLKSSZGET
        0x125f | 0x1261 | 0x1262 | 0x1264 => NOTHING, // BLKRRPART, BLKFLSBUF, BLKRASET, BLKFRASET
        0x1260 | 0x1263 | 0x1265 => writes!(8),       // BLKGETSIZE, BLKRAGET, BLKFRAGET
        0x1267 | 0x127e => both!(4),                  // BLKSECTGET, BLKROTATIONAL: two bytes
        0x1277 | 0x127d | 0x127f => reads!(16),       // BLKDISCARD, BLKSECDISCARD, BLKZEROOUT
        0x1278..=0x127c => both!(4),                  // sizes and alignment
        0x8008_1270 | 0x8008_1272 => both!(8),        // BLKBSZGET, BLKGETSIZE64
        0x4008_1271 => reads!(8),                     // BLKBSZSET
        _ => return None,
    })
}

/// Sockets and network interfaces (`struct ifreq`, 40 bytes; `struct arpreq`, 68).
fn network(request: u32) -> Option<Spec> {
    Some(match request {
        0x8901 | 0x8902 => reads!(4),             // FIOSETOWN, SIOCSPGRP
        0x8903..=0x8905 | 0x894b => writes!(4),   // FIOGETOWN, SIOCGPGRP, SIOCATMARK, SIOCOUTQNSD
        0x8906 | 0x8907 => writes!(16),           // SIOCGSTAMP, SIOCGSTAMPNS
        0x8010_8906 | 0x8010_8907 => writes!(16), // the same, new
        0x894c | 0x89e0 => NOTHING,               // SIOCGSKNS, SIOCUNIXFILE
        // SIOCGIFCONF, bridges, SIOCETHTOOL, SIOCWANDEV, SIOCGIFBR
        0x8912 | 0x8940 | 0x8941 | 0x8946 | 0x894a => HOME,
        0x8910 | 0x8911 | 0x8913..=0x8927 | 0x8929..=0x8938 | 0x8942 | 0x8943 => both!(40),
        0x8947..=0x8949 | 0x8970 | 0x8971 => both!(40), // registers of the link, SIOCGIFMAP, SIOCSIFMAP
        0x8953..=0x8955 => both!(68),                   // ARP
        _ => return None,
    })
}

/// Families of requests whose structures are known to hold pointers or to go on after their end.
fn is_nested(family: u8) -> bool {
    matches!(
        family,
        b'V' | b'd'
            | b'$'
            | b'A'
            | b'U'
            | b'N'
            | b'M'
            | b';'
            | b'"'
            | b'S'
            | b'X'
            | b'H'
            | b'R'
            | b'K'
            | b'b'
            | b't'
            | b'O'
            | 0x1b
            | 0x93
            | 0x94
            | 0x99
            | 0xaa
            | 0xab
            | 0xae
            | 0xaf
            | 0xb3
            | 0xe5
            | 0xf6
            | 0xfd
    )
}

/// By the direction, the size and the family in the number.
fn numbered(request: u32) -> Spec {
    let (direction, size, family) = (request >> 30, (request >> 16) & 0x3fff, (request >> 8) as u8);
    if direction == 0 || size == 0 || is_nested(family) {
        return HOME;
    }
    Spec::Walk(by_number)
}

/// All of the structure goes both ways, whatever the direction: some drivers are not honest about it. One that goes in and
/// seems to hold a pointer brings the process home.
fn by_number(w: &mut Walk<'_>) {
    let request = w.uint(1);
    let (addr, size) = (w.arg(2), u64::from((request >> 16) as u32 & 0x3fff));
    if w.planning() && (request >> 30) & 1 != 0 {
        let words = w.peek(addr, size);
        for word in words.iter().flat_map(|b| b.chunks_exact(8)) {
            if seems_pointer(w, u64_at(word, 0)) {
                return w.come_home("it called ioctl with a structure that seems to hold a pointer");
            }
        }
    }
    w.inout(addr, size);
}

/// What is mapped above 4 GiB, as nearly everything is, or can be read here.
fn seems_pointer(w: &mut Walk<'_>, word: u64) -> bool {
    (1 << 32..1 << 47).contains(&word) || ((0x1_0000..1 << 32).contains(&word) && w.is_readable(word))
}
