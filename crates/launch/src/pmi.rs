//! The process manager that MPICH and its kin speak to: PMI-1, lines of text on a connection of each rank (MPICH's `src/pmi`, and the paper by
//! Balaji, Buntinas, Goodell, Gropp, Krishna, Lusk and Thakur, 2010). One server for the ranks of a node; what they put into the common space is
//! told at barriers.

use crate::message::{Granted, Said, Wish};
use crate::names::{Name, Named};
use crate::order::{Order, Share};
use crate::spawn::{Spawned, Spawning};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bounds that ranks are told: bytes of a name of the space, of a key, of a value.
const MOST_NAME: usize = 256;
const MOST_KEY: usize = 64;
const MOST_VALUE: usize = 4096;
/// A line has a key and a value at most.
pub const MOST_LINE: usize = 16 << 10;
/// Bytes of the whole space.
const MOST_SPACE: usize = 64 << 20;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// This line goes to a rank.
    Line(u32, String),
    /// All ranks of this node have come to the barrier.
    Fence(Vec<Said>),
    /// A rank ends the job.
    Abort(u32, u8),
    /// A rank wants something of its job.
    Wish(u32, Wish),
    /// Its user is to hear this.
    Say(u32, String),
}

/// See above.
pub struct Server {
    universe: u32,
    order: Arc<Order>,
    ranks: BTreeSet<u32>,
    name: String,
    space: BTreeMap<String, String>,
    bytes: usize,
    fresh: Vec<Said>,
    at_barrier: BTreeSet<u32>,
    /// Ranks that have begun, and not finished.
    inside: BTreeSet<u32>,
    /// Ranks that are in the middle of saying what they want to be started.
    spawning: BTreeMap<u32, Spawning>,
    /// What ranks have asked of their job, and what the answer is called.
    asked: BTreeMap<u32, &'static str>,
}

/// Who is where, as MPICH wants to know: blocks of (first node, nodes, ranks of each).
pub fn mapping(nodes: &[Share]) -> String {
    let mut shares: Vec<&Share> = nodes.iter().filter(|s| s.ranks > 0).collect();
    shares.sort_by_key(|s| s.first);
    let mut blocks: Vec<(usize, u32, u32)> = Vec::new();
    for (at, share) in shares.iter().enumerate() {
        match blocks.last_mut() {
            Some((_, nodes, ranks)) if *ranks == share.ranks => *nodes += 1,
            _ => blocks.push((at, 1, share.ranks)),
        }
    }
    let blocks: Vec<String> = blocks.iter().map(|(at, nodes, ranks)| format!("({at},{nodes},{ranks})")).collect();
    format!("(vector,{})", blocks.join(","))
}

/// Words of a line: `key=value`, separated by spaces. The value of `value` is the rest of the line.
fn words(line: &str) -> BTreeMap<&str, &str> {
    let mut words = BTreeMap::new();
    let mut rest = line.trim_end_matches(['\n', '\r', '\0']);
    while let Some((key, after)) = rest.trim_start().split_once('=') {
        let end = if key == "value" { after.len() } else { after.find(' ').unwrap_or(after.len()) };
        words.insert(key, &after[..end]);
        rest = &after[end..];
    }
    words
}

impl Server {
    /// For the ranks of a place, which the order has.
    pub fn new(order: Arc<Order>, place: u32) -> Server {
        let share = &order.nodes[place as usize];
        let ranks: BTreeSet<u32> = (share.first..share.first + share.ranks).collect();
        // Those who started them wait until they speak: who ends without a word leaves them waiting.
        let inside = if order.group.is_some() { ranks.clone() } else { BTreeSet::new() };
        let mut server = Server {
            universe: order.universe(),
            ranks,
            name: format!("pando_{}_{}", order.nodes[0].node, order.job),
            space: BTreeMap::from([("PMI_process_mapping".to_owned(), mapping(&order.nodes))]),
            bytes: 0,
            fresh: Vec::new(),
            at_barrier: BTreeSet::new(),
            inside,
            spawning: BTreeMap::new(),
            asked: BTreeMap::new(),
            order,
        };
        let order = server.order.clone();
        for (key, value) in order.group.iter().flat_map(|group| &group.preput) {
            let kept = std::str::from_utf8(value).is_ok_and(|value| server.keep(key, value).is_ok());
            debug_assert!(kept, "a wish has less than a space takes");
        }
        server
    }

    /// Is this rank between its first word and its last?
    pub fn is_inside(&self, rank: u32) -> bool {
        self.inside.contains(&rank)
    }

    /// A rank says this.
    pub fn line(&mut self, rank: u32, line: &str) -> Vec<Reply> {
        let said = words(line);
        let to = |text: String| vec![Reply::Line(rank, text + "\n")];
        // It goes on over many lines, and what is in them is no command of its own.
        if self.spawning.contains_key(&rank) || said.contains_key("mcmd") {
            return self.spawn(rank, line);
        }
        let Some(command) = said.get("cmd") else { return Vec::new() };
        match *command {
            "init" => {
                self.inside.insert(rank);
                to("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into())
            }
            "get_maxes" => {
                to(format!("cmd=maxes rc=0 kvsname_max={MOST_NAME} keylen_max={MOST_KEY} vallen_max={MOST_VALUE}"))
            }
            "get_appnum" => to(format!("cmd=appnum rc=0 appnum={}", self.order.program_of(rank))),
            "get_my_kvsname" => to(format!("cmd=my_kvsname rc=0 kvsname={}", self.name)),
            "get_universe_size" => to(format!("cmd=universe_size rc=0 size={}", self.universe)),
            "put" => match self.put(said.get("key"), said.get("value")) {
                Ok(()) => to("cmd=put_result rc=0 msg=success".into()),
                Err(why) => to(format!("cmd=put_result rc=-1 msg={why}")),
            },
            "get" => match said.get("key").and_then(|key| self.space.get(*key)) {
                Some(value) => to(format!("cmd=get_result rc=0 msg=success value={value}")),
                None => to("cmd=get_result rc=-1 msg=key_not_found value=unknown".into()),
            },
            "barrier_in" => {
                self.at_barrier.insert(rank);
                self.barrier()
            }
            "finalize" => {
                self.inside.remove(&rank);
                to("cmd=finalize_ack rc=0".into())
            }
            "abort" => {
                let status = said.get("exitcode").and_then(|code| code.parse::<i32>().ok()).unwrap_or(1);
                self.inside.remove(&rank);
                vec![Reply::Abort(rank, status as u8)]
            }
            "publish_name" | "unpublish_name" | "lookup_name" => self.name(rank, command, &said),
            other => to(format!("cmd={other} rc=-1 msg=unknown")),
        }
    }

    /// A rank wants more of them to be started.
    fn spawn(&mut self, rank: u32, line: &str) -> Vec<Reply> {
        let line = line.trim_end_matches(['\n', '\r', '\0']);
        let Some(wish) = self.spawning.entry(rank).or_default().line(line) else { return Vec::new() };
        self.spawning.remove(&rank);
        match wish {
            // It waits for the answer: no second one is on its way.
            Ok(_) if self.asked.contains_key(&rank) => spawned(rank, Err("it waits for another answer".into())),
            Ok(wish) => {
                self.asked.insert(rank, "spawn_result");
                vec![Reply::Wish(rank, Wish::Spawn(wish))]
            }
            Err(why) => spawned(rank, Err(why)),
        }
    }

    /// The head keeps them, and answers.
    fn name(&mut self, rank: u32, command: &str, said: &BTreeMap<&str, &str>) -> Vec<Reply> {
        let word = |key: &str| said.get(key).map(|word| (*word).to_owned());
        let (result, what) = match (command, word("service"), word("port")) {
            ("publish_name", Some(name), Some(port)) => ("publish_result", Some(Name::Publish { name, port })),
            ("publish_name", ..) => ("publish_result", None),
            ("lookup_name", name, _) => ("lookup_result", name.map(Name::Lookup)),
            (_, name, _) => ("unpublish_result", name.map(Name::Unpublish)),
        };
        match what {
            // It waits for the answer: no second one is on its way.
            Some(what) if !self.asked.contains_key(&rank) => {
                self.asked.insert(rank, result);
                vec![Reply::Wish(rank, Wish::Name(what))]
            }
            _ => vec![Reply::Line(rank, format!("cmd={result} info=notok rc=1 msg=no_such_question\n"))],
        }
    }

    /// What has come of a wish.
    pub fn granted(&mut self, rank: u32, granted: Granted) -> Vec<Reply> {
        let Some(result) = self.asked.remove(&rank) else { return Vec::new() };
        match granted {
            Granted::Named(answer) => vec![Reply::Line(rank, named(result, answer))],
            Granted::Spawned(answer) => spawned(rank, answer),
        }
    }

    fn put(&mut self, key: Option<&&str>, value: Option<&&str>) -> Result<(), &'static str> {
        let (key, value) = (key.ok_or("no_key")?, value.ok_or("no_value")?);
        let sound = |text: &str| !text.contains(|c: char| c.is_control());
        if key.len() > MOST_KEY || value.len() > MOST_VALUE || !sound(key) || !sound(value) {
            return Err("too_long");
        }
        self.keep(key, value)?;
        self.fresh.push(((*key).to_owned(), ByteBuf::from(value.as_bytes())));
        Ok(())
    }

    fn keep(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        if self.bytes + key.len() + value.len() > MOST_SPACE {
            return Err("no_room");
        }
        self.bytes += key.len() + value.len();
        self.space.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn barrier(&mut self) -> Vec<Reply> {
        match self.at_barrier.len() == self.ranks.len() {
            true => vec![Reply::Fence(std::mem::take(&mut self.fresh))],
            false => Vec::new(),
        }
    }

    /// All ranks of the job are at the barrier; what they have said.
    pub fn fenced(&mut self, said: &[Said]) -> Vec<Reply> {
        for (key, value) in said {
            // What finds no room is missing: who asks for it is told.
            let _ = std::str::from_utf8(value).map(|value| self.keep(key, value));
        }
        let out = |rank| Reply::Line(rank, "cmd=barrier_out rc=0\n".into());
        std::mem::take(&mut self.at_barrier).into_iter().map(out).collect()
    }
}

fn named(result: &str, answer: Named) -> String {
    match answer {
        Ok(Some(port)) => format!("cmd={result} info=ok rc=0 msg=success port={port}\n"),
        Ok(None) => format!("cmd={result} info=ok rc=0 msg=success\n"),
        Err(why) => format!("cmd={result} info=notok rc=1 msg={why}\n"),
    }
}

fn spawned(rank: u32, answer: Spawned) -> Vec<Reply> {
    match answer {
        Ok(()) => vec![Reply::Line(rank, "cmd=spawn_result rc=0\n".into())],
        // MPI has only "an error" for it.
        Err(why) => vec![
            Reply::Say(rank, format!("MPI_Comm_spawn: {why}")),
            Reply::Line(rank, "cmd=spawn_result rc=-1 msg=not_started status=-1\n".into()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Group;
    use crate::order::tests::order;
    use crate::spawn::Program;
    use bolero::check;
    use serde_bytes::ByteBuf;

    fn nodes() -> Vec<Share> {
        let share = |node: &str, first, ranks| Share { node: node.into(), first, ranks };
        vec![share("n2", 4, 2), share("n0", 0, 2), share("n1", 2, 2), share("n3", 6, 1)]
    }

    fn server(place: u32) -> Server {
        Server::new(Arc::new(Order { nodes: nodes(), ..order(1, 1, 2, true) }), place)
    }

    #[test]
    fn what_one_puts_all_get_after_the_barrier() {
        let mut servers = [server(2), server(3)];
        let line = |s: &mut Server, rank, text: &str| s.line(rank, text);
        assert!(matches!(&line(&mut servers[0], 2, "cmd=init pmi_version=1 pmi_subversion=1\n")[..],
            [Reply::Line(2, text)] if text.starts_with("cmd=response_to_init")));
        assert!(servers[0].is_inside(2) && !servers[0].is_inside(3));
        let put = "cmd=put kvsname=pando_1 key=P2-card value=description#n1 port$4711$a=b c";
        assert_eq!(line(&mut servers[0], 2, put), [Reply::Line(2, "cmd=put_result rc=0 msg=success\n".into())]);
        assert_eq!(line(&mut servers[0], 2, "cmd=barrier_in\n"), []);
        let Some(Reply::Fence(said)) = line(&mut servers[0], 3, "cmd=barrier_in\n").pop() else { panic!() };
        assert_eq!(line(&mut servers[1], 6, "cmd=barrier_in"), [Reply::Fence(vec![])]);
        assert_eq!(servers[0].fenced(&said).len(), 2);
        assert_eq!(servers[1].fenced(&said), [Reply::Line(6, "cmd=barrier_out rc=0\n".into())]);
        let get = line(&mut servers[1], 6, "cmd=get kvsname=pando_1 key=P2-card\n");
        let value = "cmd=get_result rc=0 msg=success value=description#n1 port$4711$a=b c\n";
        assert_eq!(get, [Reply::Line(6, value.into())]);
        assert_eq!(line(&mut servers[1], 6, "cmd=abort exitcode=3"), [Reply::Abort(6, 3)]);
        line(&mut servers[0], 2, "cmd=finalize");
        assert!(!servers[0].is_inside(2));
    }

    #[test]
    fn names_are_asked_of_the_head_one_at_a_time() {
        let mut server = server(0);
        let text = |replies: Vec<Reply>| match &replies[..] {
            [Reply::Line(4, text)] => text.clone(),
            other => panic!("{other:?}"),
        };
        let publish = Name::Publish { name: "a".into(), port: "tag#0$description#n1$".into() };
        let line = "cmd=publish_name service=a port=tag#0$description#n1$\n";
        assert_eq!(server.line(4, line), [Reply::Wish(4, Wish::Name(publish))]);
        assert!(text(server.line(4, line)).contains("rc=1"));
        let named = |answer| Granted::Named(answer);
        assert_eq!(text(server.granted(4, named(Ok(None)))), "cmd=publish_result info=ok rc=0 msg=success\n");
        assert_eq!(server.granted(4, named(Ok(None))), [], "nobody asked");
        assert_eq!(
            server.line(4, "cmd=lookup_name service=a\n"),
            [Reply::Wish(4, Wish::Name(Name::Lookup("a".into())))]
        );
        let found = server.granted(4, named(Ok(Some("p$".into()))));
        assert_eq!(text(found), "cmd=lookup_result info=ok rc=0 msg=success port=p$\n");
        server.line(4, "cmd=unpublish_name service=a\n");
        let gone = server.granted(4, named(Err("service_a_not_found".into())));
        assert_eq!(text(gone), "cmd=unpublish_result info=notok rc=1 msg=service_a_not_found\n");
        assert!(text(server.line(4, "cmd=lookup_name\n")).starts_with("cmd=lookup_result info=notok rc=1"));
    }

    #[test]
    fn whoever_wants_more_ranks_is_answered_once() {
        let mut server = server(0);
        let ask = |server: &mut Server| {
            let first = ["mcmd=spawn", "nprocs=2", "totspawns=2", "spawnssofar=1", "execname=a", "endcmd"];
            let second = ["mcmd=spawn", "nprocs=1", "totspawns=2", "spawnssofar=2", "execname=b"];
            // What is in them is no command of its own.
            for line in first.into_iter().chain(second).chain(["arg1=x cmd=abort exitcode=0", "cmd=barrier_in"]) {
                assert_eq!(server.line(4, &format!("{line}\n")), []);
            }
            server.line(4, "endcmd\n")
        };
        let said = ask(&mut server);
        assert!(matches!(&said[..], [Reply::Wish(4, Wish::Spawn(wish))] if wish.ranks() == 3), "{said:?}");
        let refused = ask(&mut server);
        assert!(matches!(&refused[..], [Reply::Say(4, _), Reply::Line(4, text)] if text.contains("rc=-1")));
        for _ in 0..2 {
            let done = server.granted(4, Granted::Spawned(Ok(())));
            assert_eq!(done, [Reply::Line(4, "cmd=spawn_result rc=0\n".into())]);
            assert_eq!(server.granted(4, Granted::Spawned(Ok(()))), [], "it was told already");
            ask(&mut server);
        }
        assert_eq!(server.line(4, "cmd=abort exitcode=2\n"), [Reply::Abort(4, 2)]);
    }

    #[test]
    fn ranks_that_were_started_find_what_was_left_for_them() {
        let program = |ranks| Program { ranks, words: vec![ByteBuf::from("a")], ..Program::default() };
        let preput = vec![("PORT".to_owned(), ByteBuf::from("tag#0$ a=b"))];
        let group = Group { of: 1, programs: vec![program(5), program(2)], preput };
        let order = Order { nodes: nodes(), group: Some(group), room: vec![8, 1, 2, 2], ..order(1, 1, 2, true) };
        let mut server = Server::new(Arc::new(order), 0);
        let get = server.line(4, "cmd=get kvsname=x key=PORT\n");
        assert_eq!(get, [Reply::Line(4, "cmd=get_result rc=0 msg=success value=tag#0$ a=b\n".into())]);
        let is = |reply: &[Reply], text: &str| matches!(reply, [Reply::Line(_, line)] if line.contains(text));
        assert!(
            is(&server.line(4, "cmd=get_appnum\n"), "appnum=0") && is(&server.line(5, "cmd=get_appnum\n"), "appnum=1")
        );
        assert!(is(&server.line(4, "cmd=get_universe_size\n"), "size=14"));
        assert!(server.is_inside(5), "somebody waits for it");
        server.line(5, "cmd=init\n");
        server.line(5, "cmd=finalize\n");
        assert!(!server.is_inside(5));
    }

    #[test]
    fn who_is_where_is_told_in_blocks() {
        assert_eq!(mapping(&nodes()), "(vector,(0,3,2),(3,1,1))");
    }

    #[test]
    fn no_line_makes_it_panic() {
        check!().with_type::<Vec<(u32, String)>>().for_each(|lines| {
            let mut server = server(0);
            for (rank, line) in lines {
                let commands = [
                    "",
                    "cmd=put ",
                    "cmd=get key=",
                    "cmd=barrier_in ",
                    "mcmd=spawn ",
                    "endcmd",
                    "cmd=publish_name service=",
                    "cmd=abort exitcode=",
                ];
                for command in commands {
                    server.line(4 + rank % 2, &format!("{command}{line}"));
                }
            }
        });
    }
}
