//! Actions of operators on single keys: the latest in memory, all of them in a database if there is one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Action, ActionQuery, Sink};
use crate::database::DatabaseError;

/// Actions kept in memory.
const KEEP: usize = 1_000;

/// Keeps actions. Adding one never blocks.
#[derive(Debug)]
pub(crate) struct Actions {
    recent: Mutex<VecDeque<Action>>,
    sink: Option<Arc<Sink>>,
}

impl Actions {
    pub(crate) fn new(sink: Option<Arc<Sink>>) -> Actions {
        Actions { recent: Mutex::default(), sink }
    }

    pub(crate) fn add(&self, action: Action) {
        if let Some(sink) = &self.sink {
            sink.push_action(action.clone());
        }
        let mut recent = self.lock();
        if recent.len() == KEEP {
            recent.pop_front();
        }
        recent.push_back(action);
    }

    /// The actions that match, newest first, and where they were found.
    pub(crate) async fn find(&self, query: &ActionQuery) -> Result<(Vec<Action>, &'static str), DatabaseError> {
        if let Some(sink) = &self.sink {
            return Ok((sink.find_actions(query).await?, "postgres"));
        }
        let recent = self.lock();
        let found = recent.iter().rev().filter(|action| query.matches(action)).take(query.limit);
        Ok((found.cloned().collect(), "memory"))
    }

    /// How many did not fit into the queue, or were refused by the database.
    pub(crate) fn dropped(&self) -> u64 {
        self.sink.as_ref().map_or(0, |sink| sink.dropped_actions())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Action>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Query;
    use super::*;

    #[tokio::test]
    async fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let actions = Actions::new(None);
        for number in 0..KEEP + 5 {
            actions.add(Action::example(&number.to_string()));
        }
        let all = ActionQuery { limit: Query::MAX_LIMIT, ..ActionQuery::default() };
        let (found, source) = actions.find(&all).await.expect("memory answers");
        assert_eq!((found.len(), source), (KEEP, "memory"));
        assert_eq!((found[0].key.as_str(), found[KEEP - 1].key.as_str()), ("1004", "5"));
    }
}
