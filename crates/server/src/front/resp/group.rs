//! `CL.THROTTLE` commands of a pipeline, decided together on a store in this process: the clock is read once, memory for several
//! buckets is fetched at once, and the counters that all threads share change once.

use std::cell::Cell;

use super::names::position;
use super::request::Word;
use super::session::Session;
use super::shared::Shared;
use super::throttle::{self, Recent};
use crate::metrics::{CommandOutcome, Front};
use crate::service::Each;

thread_local! {
    /// The memory of a group, for the next one.
    static MEMORY: Cell<Each> = Cell::default();
}

/// Commands that were read and not decided yet. No command after them is answered before they are.
#[derive(Debug)]
pub(super) struct Group(Each);

impl Default for Group {
    fn default() -> Group {
        Group(MEMORY.take())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.0);
        // After a panic there may be something left, which is not the next connection's.
        memory.clear();
        MEMORY.set(memory);
    }
}

impl Group {
    /// The index of the command.
    const NAME: usize = 0;

    /// Takes a command if it can be decided here and now; decides when there are enough.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        words: &[Word<'_>],
        output: &mut Vec<u8>,
    ) -> bool {
        let [command, arguments @ ..] = words else { return false };
        let is_possible = shared.decides_here && session.is_known() && !session.is_in_transaction();
        if !is_possible || position(command) != Some(Group::NAME) || shared.service.tracer.is_on() {
            return false;
        }
        // What is wrong with a command is said where all others are understood.
        let Ok(throttle) = shared.quotas.understand(arguments, &mut session.recent) else { return false };
        self.0.charges.push(throttle.into());
        if self.0.charges.len() == Recent::MOST {
            self.decide(shared, session, output);
        }
        true
    }

    /// Decides and counts the commands, and adds their replies.
    pub(super) fn decide(&mut self, shared: &Shared, session: &mut Session, output: &mut Vec<u8>) {
        if self.0.charges.is_empty() {
            return;
        }
        let (protocol, metrics) = (session.protocol, &shared.service.metrics);
        let (mut allowed, mut denied) = (0, 0);
        shared.service.charge_each_now(Front::Resp, &mut self.0, |charge, decided| {
            let decided = decided.as_ref().map(|decision| throttle::as_redis_cell(charge, *decision));
            let (reply, outcome) = throttle::reply(decided);
            match outcome {
                CommandOutcome::Allowed => allowed += 1,
                CommandOutcome::Denied => denied += 1,
                other => metrics.count_command(Group::NAME, other),
            }
            reply.write(protocol, output);
        });
        metrics.count_commands(Group::NAME, CommandOutcome::Allowed, allowed);
        metrics.count_commands(Group::NAME, CommandOutcome::Denied, denied);
        session.recent.keep(self.0.rows.drain(..).map(|row| row.charge));
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::NAMES;
    use super::*;

    #[test]
    fn the_command_is_that_of_groups() {
        assert_eq!(NAMES[Group::NAME], "cl.throttle");
    }
}
