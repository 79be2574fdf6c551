//! Follows failovers behind Sentinel as they happen.
//!
//! After a planned failover the old primary stays writable for about ten seconds: sentinels demote it only after four of
//! their publish periods. It answers without an error and calls itself a primary, so only a sentinel can tell. Every
//! sentinel is listened to, and asked once a second in case a message was lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use super::breaker::BreakerState;
use super::node::{Node, Work};
use super::sentinel::{Listener, Primary, Sentinels};
use super::server;

const EVERY: Duration = Duration::from_secs(1);

/// Follows the sentinels for as long as the node is in use. A node at a fixed address has none.
pub(super) fn start(node: &Arc<Node>) {
    let Some(sentinels) = node.sentinels() else { return };
    for number in 0..sentinels.count() {
        tokio::spawn(listen(Arc::downgrade(node), Arc::clone(sentinels), number));
    }
    tokio::spawn(verify(Arc::downgrade(node)));
}

async fn listen(node: Weak<Node>, sentinels: Arc<Sentinels>, number: usize) {
    while node.strong_count() > 0 {
        if let Ok(mut listener) = Listener::start(&sentinels, number).await {
            while let Ok(named) = listener.ask().await {
                let Some(node) = node.upgrade() else { return };
                follow(&node, &sentinels, named).await;
                drop(node);
                listener.wait(EVERY).await;
            }
        }
        // Unreachable: the others are listened to as well.
        sleep(EVERY).await;
    }
}

/// A sentinel that knows of a newer failover is followed at once. Any other that names another primary lags behind,
/// or all were configured again: then the others are asked too.
async fn follow(node: &Arc<Node>, sentinels: &Arc<Sentinels>, named: Primary) {
    let Some(current) = node.primary() else { return };
    if named.is_at(&current) {
        return;
    }
    let newest = if named.is_newer_than(&current) {
        named
    } else {
        match sentinels.survey(Some(&current)).await {
            Ok(newest) => newest,
            Err(_) => return,
        }
    };
    if !newest.is_at(&current) {
        node.move_to(newest, &current);
    }
}

/// Checks once a second that the server is still a primary. A demoted one refuses writes, but it can deny without
/// writing, from a state that lags behind.
async fn verify(node: Weak<Node>) {
    loop {
        sleep(EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if node.breaker_state() != BreakerState::Closed {
            continue;
        }
        let mut is_primary = true;
        let mut read = |role| {
            is_primary = server::is_primary(&role);
            Ok(())
        };
        let answered = node.call(Work::Command(&redis::cmd("ROLE")), false, &mut read).await;
        if answered.is_ok() && !is_primary {
            node.renew();
        }
    }
}
