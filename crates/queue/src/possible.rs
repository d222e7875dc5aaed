//! Could the cluster ever run it, if all its nodes were there and nothing else ran? And in one word of Slurm's, what a job waits for.

use crate::change::Node;
use crate::explain::{Why, wants};
use crate::job::{Id, Job};
use crate::pass::Pass;
use crate::queue::Queue;
use crate::spec::Request;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Requests that are remembered with what was found of them.
const MOST_JUDGED: usize = 1000;

/// What a request comes to on the nodes that are there, and on those that may come back.
#[derive(Clone)]
enum Fits {
    /// Nodes that are there and take jobs are enough, if nothing else ran.
    Now,
    /// With these, which are away or drained, it would be enough.
    With(Vec<String>),
    /// Nodes outside its partition would do.
    Elsewhere,
    /// Nobody knows what these have that are away.
    Perhaps(Vec<String>),
    /// Never.
    Never,
}

impl Why {
    /// As squeue has it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Why::Held { operator: true } => "JobHeldAdmin",
            Why::Held { operator: false } => "JobHeldUser",
            Why::NotBefore { .. } => "BeginTime",
            Why::Depends(_) => "Dependency",
            Why::AtOnce { .. } => "JobArrayTaskLimit",
            Why::Licences { .. } => "Licenses",
            Why::QualityCpus { .. } => "QOSMaxCpuPerUserLimit",
            Why::NoReservation(_) => "ReservationDeleted",
            Why::NodeNotThere(_) | Why::Away { .. } => "ReqNodeNotAvail",
            Why::NoSuchGres(_) | Why::Never { .. } => "BadConstraints",
            Why::Behind { .. } | Why::Delays { .. } => "Priority",
            Why::NoRoom { .. } | Why::Nothing => "Resources",
        }
    }
}

fn is_enough(queue: &Queue, pass: &mut Pass, request: &Request) -> bool {
    let shape = pass.shape(queue, request);
    pass.need_of(shape).is_ok_and(|need| pass.plan.is_enough(need))
}

impl Queue {
    /// These members of the cluster are away: what they have, as far as that is known (no CPUs: it is not).
    pub(crate) fn absent(&mut self, nodes: Vec<Node>) {
        let nodes: BTreeMap<String, Node> = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
        if self.absent.as_ref() != Some(&nodes) {
            (self.absent, self.stirred) = (Some(nodes), true);
            self.judged.clear();
        }
    }

    /// Members of the cluster that are away.
    pub fn absentees(&self) -> impl Iterator<Item = &Node> {
        self.absent.iter().flat_map(BTreeMap::values)
    }

    /// The same cluster with everybody there and nothing on them.
    fn at_its_best(&self) -> Queue {
        let mut best = Queue::restore(self.settings.clone(), []);
        (best.book.reservations, best.now) = (self.book.reservations.clone(), self.now);
        let all = self.absent.iter().flat_map(BTreeMap::values).chain(self.nodes.values()).filter(|n| n.cpus > 0);
        best.nodes =
            all.map(|n| (n.name.clone(), Node { drained: false, silent: false, busy: 0, ..n.clone() })).collect();
        best
    }

    /// Those of which nobody knows what they have.
    fn unknown(&self) -> Vec<String> {
        let all = self.absent.iter().flat_map(BTreeMap::values).chain(self.nodes.values());
        all.filter(|n| n.cpus == 0 || n.vague).map(|n| n.name.clone()).collect()
    }

    /// Why no nodes of this cluster could ever run it, if that is certain.
    pub(crate) fn impossible(&mut self, request: &Request) -> Option<Why> {
        // Before anybody has said who there is nothing is certain.
        if self.nodes.is_empty() || self.absent.is_none() || !self.unknown().is_empty() {
            return None;
        }
        if let Some(known) = self.judged.get(request) {
            return known.clone();
        }
        let why = self.judge(request);
        if self.judged.len() >= MOST_JUDGED {
            self.judged.clear();
        }
        self.judged.insert(request.clone(), why.clone());
        why
    }

    /// Why all nodes that there are, and that may come back, could not run it.
    pub(crate) fn judge(&self, request: &Request) -> Option<Why> {
        for licence in &request.licences {
            let all = self.settings.licences.iter().find(|l| l.kind == licence.kind).map_or(0, |l| l.count);
            if licence.count > all {
                return Some(Why::Licences { kind: licence.kind.clone(), wants: licence.count, used: 0, all });
            }
        }
        let best = self.at_its_best();
        let mut pass = Pass::new(&best);
        let shape = pass.shape(&best, request);
        match pass.need_of(shape) {
            // It may be made again, or get other nodes.
            Err(Why::NoReservation(_)) => None,
            Err(why) => Some(why.clone()),
            Ok(need) if pass.plan.is_enough(need) => None,
            Ok(need) => {
                let (cpus, nodes) = pass.plan.could_have(need, true);
                let mut wants = wants(need, &pass.plan.kinds);
                if !request.features.is_empty() {
                    wants += &format!(", {} on each (--constraint)", request.features.join(" and "));
                }
                Some(Why::Never { wants, cpus, nodes })
            }
        }
    }

    /// What is in the way of a request that the nodes which take jobs now could not run alone.
    pub(crate) fn away(&self, request: &Request, wants: String) -> Option<Why> {
        let best = self.at_its_best();
        match self.fits(&mut Pass::new(self), &best, &mut Pass::new(&best), request) {
            Fits::With(nodes) | Fits::Perhaps(nodes) => Some(Why::Away { wants, nodes }),
            _ => None,
        }
    }

    fn fits(&self, pass: &mut Pass, best: &Queue, whole: &mut Pass, request: &Request) -> Fits {
        if is_enough(self, pass, request) {
            return Fits::Now;
        }
        if is_enough(best, whole, request) {
            let shape = whole.shape(best, request);
            let lines = whole.need_of(shape).map(|need| need.lines.clone()).unwrap_or_default();
            let names = lines.iter().map(|line| whole.plan.lines[*line as usize].name.clone());
            let is_away = |name: &String| self.nodes.get(name).is_none_or(|node| node.drained || node.silent);
            let away: Vec<String> = names.filter(is_away).collect();
            let wanted: Vec<String> = away.iter().filter(|name| request.wanted.contains(name)).cloned().collect();
            return Fits::With(if wanted.is_empty() { away } else { wanted });
        }
        let anywhere = Request { partition: None, ..request.clone() };
        let open = self.settings.partition(None).is_none_or(|p| p.nodes.is_empty());
        if request.partition.is_some() && open && is_enough(best, whole, &anywhere) {
            return Fits::Elsewhere;
        }
        match self.unknown() {
            unknown if unknown.is_empty() => Fits::Never,
            unknown => Fits::Perhaps(unknown),
        }
    }

    /// What each job waits for that has tasks which wait, in Slurm's words, by number. Of those that are held it is what is in the way besides.
    pub fn reasons(&self) -> HashMap<u64, String> {
        let mut reasons = HashMap::new();
        if self.book.waiting.is_empty() {
            return reasons;
        }
        let best = self.at_its_best();
        let (mut pass, mut whole) = (Pass::new(self), Pass::new(&best));
        let mut known: HashMap<usize, Fits> = HashMap::new();
        let mut first = HashSet::new();
        for place in self.order().iter().filter(|place| place.suspended.is_none()) {
            let Some(job) = self.job(place.job) else { continue };
            let reason = match pass.hurdle(self, job) {
                Err(why) => why.word().to_owned(),
                Ok(_) => {
                    let request = &job.spec.request;
                    let shape = pass.shape(self, request);
                    let fits =
                        known.entry(shape).or_insert_with(|| self.fits(&mut pass, &best, &mut whole, request)).clone();
                    match fits {
                        Fits::Now if first.insert(request.partition.clone()) => "Resources".to_owned(),
                        Fits::Now => "Priority".to_owned(),
                        Fits::With(nodes) | Fits::Perhaps(nodes) => {
                            format!("ReqNodeNotAvail, UnavailableNodes:{}", nodes.join(","))
                        }
                        Fits::Elsewhere => "PartitionConfig".to_owned(),
                        Fits::Never => "BadConstraints".to_owned(),
                    }
                }
            };
            reasons.insert(job.id, reason);
        }
        reasons
    }

    /// What one task waits for, in Slurm's words; nothing, if it does not.
    pub fn reason(&self, id: Id) -> String {
        let Some(job) = self.job(id.job) else { return String::new() };
        match id.task.or(job.waiting.first()) {
            Some(task) if job.held.contains(task) => held(job).to_owned(),
            Some(task) if job.waiting.contains(task) => self.reasons().remove(&id.job).unwrap_or_default(),
            _ => String::new(),
        }
    }
}

/// Who holds what is held of it.
pub fn held(job: &Job) -> &'static str {
    Why::Held { operator: job.held_by_operator }.word()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Input;
    use crate::settings::{Partition, Settings};
    use crate::spec::tests::spec;
    use crate::tests::Story;
    use crate::{Effect, gres};

    fn submit(story: &mut Story, change: impl FnOnce(&mut Request)) -> Result<u64, String> {
        let mut job = spec("ann");
        change(&mut job.request);
        match &story.does(Input::Submit(Box::new(job)))[..] {
            [.., Effect::Accepted(id)] => Ok(*id),
            [Effect::Refused(why)] => Err(why.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn node(name: &str, cpus: u32) -> Node {
        Node { name: name.into(), cpus, memory: 1000, ..Node::default() }
    }

    #[test]
    fn what_no_node_will_ever_have_is_refused_and_what_one_may_have_waits() {
        let small = Partition { nodes: vec!["n0".into()], ..Partition::default() };
        let partitions = [("batch".to_owned(), Partition::default()), ("small".to_owned(), small)].into();
        let licences = gres::read("matlab").unwrap();
        let mut story = Story::new(Settings { partitions, licences, ..Settings::default() }, &[2, 4]);
        // Nobody has said who there is besides: anybody may come.
        let early = submit(&mut story, |r| r.cpus_per_rank = 16).unwrap();
        assert_eq!(story.queue.reason(Id::of(early)), "BadConstraints");
        // One is away of which nothing is known.
        story.does(Input::Absent(vec![node("n2", 0)]));
        let perhaps = submit(&mut story, |r| r.cpus_per_rank = 16).unwrap();
        assert_eq!(story.queue.reason(Id::of(perhaps)), "ReqNodeNotAvail, UnavailableNodes:n2");
        story.does(Input::Absent(vec![Node { features: vec!["ssd".into()], ..node("n2", 8) }]));
        assert_eq!(story.queue.reason(Id::of(perhaps)), "BadConstraints");
        type Change<'a> = &'a dyn Fn(&mut Request);
        let never: [(&str, Change); 7] = [
            ("could have 0 CPUs on 0 nodes", &|r| r.cpus_per_rank = 16),
            ("4 nodes", &|r| r.nodes_min = 4),
            ("2000M on each", &|r| r.memory = 2000),
            ("tape on each (--constraint)", &|r| r.features = vec!["tape".into()]),
            ("no node has a gpu", &|r| r.gres = gres::read("gpu").unwrap()),
            ("licence matlab", &|r| r.licences = gres::read("matlab:2").unwrap()),
            ("node n1", &|r| (r.partition, r.wanted) = (Some("small".into()), vec!["n1".into()])),
        ];
        for (word, change) in never {
            let why = submit(&mut story, change).unwrap_err();
            assert!(why.starts_with("Requested node configuration is not available: ") && why.contains(word), "{why}");
        }
        // What one has that is away, or drained, is waited for.
        let away = submit(&mut story, |r| r.features = vec!["ssd".into()]).unwrap();
        assert_eq!(story.queue.reason(Id::of(away)), "ReqNodeNotAvail, UnavailableNodes:n2");
        let why = story.queue.explain(Id::of(away)).unwrap().why.unwrap().to_string();
        assert!(why.contains("n2") && !why.contains("never"), "{why}");
        story.does(Input::NodeSeen(Node { drained: true, ..node("n1", 4) }));
        let drained = submit(&mut story, |r| r.wanted = vec!["n1".into()]).unwrap();
        assert_eq!(story.queue.reason(Id::of(drained)), "ReqNodeNotAvail, UnavailableNodes:n1");
        // One whose features nobody has asked for yet may have them.
        story.does(Input::NodeSeen(Node { vague: true, ..node("n1", 4) }));
        assert!(submit(&mut story, |r| r.features = vec!["tape".into()]).is_ok());
    }

    #[test]
    fn nothing_begins_at_a_node_that_is_not_heard() {
        let mut story = Story::new(Settings::default(), &[4, 4]);
        story.does(Input::NodeSeen(Node { silent: true, ..node("n1", 4) }));
        let there = submit(&mut story, |r| r.wanted = vec!["n1".into()]).unwrap();
        let both = submit(&mut story, |r| (r.nodes_min, r.ranks) = (2, Some(2))).unwrap();
        let begun = |story: &Story| [there, both].map(|job| story.queue.job(job).unwrap().running.len());
        story.does(Input::Tick);
        assert_eq!(begun(&story), [0, 0]);
        for job in [there, both] {
            assert_eq!(story.queue.reason(Id::of(job)), "ReqNodeNotAvail, UnavailableNodes:n1");
            let why = story.queue.explain(Id::of(job)).unwrap().why.unwrap().to_string();
            assert!(why.contains("n1"), "{why}");
        }
        story.does(Input::NodeSeen(node("n1", 4)));
        story.does(Input::Tick);
        assert_eq!(begun(&story), [1, 1], "it is heard again");
    }

    #[test]
    fn the_first_waits_for_resources_and_the_others_for_their_turn() {
        let mut story = Story::new(Settings::default(), &[2]);
        for _ in 0..3 {
            submit(&mut story, |r| r.ranks = Some(2)).unwrap();
        }
        story.does(Input::Tick);
        assert_eq!([2, 3].map(|job| story.queue.reason(Id::of(job))), ["Resources", "Priority"]);
    }
}
