//! `pando run --cpu LEVEL`: a program that keeps to a level of the CPU may move between machines that have no more in common.
//!
//! There is no one switch for that: each library that looks at the CPU has its own. What does not listen faults abroad and comes home
//! (`pando_migrate::cpu`).

use pando_migrate::cpu;
use std::env;
use std::ffi::OsString;

/// Variables for the program, on top of those that it has.
pub fn variables(level: &str) -> Result<Vec<(String, OsString)>, String> {
    cpu::check_level(level)?;
    let beyond = cpu::beyond(level);
    let has = |flag: &str| beyond.iter().any(|f| f == flag);
    let mut out = vec![(cpu::VARIABLE.to_owned(), level.into())];
    let mut add = |name: &str, separator: &str, value: String| {
        let mut whole = env::var_os(name).unwrap_or_default();
        if !whole.is_empty() {
            whole.push(separator);
        }
        whole.push(value);
        out.push((name.to_owned(), whole));
    };
    add("GLIBC_TUNABLES", ":", glibc(&beyond));
    add("GODEBUG", ",", go(&beyond));
    // For these a word that the user has set is the user's; of lists the first that is not known is an error to some.
    if env::var_os("OPENSSL_ia32cap").is_none() {
        out.push(("OPENSSL_ia32cap".into(), openssl(&beyond).into()));
    }
    if env::var_os("OPENBLAS_CORETYPE").is_none() && has("avx2") {
        out.push(("OPENBLAS_CORETYPE".into(), "Nehalem".into()));
    }
    if env::var_os("NPY_DISABLE_CPU_FEATURES").is_none() && has("avx2") {
        out.push(("NPY_DISABLE_CPU_FEATURES".into(), numpy(&beyond).into()));
    }
    Ok(out)
}

/// glibc.cpu.hwcaps (its manual, "Hardware Capability Tunables"); older versions want `_Usable`, both pass over names that they don't know.
/// The xsave instructions are out with AVX: the dynamic linker saves registers with them, in the size of the machine where it started.
fn glibc(beyond: &[String]) -> String {
    let mut names: Vec<String> = beyond.iter().map(|f| f.to_uppercase()).collect();
    if beyond.iter().any(|f| f == "avx") {
        names.extend(["XSAVE", "XSAVEC", "LZCNT", "OSXSAVE", "ERMS", "FSRM"].map(str::to_owned));
    }
    let both = names.iter().flat_map(|n| [format!("-{n}"), format!("-{n}_Usable")]);
    format!("glibc.cpu.hwcaps={}", both.collect::<Vec<_>>().join(","))
}

/// OPENSSL_ia32cap(3): bits of CPUID leaf 1 (edx, ecx) and of leaf 7 (ebx, ecx) that are taken away.
fn openssl(beyond: &[String]) -> String {
    const LEAF_1: [(&str, u32); 13] = [
        ("pclmulqdq", 33),
        ("ssse3", 41),
        ("fma", 44),
        ("cx16", 45),
        ("sse4_1", 51),
        ("sse4_2", 52),
        ("movbe", 54),
        ("popcnt", 55),
        ("aes", 57),
        ("xsave", 58),
        ("avx", 60),
        ("f16c", 61),
        ("rdrand", 62),
    ];
    const LEAF_7: [(&str, u32); 16] = [
        ("bmi1", 3),
        ("avx2", 5),
        ("bmi2", 8),
        ("avx512f", 16),
        ("avx512dq", 17),
        ("rdseed", 18),
        ("adx", 19),
        ("avx512ifma", 21),
        ("avx512cd", 28),
        ("sha_ni", 29),
        ("avx512bw", 30),
        ("avx512vl", 31),
        ("avx512vbmi", 33),
        ("gfni", 40),
        ("vaes", 41),
        ("vpclmulqdq", 42),
    ];
    let mask = |table: &[(&str, u32)]| {
        let taken = table.iter().filter(|(name, _)| beyond.iter().any(|b| b == name));
        taken.fold(0u64, |mask, (_, bit)| mask | 1 << bit)
    };
    format!("~{:#x}:~{:#x}", mask(&LEAF_1), mask(&LEAF_7))
}

/// internal/cpu of Go.
fn go(beyond: &[String]) -> String {
    let known = [
        "adx",
        "aes",
        "avx",
        "avx2",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "bmi1",
        "bmi2",
        "erms",
        "fma",
        "pclmulqdq",
        "popcnt",
        "rdtscp",
        "sha",
        "sse41",
        "sse42",
        "ssse3",
    ];
    let off = known
        .iter()
        .filter(|k| beyond.iter().any(|f| f.replace("sse4_", "sse4") == **k || (**k == "sha" && f == "sha_ni")));
    off.map(|k| format!("cpu.{k}=off")).collect::<Vec<_>>().join(",")
}

/// NumPy's dispatched targets; it warns of those that it was not built for, so only the ones of all its builds.
fn numpy(beyond: &[String]) -> String {
    let known = [("avx512f", "AVX512F"), ("avx512cd", "AVX512CD"), ("avx2", "AVX2"), ("fma", "FMA3")];
    known.iter().filter(|(f, _)| beyond.iter().any(|b| b == f)).map(|(_, n)| *n).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beyond() -> Vec<String> {
        ["aes", "avx", "avx2", "pclmulqdq", "sha_ni"].map(str::to_owned).to_vec()
    }

    #[test]
    fn each_library_is_told_in_its_own_words() {
        // The example of OPENSSL_ia32cap(3) for AES-NI and PCLMULQDQ, and AVX.
        assert_eq!(openssl(&beyond()), "~0x1200000200000000:~0x20000020");
        assert_eq!(go(&beyond()), "cpu.aes=off,cpu.avx=off,cpu.avx2=off,cpu.pclmulqdq=off,cpu.sha=off");
        let glibc = glibc(&beyond());
        assert!(glibc.contains("-AVX2,-AVX2_Usable") && glibc.contains("-XSAVEC,"), "{glibc}");
        assert_eq!(numpy(&beyond()), "AVX2");
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        assert!(variables("x86-64-v9").unwrap_err().contains("x86-64-v4"));
        assert!(variables("x86-64").unwrap().iter().any(|(n, v)| n == "PANDO_CPU" && v == "x86-64"));
    }
}
