//! What is done again and again: looking who is lost, telling the core that time passes, ending lives.

use super::{another, cast, find, rail, strobe};
use crate::daemon::Node;
use crate::pace;
use crate::views::Event;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks.
const EACH: Duration = Duration::from_millis(250);

/// Takes part in the fabric until the daemon ends.
pub async fn keep(node: Arc<Node>) {
    cast::start(&node);
    rail::start(&node).await;
    tokio::spawn(find::keep(node.clone()));
    if let Err(e) = strobe::start(node.clone()) {
        tracing::error!("fabric: there is no thread for the strobe: {e}");
    }
    let mut ticks = pace::every(EACH);
    loop {
        ticks.tick().await;
        look(&node);
    }
}

fn look(node: &Arc<Node>) {
    node.fabric.rail().iter().for_each(|rail| rail.look());
    let mut inner = node.fabric.inner();
    let Some(life) = inner.life.as_mut() else { return };
    life.look(node);
    life.probe(node);
    if !life.ended {
        return;
    }
    let epoch = life.core.view().epoch;
    inner.life = None;
    inner.number = another();
    inner.waits = "it was left out, and looks for the others".into();
    drop(inner);
    node.fabric.changed.notify_waiters();
    let text =
        format!("node {} was left out of the fabric (view {epoch}): it comes back with empty memory", node.name());
    node.events.say(Event::new("fabric", text));
}
