//! Jobs that give way by moving.

use super::*;

/// Qualities: those of whoever says none give way by moving.
fn moving() -> Settings {
    let high = Quality { priority: 1000, level: 1, ..Quality::default() };
    let normal = Quality { preempt: Preempt::Move, ..Quality::default() };
    let qualities = [("high".to_owned(), high), ("normal".to_owned(), normal)].into();
    Settings { qualities, ..Settings::default() }
}

impl Story {
    fn wanted(&mut self, node: &str, spec: Spec) -> u64 {
        self.submit(Spec { request: Request { wanted: vec![node.into()], ..spec.request.clone() }, ..spec })
    }

    fn placed(&mut self, job: u64, node: &str, how: Result<(), &str>) {
        let how = how.map_err(str::to_owned);
        self.does(Input::Placed { id: Id::of(job), run: 0, node: node.into(), how });
    }

    fn held(&self, job: u64) -> String {
        let run = &self.queue.job(job).unwrap().running[&0];
        run.holds().map(|h| format!("{}:{}c{}m", h.node, h.cpus, h.memory)).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_lower_one_is_moved_to_where_there_is_room_and_comes_home_later() {
    let mut story = Story::new(moving(), &[2, 2]);
    let low = Spec { request: Request { memory: 100, ..ranks(2).request }, ..ranks(2) };
    story.submit(low);
    assert_eq!(story.tick(), "1 on n0x2");
    story.does(Input::Began(Id::of(1), 0));
    let high = || Spec { quality: Some("high".into()), ..ranks(2) };
    story.wanted("n0", high());
    assert_eq!(story.tick(), "move 1 to n1", "it waits until that is done");
    assert_eq!(story.held(1), "n0:2c100m n1:2c100m");
    story.submit(ranks(1));
    assert_eq!(story.tick(), "", "nobody gets in between");
    story.placed(1, "n1", Ok(()));
    assert_eq!(story.held(1), "n0:0c100m n1:2c100m");
    assert_eq!(story.tick(), "2 on n0x2");
    assert!(story.queue.job(1).unwrap().running[&0].whereabouts().unwrap().contains("compute at n1"));
    story.now += 20_000;
    assert_eq!(story.tick(), "");
    story.end("2", How::Exit(0));
    assert_eq!(story.tick(), "3 on n0x1", "who waits comes before who comes home");
    story.end("3", How::Exit(0));
    assert_eq!(story.tick(), "move 1 to n0");
    assert_eq!(story.held(1), "n0:2c100m n1:2c100m");
    story.placed(1, "n0", Ok(()));
    assert_eq!((story.held(1).as_str(), story.state("1")), ("n0:2c100m", State::Running));
}

#[test]
fn who_cant_be_moved_stands_still_and_says_why() {
    let mut story = Story::new(moving(), &[2, 2]);
    story.submit(ranks(2));
    story.tick();
    story.does(Input::Began(Id::of(1), 0));
    story.wanted("n0", Spec { quality: Some("high".into()), ..ranks(2) });
    assert_eq!(story.tick(), "move 1 to n1");
    story.placed(1, "n1", Err("it has a filter"));
    assert_eq!(story.tick(), "suspend 1, 2 on n0x2");
    let why = story.queue.job(1).unwrap().running[&0].whereabouts().unwrap();
    assert!(why.contains("n1: it has a filter"), "{why}");
    story.end("2", How::Exit(0));
    assert_eq!(story.tick(), "resume 1");
    // A node that has no room is not asked.
    story.now += 70_000;
    let mut story = Story::new(moving(), &[2, 1]);
    story.submit(ranks(2));
    story.tick();
    story.does(Input::Began(Id::of(1), 0));
    story.wanted("n0", Spec { quality: Some("high".into()), ..ranks(2) });
    assert_eq!(story.tick(), "suspend 1, 2 on n0x2");
}

#[test]
fn who_is_away_is_lost_with_the_node_where_it_computes() {
    let mut story = Story::new(moving(), &[1, 1, 1]);
    story.submit(Spec { requeue: true, ..ranks(1) });
    story.tick();
    story.does(Input::Began(Id::of(1), 0));
    story.wanted("n0", Spec { quality: Some("high".into()), ..ranks(1) });
    assert_eq!(story.tick(), "move 1 to n1");
    story.does(Input::NodeLost("n1".into()));
    assert_eq!(story.state("1"), State::Running, "it may be at home, and that will say so");
    story.placed(1, "n1", Err("n1 is down".into()));
    assert_eq!(story.tick(), "suspend 1, 2 on n0x1");
    story.end("2", How::Exit(0));
    assert_eq!(story.tick(), "resume 1");
    story.now += 70_000;
    story.does(Input::Update(1, Update::Limit(200_000)));
    story.wanted("n0", Spec { quality: Some("high".into()), ..ranks(1) });
    assert_eq!(story.tick(), "move 1 to n2");
    let again = Queue::restore(story.queue.settings().clone(), story.records.clone());
    assert!(again.unfinished().contains(&Effect::Place(Id::of(1), 0, "n2".into())), "{:?}", again.unfinished());
    story.placed(1, "n2", Ok(()));
    assert_eq!(story.tick(), "3 on n0x1");
    let effects = story.does(Input::NodeLost("n2".into()));
    assert!(effects.contains(&Effect::End(Id::of(1), 0, Cause::NodeFail("n2".into()))), "{effects:?}");
    story.end("1", How::Signal(9));
    assert_eq!(story.state("1"), State::Pending, "it runs again");
}

#[test]
fn a_drained_node_is_left_by_those_who_may_be_moved() {
    let mut story = Story::new(moving(), &[1, 1]);
    story.submit(ranks(1));
    story.tick();
    story.does(Input::Began(Id::of(1), 0));
    let node = |drained| Node { name: "n0".into(), cpus: 1, memory: 1000, drained, ..Node::default() };
    story.does(Input::NodeSeen(node(true)));
    assert_eq!(story.tick(), "move 1 to n1");
    story.placed(1, "n1", Ok(()));
    story.now += 20_000;
    assert_eq!(story.tick(), "");
    story.does(Input::NodeSeen(node(false)));
    assert_eq!(story.tick(), "move 1 to n0");
}

#[test]
fn records_of_an_earlier_version_say_nothing_of_moves() {
    let old = r#"{"run":0,"started":5,"began":6,"shares":[],"suspended_at":null,"suspended_ms":0,"ending":null}"#;
    let run: Run = serde_json::from_str(old).unwrap();
    assert_eq!((run.away, run.rooted), (None, None));
}
