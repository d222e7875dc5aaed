//! One thing at a time. What holds whatever happens is in `trial`.

mod moving;

use crate::spec::tests::spec;
use crate::*;

/// A queue with so many nodes of so many CPUs, and helpers that read as a story.
pub(crate) struct Story {
    pub(crate) queue: Queue,
    pub(crate) now: u64,
    pub(crate) records: Vec<Record>,
}

impl Story {
    pub(crate) fn new(mut settings: Settings, nodes: &[u32]) -> Story {
        settings.weights.size = 0;
        let mut story = Story { queue: Queue::new(settings), now: 1_000_000, records: Vec::new() };
        for (i, cpus) in nodes.iter().enumerate() {
            let node = Node { name: format!("n{i}"), cpus: *cpus, memory: 1000, ..Node::default() };
            story.does(Input::NodeSeen(node));
        }
        story
    }

    pub(crate) fn does(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.queue.handle(self.now, input);
        self.records.extend(effects.iter().filter_map(|e| match e {
            Effect::Record(record) => Some(record.clone()),
            _ => None,
        }));
        assert!(Queue::restore(self.queue.settings().clone(), self.records.clone()).knows_the_same(&self.queue));
        assert!(Queue::restore(self.queue.settings().clone(), self.queue.records()).knows_the_same(&self.queue));
        effects
    }

    fn submit(&mut self, spec: Spec) -> u64 {
        let effects = self.does(Input::Submit(Box::new(spec)));
        let number = |e: &Effect| if let Effect::Accepted(id) = e { Some(*id) } else { None };
        effects.iter().find_map(number).unwrap_or_else(|| panic!("{effects:?}"))
    }

    fn refused(&mut self, input: Input) -> String {
        match &self.does(input)[..] {
            [Effect::Refused(why)] => why.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Starts who can; who did.
    fn tick(&mut self) -> String {
        let effects = self.does(Input::Tick);
        let word = |e: &Effect| match e {
            Effect::Start(id, _, shares) => {
                let on: Vec<String> = shares.iter().map(|s| format!("{}x{}", s.node, s.ranks)).collect();
                Some(format!("{id} on {}", on.join("+")))
            }
            Effect::End(id, _, cause) => Some(format!("end {id} {cause:?}")),
            Effect::Suspend(id, _) => Some(format!("suspend {id}")),
            Effect::Resume(id, _) => Some(format!("resume {id}")),
            Effect::Place(id, _, node) => Some(format!("move {id} to {node}")),
            _ => None,
        };
        effects.iter().filter_map(word).collect::<Vec<_>>().join(", ")
    }

    fn end(&mut self, id: &str, how: How) -> Vec<Effect> {
        let id = Id::read(id).unwrap();
        let run = self.queue.job(id.job).unwrap().running[&id.task.unwrap_or(0)].run;
        self.does(Input::Ended(id, run, how, Usage::default()))
    }

    fn state(&self, id: &str) -> State {
        let id = Id::read(id).unwrap();
        self.queue.job(id.job).unwrap().state(id.task.unwrap_or(0)).unwrap()
    }

    fn why(&self, job: u64) -> String {
        self.queue.explain(Id::of(job)).unwrap().why.unwrap().to_string()
    }
}

/// A job of so many nodes, whole ones, for so many seconds.
fn nodes(nodes: u32, seconds: u64) -> Spec {
    let mut spec = spec("ann");
    (spec.request.nodes_min, spec.request.exclusive) = (nodes, true);
    spec.limit_ms = Some(seconds * 1000);
    spec
}

/// A job of so many ranks anywhere.
fn ranks(ranks: u32) -> Spec {
    let mut spec = spec("ann");
    spec.request.ranks = Some(ranks);
    spec.limit_ms = Some(60_000);
    spec
}

#[test]
fn a_life() {
    let mut story = Story::new(Settings::default(), &[2, 2]);
    let a = story.submit(ranks(3));
    assert_eq!((a, story.state("1")), (1, State::Pending));
    assert_eq!(story.tick(), "1 on n0x2+n1x1");
    assert_eq!(story.state("1"), State::Running);
    story.submit(ranks(2));
    assert_eq!(story.tick(), "");
    assert_eq!(story.why(2), "it wants 2 CPUs on 1 node or more: it could have 1 CPUs on 1 nodes now");
    story.does(Input::Began(Id::of(1), 0));
    story.end("1", How::Exit(0));
    assert_eq!(story.state("1"), State::Completed);
    assert_eq!(story.tick(), "2 on n0x2");
    story.end("2", How::Exit(3));
    assert_eq!(story.state("2"), State::Failed);
    assert!(story.refused(Input::Cancel { id: Id::of(9), by: "ann".into() }).contains("no job 9"));
}

#[test]
fn easy_overtakes_without_delaying_the_first() {
    for (policy, started) in [(Policy::Fcfs, ""), (Policy::Easy, "3 on n2x1"), (Policy::Conservative, "3 on n2x1")] {
        let mut story = Story::new(Settings { policy, ..Settings::default() }, &[1, 1, 1]);
        story.submit(nodes(2, 100));
        assert_eq!(story.tick(), "1 on n0x1+n1x1");
        story.submit(nodes(3, 100));
        story.submit(nodes(1, 100));
        story.submit(nodes(1, 200));
        assert_eq!(story.tick(), started, "{policy:?}");
        let said = story.queue.explain(Id::of(2)).unwrap();
        assert_eq!(said.expected, Some(story.now + 100_000));
        let why = story.why(4);
        let expected =
            if policy == Policy::Fcfs { "2 jobs come before it, job 2 first" } else { "it wants 1 CPUs on 1 node" };
        assert!(why.starts_with(expected), "{why}");
    }
}

#[test]
fn easy_delays_others_and_conservative_nobody() {
    for (policy, started) in [(Policy::Easy, "5 on n3x1"), (Policy::Conservative, "")] {
        let mut story = Story::new(Settings { policy, ..Settings::default() }, &[1, 1, 1, 1]);
        story.submit(nodes(3, 100));
        story.tick();
        // The first waits for three nodes, the second for all four after it.
        story.submit(nodes(2, 50));
        story.submit(nodes(4, 50));
        let _gone = story.submit(nodes(1, 10));
        story.does(Input::Cancel { id: Id::of(4), by: "ann".into() });
        // It ends 50 s after the fourth could begin, on a node that the second does not need.
        story.submit(nodes(1, 200));
        assert_eq!(story.tick(), started, "{policy:?}");
    }
}

#[test]
fn limits_deadlines_and_begins() {
    let mut story = Story::new(Settings::default(), &[1]);
    let now = story.now;
    story.submit(nodes(1, 10));
    story.submit(Spec { deadline: Some(now + 15_000), limit_ms: Some(10_000), ..ranks(1) });
    story.submit(Spec { begin_at: Some(now + 30_000), ..ranks(1) });
    assert_eq!(story.tick(), "1 on n0x1");
    assert_eq!(story.queue.wake(), Some(now + 5_001));
    assert_eq!(story.queue.explain(Id::of(1)).unwrap().ends, Some(now + 10_000));
    story.now += 5_001;
    story.tick();
    assert_eq!(story.state("2"), State::Deadline);
    story.now = now + 10_000;
    assert_eq!(story.tick(), "end 1 Timeout");
    assert_eq!(story.state("1"), State::Completing);
    story.end("1", How::Signal(9));
    assert_eq!((story.state("1"), story.tick()), (State::Timeout, String::new()));
    assert_eq!(story.why(3), "it is to begin later (--begin)");
    assert_eq!(story.queue.explain(Id::of(3)).unwrap().expected, Some(now + 30_000));
    assert_eq!(story.queue.wake(), Some(now + 30_000));
    story.now = now + 30_000;
    assert_eq!(story.tick(), "3 on n0x1");
}

#[test]
fn an_array_of_more_tasks_than_the_administrator_wants_is_refused() {
    let mut story = Story::new(Settings { array_most: 5, ..Settings::default() }, &[8]);
    let array = |text: &str| Box::new(Spec { array: Some(array::Array::read(text).unwrap()), ..ranks(1) });
    let why = story.refused(Input::Submit(array("0-10:2")));
    assert!(why.starts_with("Invalid job array specification: this one has 6 tasks") && why.contains("array_most"));
    assert_eq!(story.submit(*array("1000-1004")), 1);
}

#[test]
fn arrays_are_one_record_until_they_start() {
    let mut story = Story::new(Settings::default(), &[8]);
    let array = |text: &str| Some(array::Array::read(text).unwrap());
    story.submit(Spec { array: array("0-49999%3"), ..ranks(1) });
    assert_eq!(story.records.len(), 1);
    assert_eq!(story.tick(), "1_0 on n0x1, 1_1 on n0x1, 1_2 on n0x1");
    assert_eq!(story.why(1), "3 of its tasks run, and no more may (--array ...%3)");
    story.end("1_1", How::Exit(0));
    assert_eq!(story.tick(), "1_3 on n0x1");
    story.does(Input::Hold { id: Id::read("1_4").unwrap(), operator: false });
    story.does(Input::Cancel { id: Id::read("1_5").unwrap(), by: "ann".into() });
    story.end("1_0", How::Exit(1));
    assert_eq!(story.tick(), "1_6 on n0x1");
    assert_eq!(
        (story.state("1_4"), story.state("1_5"), story.state("1_0")),
        (State::Pending, State::Cancelled, State::Failed)
    );
    story.submit(Spec {
        array: array("0-6"),
        dependency: depend::Dependency::read("aftercorr:1").unwrap(),
        ..ranks(1)
    });
    // Each task has a number of its own.
    let named = |story: &Story, number: u64| story.queue.named(Id::of(number)).to_string();
    assert_eq!([1, 2, 50_000, 50_001, 50_003].map(|n| named(&story, n)), ["1", "1_1", "1_49999", "50001", "50001_2"]);
    assert_eq!(story.tick(), "50001_1 on n0x1", "the others have not ended well");
    story.does(Input::Update(1, Update::AtOnce(Some(4))));
    assert_eq!(story.tick(), "1_7 on n0x1");
    assert_eq!(story.does(Input::Cancel { id: Id::of(1), by: "ann".into() }).len(), 1 + 4 * 2);
    assert_eq!(story.state("1_49999"), State::Cancelled);
}

#[test]
fn dependencies() {
    let mut story = Story::new(Settings::default(), &[4]);
    let after = |text: &str| Spec { dependency: depend::Dependency::read(text).unwrap(), ..ranks(1) };
    story.submit(ranks(1));
    for text in ["afterok:1", "afternotok:1", "afterany:1", "after:1", "afterok:3?afterany:1", "afterok:3"] {
        story.submit(after(text));
    }
    assert!(story.refused(Input::Submit(Box::new(after("afterok:99")))).contains("99"));
    assert_eq!(story.tick(), "1 on n0x1, 5 on n0x1");
    assert_eq!(story.why(2), "it waits for other jobs: afterok:1");
    story.end("1", How::Exit(0));
    assert_eq!(story.tick(), "2 on n0x1, 4 on n0x1, 6 on n0x1");
    assert_eq!((story.state("3"), story.state("7")), (State::Cancelled, State::Cancelled), "it can't be any more");
    // One of a name at a time.
    for _ in 0..2 {
        story.submit(Spec { name: "one".into(), ..after("singleton") });
    }
    story.end("2", How::Exit(0));
    story.end("4", How::Exit(0));
    assert_eq!(story.tick(), "8 on n0x1");
    story.end("8", How::Exit(1));
    assert_eq!(story.tick(), "9 on n0x1");
}

#[test]
fn lost_nodes_and_what_could_not_begin() {
    let mut story = Story::new(Settings { runs: 2, keep_ms: times::DAY, ..Settings::default() }, &[1, 1]);
    story.submit(nodes(1, 100));
    story.submit(Spec { requeue: false, ..nodes(1, 100) });
    assert_eq!(story.tick(), "1 on n0x1, 2 on n1x1");
    let lost = story.does(Input::NodeLost("n1".into()));
    assert!(lost.contains(&Effect::End(Id::of(2), 0, Cause::NodeFail("n1".into()))), "{lost:?}");
    story.end("2", How::NodeLost("n1".into()));
    assert_eq!(story.state("2"), State::NodeFail);
    story.end("1", How::NotBegun("no such directory".into()));
    assert_eq!((story.state("1"), story.tick()), (State::Pending, String::new()));
    assert_eq!(story.why(1), "it could not be begun before, and is tried again in a while");
    story.now += 10_000;
    assert_eq!(story.tick(), "1 on n0x1");
    // What is said of an earlier run is not about this one.
    assert_eq!(story.does(Input::Ended(Id::of(1), 0, How::Exit(0), Usage::default())), []);
    story.end("1", How::NotBegun("no such directory".into()));
    story.now += 1_000_000;
    assert_eq!(story.tick(), "");
    assert_eq!(story.why(1), "it is held: `pando release` lets it start");
    story.does(Input::Release { id: Id::of(1), operator: false });
    assert_eq!(story.tick(), "1 on n0x1");
    story.does(Input::Requeue { id: Id::of(1), hold: false });
    story.end("1", How::Signal(9));
    assert_eq!(story.tick(), "1 on n0x1");
    story.does(Input::NodeLost("n0".into()));
    story.does(Input::Cancel { id: Id::of(1), by: "ann".into() });
    story.end("1", How::NodeLost("n0".into()));
    assert_eq!(story.state("1"), State::Cancelled, "a user's wish counts more than a lost node");
    story.does(Input::Requeue { id: Id::of(2), hold: true });
    assert_eq!(story.state("2"), State::Pending);
}

#[test]
fn a_higher_level_has_others_stand_still() {
    let high = Quality { priority: 1000, level: 1, ..Quality::default() };
    let settings = Settings { qualities: [("high".to_owned(), high)].into(), ..Settings::default() };
    let mut story = Story::new(settings, &[2, 2]);
    story.submit(ranks(1));
    story.submit(Spec { request: Request { ranks: Some(3), ..Request::default() }, ..ranks(3) });
    assert_eq!(story.tick(), "1 on n0x1, 2 on n0x1+n1x2");
    story.now += 10_000;
    story.submit(Spec { quality: Some("high".into()), ..ranks(2) });
    assert_eq!(story.tick(), "suspend 1, suspend 2, 3 on n0x2");
    story.submit(ranks(1));
    assert_eq!(story.tick(), "", "what stands still comes first");
    story.now += 20_000;
    story.end("3", How::Exit(0));
    assert_eq!(story.tick(), "resume 1, resume 2");
    story.now += 49_999;
    assert!(!story.tick().contains("end 2"), "its clock stood still, too");
    story.now += 1;
    assert!(story.tick().contains("end 2 Timeout"));
}

#[test]
fn reservations_and_drained_nodes() {
    let mut story = Story::new(Settings::default(), &[1, 1]);
    let now = story.now;
    let reserved = |name: &str, nodes: &[&str], users: &[&str]| Reservation {
        name: name.into(),
        nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
        begin: now + 50_000,
        end: now + 100_000,
        users: users.iter().map(|u| (*u).to_owned()).collect(),
    };
    story.does(Input::Reserve(reserved("repair", &["n0"], &[])));
    story.does(Input::Reserve(reserved("course", &["n1"], &["ann"])));
    story.submit(nodes(1, 60));
    assert_eq!(story.tick(), "");
    assert!(story.why(1).contains("there is room now, but not for its 00:01:00"), "{}", story.why(1));
    assert_eq!(story.queue.explain(Id::of(1)).unwrap().expected, Some(now + 100_000));
    story.submit(nodes(1, 50));
    assert_eq!(story.tick(), "2 on n0x1", "it ends before");
    let mut inside = nodes(1, 10);
    inside.request.reservation = Some("course".into());
    story.submit(inside.clone());
    assert_eq!(story.tick(), "3 on n1x1");
    inside.user = "ben".into();
    assert!(story.refused(Input::Submit(Box::new(inside))).contains("not for ben"));
    story.end("2", How::Exit(0));
    story.end("3", How::Exit(0));
    for drained in [true, false] {
        story.does(Input::NodeSeen(Node { name: "n0".into(), cpus: 1, memory: 1000, drained, ..Node::default() }));
        story.submit(Spec { request: Request { wanted: vec!["n0".into()], ..Request::default() }, ..nodes(1, 10) });
        let expected = if drained { "" } else { "4 on n0x1" };
        assert_eq!(story.tick(), expected);
    }
    assert!(story.why(5).contains("wants 1 CPUs"), "{}", story.why(5));
    story.now = now + 100_000;
    story.tick();
    assert_eq!(story.queue.reservations().count(), 0);
}

#[test]
fn memory_gres_licences_and_qualities() {
    let small = Quality { cpus_each: Some(2), ..Quality::default() };
    let licences = gres::read("matlab:1").unwrap();
    let settings = Settings { qualities: [("small".to_owned(), small)].into(), licences, ..Settings::default() };
    let mut story = Story::new(settings, &[8]);
    let gpu = Node { name: "g".into(), cpus: 4, memory: 4000, gres: gres::read("gpu:2").unwrap(), ..Node::default() };
    story.does(Input::NodeSeen(gpu));
    let with = |change: &dyn Fn(&mut Spec)| {
        let mut spec = ranks(1);
        change(&mut spec);
        spec
    };
    story.submit(with(&|s| s.request.gres = gres::read("gpu:2").unwrap()));
    story.submit(with(&|s| s.request.gres = gres::read("gpu:1").unwrap()));
    story.submit(with(&|s| s.request.gres = gres::read("tpu").unwrap()));
    story.submit(with(&|s| s.request.memory_per_cpu = 3000));
    story.submit(with(&|s| s.request.memory = 2000));
    story.submit(with(&|s| s.request.licences = gres::read("matlab").unwrap()));
    story.submit(with(&|s| s.request.licences = gres::read("matlab").unwrap()));
    story.submit(with(&|s| (s.quality, s.request.ranks) = (Some("small".into()), Some(2))));
    story.submit(with(&|s| s.quality = Some("small".into())));
    assert_eq!(story.tick(), "1 on gx1, 4 on gx1, 6 on n0x1, 8 on n0x2");
    let whys = [2, 3, 5, 7, 9].map(|job| story.why(job));
    assert!(whys[0].contains("1 gpu on each"), "{whys:?}");
    assert!(whys[1].contains("no node has a tpu"), "{whys:?}");
    assert!(whys[2].contains("2000M on each: it could have 0 CPUs on 0 nodes now"), "{whys:?}");
    assert!(whys[3].contains("licence matlab: 1 of 1"), "{whys:?}");
    assert!(whys[4].contains("have 2 CPUs, and may have 2"), "{whys:?}");
    story.submit(with(&|s| s.request.cpus_per_rank = 9));
    assert!(story.why(10).ends_with("so it never starts"), "{}", story.why(10));
}

#[test]
fn old_jobs_are_forgotten_but_for_those_that_somebody_waits_for() {
    let mut story = Story::new(Settings::default(), &[2]);
    story.submit(ranks(1));
    story.submit(ranks(1));
    story.tick();
    story.end("1", How::Exit(0));
    story.end("2", How::Exit(0));
    story.submit(Spec { hold: true, dependency: depend::Dependency::read("afterok:1").unwrap(), ..ranks(1) });
    story.tick();
    story.now += times::HOUR;
    story.tick();
    assert!(story.queue.job(1).is_some() && story.queue.job(2).is_none());
    story.does(Input::Cancel { id: Id::of(3), by: "ann".into() });
    story.tick();
    assert!(story.queue.job(1).is_none());
}

#[test]
fn users_are_told_what_they_want_to_hear() {
    let mut story = Story::new(Settings::default(), &[2]);
    let tell = Tell { mail: Some("a@b".into()), begin: true, fail: true, ..Tell::default() };
    story.submit(Spec { tell, array: Some(array::Array::read("0-1").unwrap()), ..ranks(1) });
    story.tick();
    let told = |effects: Vec<Effect>| {
        effects
            .into_iter()
            .filter_map(|e| if let Effect::Notify(id, event) = e { Some((id, event)) } else { None })
            .collect::<Vec<_>>()
    };
    let task = |n| Id { job: 1, task: Some(n) };
    let begun: Vec<_> = [0, 1].into_iter().flat_map(|n| told(story.does(Input::Began(task(n), 0)))).collect();
    assert_eq!(begun.len(), 1, "once for all tasks: {begun:?}");
    assert_eq!(told(story.end("1_0", How::Exit(1))), []);
    assert_eq!(told(story.end("1_1", How::Exit(0))), [(Id::of(1), Event::Ended(State::Failed))]);
}

#[test]
fn fair_share_converges() {
    let weights = Weights { age: 0, share: 100_000, size: 0, quality: 0 };
    let shares = [("a".to_owned(), 3), ("b".to_owned(), 1)].into();
    let (half_life_ms, keep_ms) = (times::HOUR, 0);
    let settings = Settings { weights, shares, half_life_ms, keep_ms, ..Settings::default() };
    let mut queue = Queue::new(settings);
    queue.handle(0, Input::NodeSeen(Node { name: "n".into(), cpus: 8, ..Node::default() }));
    let mut now = 0;
    for _ in 0..3000 {
        // Both always want more than there is.
        for account in ["a", "b"] {
            let waiting = queue.jobs().filter(|j| j.spec.account == account && !j.waiting.is_empty()).count();
            for _ in waiting..10 {
                queue.handle(now, Input::Submit(Box::new(Spec { account: account.into(), ..ranks(1) })));
            }
        }
        queue.handle(now, Input::Tick);
        now += 10_000;
        let ends: Vec<Id> = queue.runs().step_by(2).map(|(job, task, _)| job.name_of(task)).collect();
        for id in ends {
            queue.handle(now, Input::Ended(id, 0, How::Exit(0), Usage::default()));
        }
    }
    // Who has had just his share has half of it left.
    let shares = queue.shares();
    assert!(shares.values().all(|left| (left - 0.5).abs() < 0.01), "{shares:?}");
}

#[test]
fn who_shares_cpus_by_turns_has_none_of_them_twice() {
    // Nodes of one CPU, which is counted twice.
    let mut story = Story::new(Settings { turns: 2, ..Settings::default() }, &[2, 2]);
    story.submit(ranks(2));
    assert_eq!(story.tick(), "1 on n0x1+n1x1", "a rank on each, not both on one CPU");
    story.submit(ranks(2));
    assert_eq!(story.tick(), "2 on n0x1+n1x1", "beside the first");
    story.submit(ranks(3));
    story.submit(ranks(1));
    assert_eq!(story.tick(), "", "three never fit, and all turns are taken");
}

#[test]
fn work_that_was_done_while_its_node_was_held_for_lost_is_done() {
    for (how, state) in [(How::Exit(0), State::Completed), (How::Signal(15), State::NodeFail)] {
        let mut story = Story::new(Settings::default(), &[1, 1]);
        story.submit(Spec { requeue: false, ..ranks(1) });
        assert_eq!(story.tick(), "1 on n0x1");
        story.does(Input::NodeLost("n0".into()));
        story.end("1", how);
        assert_eq!(story.state("1"), state);
    }
}

#[test]
fn who_submits_twice_with_one_ticket_has_one_job() {
    let mut queue = Queue::new(Settings::default());
    let submit = |queue: &mut Queue, user: &str, ticket: &str| {
        let effects = queue.handle(1, Input::Submit(Box::new(Spec { ticket: ticket.into(), ..spec(user) })));
        effects.into_iter().find_map(|e| if let Effect::Accepted(id) = e { Some(id) } else { None }).unwrap()
    };
    assert_eq!(
        [submit(&mut queue, "ann", "a"), submit(&mut queue, "ann", "a"), submit(&mut queue, "ann", "b")],
        [1, 1, 2]
    );
    assert_eq!(submit(&mut queue, "ben", "a"), 3, "a ticket is its user's");
    assert_eq!([submit(&mut queue, "ann", ""), submit(&mut queue, "ann", "")], [4, 5]);
    // The next keeper of the queue knows it, from a long journal and from a short one.
    let records = queue.records();
    let mut next = Queue::restore(Settings::default(), records);
    assert!(next.knows_the_same(&queue));
    assert_eq!(submit(&mut next, "ann", "a"), 1);
    queue.handle(2, Input::Cancel { id: Id::of(1), by: "ann".into() });
    assert_eq!(submit(&mut queue, "ann", "a"), 1, "for as long as the job is remembered");
}

#[test]
fn what_has_ended_had_begun() {
    let mut story = Story::new(Settings::default(), &[1]);
    story.submit(ranks(1));
    assert_eq!(story.tick(), "1 on n0x1");
    let effects = story.does(Input::Ended(Id::of(1), 0, How::Exit(0), Usage::default()));
    let outcomes = effects.iter().filter_map(|e| if let Effect::Outcome(outcome) = e { Some(outcome) } else { None });
    assert!(outcomes.into_iter().all(|outcome| outcome.run.began.is_some()));
    assert!(effects.iter().any(|e| matches!(e, Effect::Outcome(_))));
}

#[test]
fn who_waits_for_a_job_without_an_end_is_not_told_that_he_never_starts() {
    let mut story = Story::new(Settings::default(), &[1, 1]);
    let there = |cpus| Spec {
        request: Request { wanted: vec!["n0".into()], nodes_max: Some(1), ..ranks(cpus).request },
        ..ranks(cpus)
    };
    story.submit(Spec { limit_ms: None, ..there(1) });
    assert_eq!(story.tick(), "1 on n0x1");
    story.submit(Spec { limit_ms: None, ..there(1) });
    story.submit(there(2));
    assert_eq!(story.tick(), "");
    let why = |job| story.queue.explain(Id::of(job)).unwrap().why.unwrap();
    assert!(matches!(why(2), Why::NoRoom { .. }), "{}", why(2));
    assert!(matches!(why(3), Why::Never { .. }), "{}", why(3));
}

#[test]
fn who_waits_for_a_reservation_to_end_hears_its_name() {
    let mut story = Story::new(Settings::default(), &[2, 2]);
    let kept = |begin, end| Reservation {
        name: "course".into(),
        nodes: vec!["n0".into(), "n1".into()],
        begin,
        end,
        users: vec!["bob".into()],
    };
    let why = |story: &Story, job| story.queue.explain(Id::of(job)).unwrap().why.unwrap().to_string();
    let now = story.queue.now;
    story.does(Input::Reserve(kept(now + 60_000, now + 90_000)));
    story.submit(Spec { limit_ms: None, ..ranks(1) });
    story.submit(Spec { limit_ms: Some(600_000), ..ranks(1) });
    assert_eq!(story.tick(), "");
    assert!(why(&story, 1).contains("reservation course") && why(&story, 1).contains("--time"), "{}", why(&story, 1));
    assert!(why(&story, 2).contains("its 00:10:00: reservation course has it then"), "{}", why(&story, 2));
    story.does(Input::Reserve(kept(now, now + 90_000)));
    assert!(why(&story, 2).contains("0 CPUs on 0 nodes now, and reservation course has nodes"), "{}", why(&story, 2));
}

#[test]
fn what_was_lost_with_its_node_ended_when_that_was_last_heard() {
    let mut story = Story::new(Settings::default(), &[2]);
    let job = |story: &mut Story| story.submit(Spec { requeue: false, ..ranks(1) });
    let ended = |effects: &[Effect]| {
        let found = effects.iter().find_map(|e| if let Effect::Outcome(o) = e { Some(o.ended) } else { None });
        found.unwrap()
    };
    job(&mut story);
    story.tick();
    let begun = story.now;
    story.now += 60_000;
    story.does(Input::NodeHeard("n0".into(), 50_000));
    assert_eq!(ended(&story.end("1", How::NodeLost("n0".into()))), begun + 10_000);
    // It had begun after its node was last heard.
    job(&mut story);
    story.tick();
    let begun = story.now;
    story.now += 3_000;
    story.does(Input::NodeHeard("n0".into(), 60_000));
    story.now += 3_000;
    assert_eq!(ended(&story.end("2", How::NodeLost("n0".into()))), begun);
    story.now += 1;
    // What it was away for before does not matter to one that began later, and one that came to its end did so now.
    job(&mut story);
    story.tick();
    story.now += 5_000;
    assert_eq!(ended(&story.end("3", How::NodeLost("n0".into()))), story.now);
    job(&mut story);
    story.tick();
    story.now += 5_000;
    story.does(Input::NodeHeard("n0".into(), 1_000));
    assert_eq!(ended(&story.end("4", How::Exit(0))), story.now);
}

#[test]
fn what_waits_is_changed_and_what_runs_keeps_what_it_has() {
    let second = Partition { nodes: vec!["n1".into()], ..Partition::default() };
    let partitions = [("batch".to_owned(), Partition::default()), ("second".to_owned(), second)].into();
    let mut story = Story::new(Settings { partitions, ..Settings::default() }, &[2, 2]);
    let id = story.submit(Spec { hold: true, ..ranks(1) });
    story.does(Input::Absent(Vec::new()));
    story.does(Input::Update(id, Update::Partition("second".into())));
    story.does(Input::Update(id, Update::Memory(500)));
    story.does(Input::Update(id, Update::Ranks(2)));
    for (update, why) in [
        (Update::Partition("third".into()), "there is no partition third"),
        (Update::Nodes(2, None), "Requested node configuration is not available"),
        (Update::Nodes(0, None), "--nodes"),
        (Update::Quality("gold".into()), "no quality of service gold"),
        (Update::AtOnce(None), "not an array"),
    ] {
        let said = story.refused(Input::Update(id, update));
        assert!(said.contains(why), "{said}");
    }
    story.does(Input::Release { id: Id::of(id), operator: false });
    assert_eq!(story.tick(), "1 on n1x2");
    assert!(story.refused(Input::Update(id, Update::Memory(1))).contains("no longer pending"));
    story.does(Input::Update(id, Update::Limit(60_000)));
    assert_eq!(story.queue.job(id).unwrap().spec.limit_ms, Some(60_000));
}
