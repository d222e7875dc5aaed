//! `pando node`, `init`, `token` and `join`.

use crate::args::{InitOptions, JoinOptions, NodeOptions};
use pando_node::client::Client;
use pando_node::config::Config;
use pando_node::joining;
use pando_node::place::Place;
use pando_node::views::TokenAnswer;
use pando_wire::NodeName;
use std::path::Path;

/// A sentence when it did not work.
pub type Done = Result<(), String>;

fn said(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// The daemon.
pub fn node(options: NodeOptions) -> Done {
    let asked = options.config.is_some();
    let place = Place::find(options.config, options.state, options.socket);
    let mut config = Config::load(&place.config, asked).map_err(said)?;
    config.name = options.name.or(config.name);
    config.listen = options.listen.unwrap_or(config.listen);
    config.advertise = options.advertise.or(config.advertise);
    config.check().map_err(said)?;
    if options.print_config {
        println!("# state {}, socket {}", place.state.display(), place.socket.display());
        print!("{}", config.to_toml());
        return Ok(());
    }
    pando_node::run(place, config).map_err(said)
}

fn name_or_host(name: Option<&str>) -> Result<NodeName, String> {
    name.map_or_else(|| Ok(joining::default_name()), |n| NodeName::parse(n).map_err(said))
}

/// Makes a cluster.
pub fn init(options: InitOptions) -> Done {
    let place = Place::find(None, options.state, None);
    let name = name_or_host(options.name.as_deref())?;
    let cluster = NodeName::parse(&options.cluster).map_err(said)?;
    joining::init(&place, &cluster, &name).map_err(said)?;
    println!("cluster {cluster} made; this is node {name}, its identity is in {}", place.identity().display());
    println!("next: `pando node` here, then `pando token`, and `pando join TOKEN` on each other machine");
    Ok(())
}

/// Prints a token, and nothing else on standard output.
pub fn token(client: &Client, valid_s: Option<u64>) -> Done {
    let request = serde_json::json!({ "valid_s": valid_s });
    let answer: TokenAnswer = client.post("/v1/token", &request).map_err(said)?;
    println!("{}", answer.token);
    eprintln!("pando: works once, for {} s; on the other machine: pando join TOKEN", answer.valid_s);
    Ok(())
}

/// Joins a cluster.
pub fn join(options: JoinOptions) -> Done {
    let asked = options.config.is_some();
    let place = Place::find(options.config, options.state, None);
    let mut config = Config::load(&place.config, asked).map_err(said)?;
    let listen = options.listen.as_ref().map_or(String::new(), |l| format!(" --listen {l}"));
    config.listen = options.listen.unwrap_or(config.listen);
    config.check().map_err(said)?;
    let name = name_or_host(options.name.as_deref().or(config.name.as_deref()))?;
    let word = match options.token.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).map_err(said)?,
        word => word.to_owned(),
    };
    let identity = joining::join(&place, &config, &word, &name).map_err(said)?;
    let next = format!("pando node{}{listen}", hint(&place.state));
    println!("joined cluster {} as node {}; next: `{next}`", identity.cluster, identity.node);
    Ok(())
}

fn hint(state: &Path) -> String {
    let usual = Place::find(None, None, None).state;
    if usual == state { String::new() } else { format!(" --state {}", state.display()) }
}
