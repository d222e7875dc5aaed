//! Fair share: what everybody has had, with what is long ago counting ever less.

use std::collections::BTreeMap;

/// CPU time of one user in one account, as it counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Had {
    pub(crate) cpu_ms: f64,
    pub(crate) at: u64,
}

impl Had {
    /// As it counts later.
    pub(crate) fn later(self, at: u64, half_life: u64) -> f64 {
        self.cpu_ms * decay(at.saturating_sub(self.at), half_life)
    }

    pub(crate) fn add(&mut self, cpu_ms: f64, at: u64, half_life: u64) {
        *self = Had { cpu_ms: self.later(at, half_life) + cpu_ms, at: at.max(self.at) };
    }
}

fn decay(ms: u64, half_life: u64) -> f64 {
    (-(ms as f64) / half_life.max(1) as f64).exp2()
}

/// What so many CPUs for the last so many milliseconds count: the integral of what decays while it is being used, so that a job that has just
/// ended counts what it counted before its end.
pub(crate) fn used(cpus: u64, ms: u64, half_life: u64) -> f64 {
    let half = half_life.max(1) as f64;
    cpus as f64 * half / std::f64::consts::LN_2 * (1.0 - decay(ms, half_life))
}

/// Account and user.
pub(crate) type Whose = (String, String);

/// How much each user may expect, from 0 (has had by far too much) to 1 (has had nothing): 2^(-usage/share), where what others of his account
/// have had counts for him in part, as in Slurm's classic formula.
pub(crate) fn factors(had: &BTreeMap<Whose, f64>, shares: &BTreeMap<String, u32>) -> BTreeMap<Whose, f64> {
    let mut accounts: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for ((account, _), used) in had {
        let (sum, users) = accounts.entry(account).or_default();
        *sum += used;
        *users += 1;
    }
    let share = |account: &str| f64::from(shares.get(account).copied().unwrap_or(1));
    let (all, every): (f64, f64) = (accounts.values().map(|a| a.0).sum(), accounts.keys().map(|a| share(a)).sum());
    let factor = |(whose, used): (&Whose, &f64)| {
        let (sum, users) = accounts[whose.0.as_str()];
        let own = 1.0 / f64::from(users.max(1));
        let promised = share(&whose.0) / every.max(1e-9) * own;
        let effective = (used + (sum - used) * own) / all.max(1e-9);
        let factor = if promised > 0.0 { (-effective / promised).exp2() } else { 0.0 };
        (whose.clone(), factor)
    };
    had.iter().map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_after_a_half_life() {
        let had = Had { cpu_ms: 800.0, at: 100 };
        assert_eq!(had.later(100 + 1000, 1000), 400.0);
        // To charge in two parts is to charge at once.
        let mut parts = Had::default();
        parts.add(used(4, 500, 1000), 500, 1000);
        parts.add(used(4, 700, 1000), 1200, 1000);
        let whole = used(4, 1200, 1000);
        assert!((parts.cpu_ms - whole).abs() < 1e-6, "{} {whole}", parts.cpu_ms);
    }

    #[test]
    fn who_had_less_of_a_larger_share_comes_first() {
        let whose = |account: &str, user: &str| (account.to_owned(), user.to_owned());
        let had = BTreeMap::from([
            (whose("a", "u"), 100.0),
            (whose("b", "v"), 100.0),
            (whose("b", "w"), 0.0),
            (whose("c", "x"), 0.0),
        ]);
        let factors = factors(&had, &BTreeMap::from([("a".into(), 3), ("c".into(), 0)]));
        let of = |account: &str, user: &str| factors[&whose(account, user)];
        assert!(of("a", "u") > of("b", "v") && of("b", "w") > of("b", "v"), "{factors:?}");
        assert!(of("b", "w") < 1.0, "his account has had something");
        assert_eq!(of("c", "x"), 0.0, "no share at all");
    }
}
