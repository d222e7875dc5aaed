//! What the matrix does, one rule at a time.

use crate::*;

fn matrix(rows: u16, nodes: &[(&str, u16)]) -> Matrix {
    with(Rules { rows, alternative: false, ..Rules::default() }, nodes)
}

fn with(rules: Rules, nodes: &[(&str, u16)]) -> Matrix {
    let mut matrix = Matrix::new(rules);
    for (name, cpus) in nodes {
        assert_eq!(matrix.handle(Input::Node { name: (*name).into(), cpus: *cpus }), []);
    }
    matrix
}

fn fixed(job: u64, wants: &[(&str, u16)]) -> Gang {
    let shape = Shape::Fixed(wants.iter().map(|(node, cpus)| ((*node).to_owned(), *cpus)).collect());
    Gang { job, shape, urgent: false, level: 0, turn_us: 0 }
}

fn free(job: u64, ranks: u32) -> Gang {
    let shape = Shape::Free { ranks, cpus: 1, nodes: None, among: Vec::new(), per_node: None };
    Gang { job, shape, urgent: false, level: 0, turn_us: 0 }
}

/// Its row and CPUs.
fn placed(matrix: &mut Matrix, gang: Gang) -> (u16, Vec<(String, Vec<u16>)>) {
    let effects = matrix.handle(Input::Arrive(gang));
    let Some(Effect::Placed { row, places, .. }) = effects.first() else { panic!("{effects:?}") };
    assert!(matches!(effects.get(1), Some(Effect::Table(_))));
    (*row, places.iter().map(|p| (p.node.clone(), p.cpus.clone())).collect())
}

fn refused(matrix: &mut Matrix, gang: Gang) -> (bool, String) {
    match matrix.handle(Input::Arrive(gang)).as_slice() {
        [Effect::Refused { ever, why, .. }] => (*ever, why.clone()),
        other => panic!("{other:?}"),
    }
}

fn at(node: &str, cpus: &[u16]) -> (String, Vec<u16>) {
    (node.into(), cpus.to_vec())
}

fn rows(matrix: &Matrix) -> Vec<(u64, Vec<u16>)> {
    matrix.table().jobs.iter().map(|(job, rows)| (*job, rows.clone())).collect()
}

#[test]
fn a_row_is_filled_before_the_next_is_begun() {
    let mut m = matrix(2, &[("a", 2), ("b", 4)]);
    assert_eq!(placed(&mut m, free(1, 3)), (0, vec![at("b", &[0, 1, 2])]), "one node is enough");
    assert_eq!(placed(&mut m, free(2, 1)), (0, vec![at("b", &[3])]), "nothing is left of b");
    assert_eq!(placed(&mut m, free(3, 2)), (0, vec![at("a", &[0, 1])]));
    assert_eq!(m.table().rows, 1);
    assert_eq!(placed(&mut m, free(4, 6)), (1, vec![at("a", &[0, 1]), at("b", &[0, 1, 2, 3])]));
    let (ever, why) = refused(&mut m, free(5, 1));
    assert_eq!((ever, m.utilisation()), (false, 1.0));
    assert_eq!(
        why,
        "there is no room now for 1 rank of 1 CPU: in each of the 2 rows other jobs are in the way, and one of them has to end"
    );
    m.handle(Input::Ended(2));
    assert_eq!(placed(&mut m, free(5, 1)), (0, vec![at("b", &[3])]));
}

#[test]
fn what_never_fits_is_told_so() {
    let mut m = matrix(2, &[("a", 2), ("b", 4)]);
    let why = |m: &mut Matrix, gang: Gang| match refused(m, gang) {
        (true, why) => why,
        (false, why) => panic!("only now: {why}"),
    };
    assert_eq!(why(&mut m, fixed(1, &[("a", 3)])), "it asks for 3 CPUs of a, which has 2");
    assert_eq!(why(&mut m, fixed(1, &[("a", 1), ("a", 2)])), "it asks for 3 CPUs of a, which has 2");
    assert_eq!(why(&mut m, fixed(1, &[("c", 1)])), "c, which it asks for, is not here");
    assert_eq!(why(&mut m, fixed(1, &[("a", 0)])), "it asks for no CPU of a");
    assert_eq!(why(&mut m, fixed(1, &[])), "it asks for no CPU");
    assert_eq!(
        why(&mut m, free(1, 7)),
        "there is no room for 7 ranks of 1 CPU in 2 nodes with 6 CPUs, 4 at most at one"
    );
    let shape = Shape::Free { ranks: 3, cpus: 2, nodes: Some(1), among: Vec::new(), per_node: Some(2) };
    let gang = Gang { job: 1, shape, urgent: false, level: 0, turn_us: 0 };
    let text = "there is no room for 3 ranks of 2 CPUs, at most 2 at a node, on at most 1 node in 2 nodes with 6 CPUs, 4 at most at one";
    assert_eq!(why(&mut m, gang), text);
    let shape = Shape::Free { ranks: 1, cpus: 1, nodes: None, among: vec!["x".into()], per_node: None };
    let gang = Gang { job: 1, shape, urgent: false, level: 0, turn_us: 0 };
    assert_eq!(why(&mut m, gang), "none of the nodes that it may have is here (x for one)");
    assert_eq!((m.rows(), m.table().version), (0, 0), "nothing of it is left");
}

#[test]
fn where_all_of_a_row_fit_into_others_it_is_gone() {
    let mut m = matrix(3, &[("a", 2), ("b", 1)]);
    placed(&mut m, fixed(1, &[("a", 2)]));
    placed(&mut m, fixed(2, &[("b", 1)]));
    placed(&mut m, fixed(3, &[("a", 2)]));
    placed(&mut m, fixed(4, &[("b", 1)]));
    placed(&mut m, fixed(5, &[("a", 1), ("b", 1)]));
    assert_eq!(rows(&m), [(1, vec![0]), (2, vec![0]), (3, vec![1]), (4, vec![1]), (5, vec![2])]);
    m.handle(Input::Ended(1));
    assert_eq!((m.table().rows, m.unified()), (3, 0), "2 is in the way of the others");
    m.handle(Input::Ended(4));
    assert_eq!(rows(&m), [(2, vec![0]), (3, vec![0]), (5, vec![1])]);
    assert_eq!(m.unified(), 1);
    m.handle(Input::Ended(5));
    assert_eq!(m.table().rows, 1);
}

fn rows_of(matrix: &Matrix, job: u64) -> Vec<u16> {
    matrix.job(job).unwrap().rows.to_vec()
}

#[test]
fn alternative_slots_are_shared_out() {
    let mut m = with(Rules { rows: 4, ..Rules::default() }, &[("a", 4)]);
    // Two that are in each other's way with all, and one of the rows has room for a third.
    placed(&mut m, fixed(1, &[("a", 4)]));
    placed(&mut m, fixed(2, &[("a", 2)]));
    assert_eq!(placed(&mut m, fixed(3, &[("a", 2)])).0, 1);
    assert_eq!(rows(&m), [(1, vec![0]), (2, vec![1]), (3, vec![1])]);
    placed(&mut m, fixed(4, &[("a", 3)]));
    // The third row has a CPU to spare, which is none of those two alone.
    assert_eq!((m.table().rows, rows_of(&m, 2).len() + rows_of(&m, 3).len()), (3, 2));
    m.handle(Input::Suspend(1));
    m.handle(Input::Suspend(4));
    assert_eq!(rows(&m), [(1, vec![]), (2, vec![0]), (3, vec![0]), (4, vec![])], "nothing is switched");
    m.handle(Input::Resume(4));
    m.handle(Input::Suspend(3));
    m.handle(Input::Arrive(fixed(5, &[("a", 1)])));
    m.handle(Input::Resume(1));
    m.handle(Input::Resume(3));
    assert_eq!(m.table().rows, 3);
}

#[test]
fn one_who_is_urgent_is_next_and_tables_take_turns() {
    let mut m = matrix(4, &[("a", 1)]);
    (1..=3).for_each(|job| _ = placed(&mut m, free(job, 1)));
    placed(&mut m, Gang { urgent: true, ..free(4, 1) });
    let table = m.table();
    assert_eq!((table.first, table.rows), (3, 4));
    assert!(table.runs(4, 0) && !table.runs(4, 1) && table.runs(1, 1) && table.runs(4, 4));
    assert!(table.runs(99, 1), "of whom nothing is known always runs");
    assert_eq!(table.row(u64::MAX), 2);
    // Tables that come faster than slots leave nobody out.
    let mut began = [0; 5];
    for _ in 0..12 {
        for input in [Input::Suspend(4), Input::Suspend(3), Input::Resume(3)] {
            m.handle(input);
            (1..=4).for_each(|job| began[job as usize] += u32::from(m.table().runs(job, 0)));
        }
    }
    assert!(began[1..4].iter().all(|times| *times >= 6), "{began:?}");
    m.handle(Input::Resume(4));
    assert!(m.table().runs(4, 0));
}

#[test]
fn lower_levels_stand_still_where_a_higher_one_runs() {
    let mut m = matrix(2, &[("a", 2), ("b", 2)]);
    placed(&mut m, fixed(1, &[("a", 2)]));
    placed(&mut m, fixed(2, &[("b", 2)]));
    let high = |job, wants: &[(&str, u16)]| Gang { level: 5, ..fixed(job, wants) };
    placed(&mut m, high(3, &[("b", 1)]));
    assert_eq!(rows(&m), [(1, vec![0]), (2, vec![]), (3, vec![0])], "only who is in its way, and nothing is shared");
    assert_eq!(m.job(2).unwrap().standing, Standing::Outranked);
    assert_eq!(placed(&mut m, free(4, 1)), (0, vec![at("b", &[1])]).clone(), "2 has it in its row, but stands still");
    m.handle(Input::Suspend(3));
    assert_eq!(m.table().rows, 2);
    m.handle(Input::Resume(3));
    assert_eq!(rows_of(&m, 2), [0u16; 0]);
    m.handle(Input::Ended(3));
    assert_eq!(rows_of(&m, 2).len(), 1);
}

#[test]
fn a_lower_one_goes_where_no_higher_one_is() {
    let mut m = matrix(2, &[("a", 2), ("b", 2)]);
    placed(&mut m, Gang { level: 1, ..free(1, 2) });
    assert_eq!(placed(&mut m, free(2, 2)), (0, vec![at("b", &[0, 1])]));
    // And a higher one where nobody has to stand still for it, and otherwise rather there than in a row of its own.
    m.handle(Input::Ended(1));
    assert_eq!(placed(&mut m, Gang { level: 1, ..free(3, 2) }), (0, vec![at("a", &[0, 1])]));
    assert_eq!(placed(&mut m, Gang { level: 1, ..free(4, 2) }), (0, vec![at("b", &[0, 1])]));
    assert_eq!(m.job(2).unwrap().standing, Standing::Outranked);
}

#[test]
fn what_has_lost_a_node_keeps_the_rest_until_it_has_ended() {
    let mut m = matrix(2, &[("a", 2), ("b", 2)]);
    placed(&mut m, free(1, 4));
    placed(&mut m, fixed(2, &[("a", 1)]));
    let effects = m.handle(Input::NodeGone("b".into()));
    assert_eq!(effects[0], Effect::Lost { job: 1, node: "b".into() });
    assert_eq!((m.job(1).unwrap().standing, rows_of(&m, 1).len()), (Standing::Lost, 1));
    assert_eq!(m.handle(Input::Node { name: "b".into(), cpus: 2 }), [], "it comes back with nothing of it");
    assert_eq!(m.free()["b"], 2);
    let effects = m.handle(Input::Node { name: "a".into(), cpus: 1 });
    let told = effects.iter().any(|effect| matches!(effect, Effect::Lost { .. }));
    assert!(!told, "1 is told once, and 2 has the first CPU: {effects:?}");
    m.handle(Input::Ended(1));
    assert_eq!(rows(&m), [(2, vec![0])]);
}

#[test]
fn buddies_are_above_each_other() {
    let mut m = with(Rules { packing: Packing::Buddy, alternative: true, rows: 4 }, &[("a", 4), ("b", 4)]);
    assert_eq!(placed(&mut m, free(1, 3)).1, [at("a", &[0, 1, 2])]);
    assert_eq!(placed(&mut m, free(2, 2)).1, [at("b", &[0, 1])], "no two of a's blocks are free");
    assert_eq!(placed(&mut m, free(3, 1)).1, [at("a", &[3])]);
    assert_eq!(placed(&mut m, free(4, 4)), (1, vec![at("b", &[0, 1, 2, 3])]), "the less used half");
    assert_eq!((m.table().rows, rows_of(&m, 1)), (2, vec![0, 1]), "so the others run in both rows");
}

#[test]
fn a_gang_goes_where_least_runs_besides() {
    for packing in [Packing::BestFit, Packing::Buddy] {
        let rules = Rules { rows: 2, packing, alternative: false };
        let mut m = with(rules, &[("a", 2), ("b", 2), ("c", 4)]);
        let busy =
            |m: &mut Matrix, name: &str, milli| assert_eq!(m.handle(Input::Busy { name: name.into(), milli }), []);
        busy(&mut m, "a", 2_000);
        busy(&mut m, "c", 900);
        assert_eq!(placed(&mut m, free(1, 2)).1, [at("b", &[0, 1])], "a is as good but for its guests");
        assert_eq!(placed(&mut m, free(2, 2)).1, [at("c", &[0, 1])], "less than one on four CPUs is nearly nothing");
        busy(&mut m, "a", 100);
        busy(&mut m, "c", 4_000);
        assert_eq!(placed(&mut m, free(3, 1)).1, [at("a", &[0])]);
        // Where there is no choice it goes there, and rather there than in a row of its own.
        assert_eq!(placed(&mut m, free(4, 2)), (0, vec![at("c", &[2, 3])]));
        assert_eq!(placed(&mut m, free(5, 1)).1, [at("a", &[1])]);
        // In the next row all are free again, but not all are idle.
        assert_eq!(placed(&mut m, free(6, 4)).1, [at("a", &[0, 1]), at("b", &[0, 1])]);
        m.handle(Input::NodeGone("c".into()));
        m.handle(Input::Node { name: "c".into(), cpus: 4 });
        (1..=6).for_each(|job| _ = m.handle(Input::Ended(job)));
        // What it said before it went is forgotten.
        assert_eq!(placed(&mut m, fixed(7, &[("a", 1), ("b", 1)])).0, 0);
        assert_eq!(placed(&mut m, free(8, 4)).1, [at("c", &[0, 1, 2, 3])]);
    }
}

#[test]
fn rows_that_are_too_many_go_as_their_jobs_end() {
    let mut m = matrix(3, &[("a", 1)]);
    (1..=3).for_each(|job| _ = placed(&mut m, free(job, 1)));
    m.handle(Input::Rules(Rules { rows: 1, ..m.rules() }));
    assert_eq!(m.rows(), 3);
    (1..=2).for_each(|job| _ = m.handle(Input::Ended(job)));
    assert!(!refused(&mut m, free(4, 1)).0);
    m.handle(Input::Ended(3));
    placed(&mut m, free(4, 1));
    // Nobody else is put into one of them.
    let mut m = matrix(3, &[("a", 2)]);
    (1..=3).for_each(|job| _ = placed(&mut m, free(job, if job == 3 { 1 } else { 2 })));
    m.handle(Input::Rules(Rules { rows: 2, ..m.rules() }));
    let why = "it asks for 2 CPUs of a, where in each of the 2 rows other jobs are: it waits until one of them ends";
    assert_eq!(refused(&mut m, fixed(4, &[("a", 2)])), (false, why.to_owned()));
    assert!(!refused(&mut m, free(4, 1)).0);
}

#[test]
fn another_manager_takes_over_what_runs() {
    let mut m = matrix(1, &[("a", 2)]);
    let places = |cpus: &[u16]| vec![Place { node: "a".into(), cpus: cpus.to_vec() }];
    for (job, cpus) in [(1, [0]), (2, [1]), (3, [0])] {
        let effects = m.handle(Input::Adopt(free(job, 1), places(&cpus)));
        assert!(matches!(&effects[0], Effect::Placed { places, .. } if places[0].cpus == cpus), "{effects:?}");
    }
    assert_eq!(rows(&m), [(1, vec![0]), (2, vec![0]), (3, vec![1])], "one row more than there should be");
    let effects = m.handle(Input::Adopt(free(4, 1), places(&[2])));
    assert!(matches!(&effects[..], [Effect::Refused { ever: true, .. }]), "{effects:?}");
    let again = m.handle(Input::Arrive(free(3, 1)));
    assert_eq!(again, [Effect::Placed { job: 3, row: 1, places: places(&[0]) }], "it is told once more");
}

#[test]
fn tables_of_other_machines_are_looked_at() {
    let good = Table {
        version: 1,
        rows: 2,
        jobs: [(1, vec![0, 1]), (2, vec![])].into(),
        first: 1,
        lengths: vec![(500, vec![0])],
    };
    assert_eq!(good.check(), Ok(()));
    assert_eq!(Table::default().check(), Ok(()));
    assert!(!good.runs(2, 0));
    let bad = [
        (Table { lengths: vec![(0, vec![])], ..good.clone() }, "turns of a table of gangs take no time"),
        (
            Table { lengths: vec![(1, vec![2])], ..good.clone() },
            "a table of gangs has no job at place 2, which has a length",
        ),
        (
            Table { lengths: vec![(1, vec![1]), (2, vec![1])], ..good.clone() },
            "job at place 1 of a table of gangs has two lengths of turns",
        ),
        (
            Table { lengths: vec![(1, vec![]); 33], ..good.clone() },
            "a table of gangs has 33 lengths of turns, 32 at most are allowed",
        ),
        (Table { rows: 65, ..good.clone() }, "a table of gangs has 65 rows, 64 at most are allowed"),
        (Table { first: 2, ..good.clone() }, "a table of gangs begins with row 2 of 2"),
        (
            Table { lengths: vec![], jobs: [(7, vec![2])].into(), ..good.clone() },
            "job 7 of a table of gangs has row 2 of 2",
        ),
        (
            Table { lengths: vec![], jobs: [(7, vec![1, 1])].into(), ..good.clone() },
            "job 7 of a table of gangs has row 1 twice",
        ),
    ];
    bad.iter().for_each(|(table, why)| assert_eq!(table.check(), Err((*why).to_owned())));
    let many = Table { jobs: (0..=MOST_JOBS as u64).map(|job| (job, vec![])).collect(), ..good };
    assert_eq!(many.check(), Err("a table of gangs has 10001 jobs, 10000 at most are allowed".into()));
}

#[test]
fn gangs_that_share_nodes_have_turns_of_one_length_and_others_their_own() {
    let mut m = Matrix::new(Rules { alternative: false, ..Rules::default() });
    for name in ["a", "b", "c", "d"] {
        m.handle(Input::Node { name: name.into(), cpus: 1 });
    }
    m.handle(Input::Usual(10_000));
    let wants = |job, nodes: &[&str], turn_us| {
        let wants: Vec<(&str, u16)> = nodes.iter().map(|node| (*node, 1)).collect();
        Gang { turn_us, ..fixed(job, &wants) }
    };
    placed(&mut m, wants(1, &["a"], 5_000));
    assert_eq!(m.table().lengths, [], "nobody takes turns");
    placed(&mut m, wants(2, &["a", "b"], 0));
    placed(&mut m, wants(3, &["c"], 0));
    placed(&mut m, wants(4, &["d"], 80_000));
    let of = |m: &Matrix| (1..=6).map(|job| m.table().turn_us(job, 10_000)).collect::<Vec<_>>();
    assert_eq!(of(&m), [5_000, 5_000, 10_000, 80_000, 10_000, 10_000]);
    assert_eq!(m.table().shortest_us(10_000), 5_000);
    // What makes one crowd of two.
    placed(&mut m, wants(5, &["b", "c"], 20_000));
    assert_eq!(of(&m), [5_000, 5_000, 5_000, 80_000, 5_000, 10_000]);
    m.handle(Input::Ended(1));
    assert_eq!(of(&m), [10_000, 10_000, 10_000, 80_000, 10_000, 10_000], "who has ended wants nothing");
    m.handle(Input::Usual(50_000));
    let now: Vec<u64> = (2..=5).map(|job| m.table().turn_us(job, 50_000)).collect();
    assert_eq!(now, [20_000, 20_000, 80_000, 20_000]);
    m.handle(Input::Suspend(5));
    assert_eq!(m.table().lengths, [], "nobody shares anything any more");
}
