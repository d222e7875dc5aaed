use super::*;
use std::os::unix::fs::symlink;

fn place(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pando-scratch-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn one_is_made_counted_and_goes() {
    let dir = place("one");
    let place = Place::open(&dir, "n1", None).unwrap();
    assert!(place.total_mb > 0);
    let again = Place::open(&dir, "n1", Some(7)).unwrap();
    assert_eq!(again.total_mb, 7);
    let wanted = Wanted { held: false, ..place.wanted("n1.17.0", 1) };
    for _ in 0..2 {
        let mut scratch = Scratch::make(&wanted, None).unwrap();
        assert!(scratch.variables().contains(&(VARIABLE_MB, "1".into())));
        fs::create_dir(wanted.dir.join("sub")).unwrap();
        fs::write(wanted.dir.join("sub/data"), vec![7; 3 << 20]).unwrap();
        fs::hard_link(wanted.dir.join("sub/data"), wanted.dir.join("again")).unwrap();
        symlink("/", wanted.dir.join("root")).unwrap();
        let begun = std::time::Instant::now();
        let (found, limit) = loop {
            assert!(begun.elapsed() < Duration::from_secs(10));
            match scratch.look() {
                Some(over) => break over,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert_eq!(limit, 1 << 20);
        assert!((3 << 20..4 << 20).contains(&found), "{found}: each file once, and nothing that is elsewhere");
        scratch.look_again();
        assert!((3..=4).contains(&scratch.peak_mb()));
        // One whose helper was killed is made anew.
        std::mem::forget(scratch);
        assert_eq!(place.others(&[]).first(), Some(&wanted.dir));
        assert!(place.others(std::slice::from_ref(&wanted.dir)).is_empty());
    }
    drop(Scratch::make(&wanted, None).unwrap());
    assert!(place.others(&[]).is_empty());
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_others_can_write_in_is_no_place() {
    let dir = place("others");
    fs::create_dir(dir.join("pando-n1")).unwrap();
    fs::set_permissions(dir.join("pando-n1"), Permissions::from_mode(0o777)).unwrap();
    assert!(Place::open(&dir, "n1", None).is_err());
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn nothing_is_too_deep_and_nothing_elsewhere_is_touched() {
    let dir = place("deep");
    let (kept, gone) = (dir.join("kept"), dir.join("gone"));
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "stays").unwrap();
    fs::create_dir(&gone).unwrap();
    // Deeper than a path may be long, and than there are descriptors.
    let mut at = super::open(&gone).unwrap();
    for number in 0..3000 {
        let here = count::path_of(&at);
        fs::write(here.join("file"), "goes").unwrap();
        symlink(&kept, here.join("link")).unwrap();
        fs::create_dir(here.join(".pando-raised-1")).unwrap();
        let next = here.join(if number % 2 == 0 { "a-name-that-is-not-short" } else { ".pando-raised-2" });
        fs::create_dir_all(&next).unwrap();
        at = super::open(&next).unwrap();
    }
    drop(at);
    fs::set_permissions(gone.join(".pando-raised-1"), Permissions::from_mode(0o0)).unwrap();
    remove::remove(&gone).unwrap();
    assert!(!gone.exists() && kept.join("file").exists());
    remove::remove(&gone).unwrap();
    fs::remove_dir_all(dir).unwrap();
}
