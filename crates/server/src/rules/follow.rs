//! Rules that a service follows in Postgres, and can change there.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use tollkeeper::Policy;
use tollkeeper::postgres::{self, Opened};

use super::table::RuleTable;
use crate::database::database;

/// The initial rules of a service, and where newer ones come from, if not from its file.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) following: Option<Arc<Following>>,
}

/// The rules of a database, as this instance knows them.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) followed: Arc<postgres::Following>,
    table: RuleTable,
}

impl Following {
    /// The rules in the database.
    pub(crate) fn table(&self) -> &RuleTable {
        &self.table
    }
}

impl Deref for Following {
    type Target = postgres::Following;

    fn deref(&self) -> &postgres::Following {
        &self.followed
    }
}

/// The rules of a database, or of the snapshot where it has none to give.
pub(crate) async fn open(url: &str, snapshot: Option<PathBuf>) -> anyhow::Result<Rules> {
    let database = database(url).map_err(|problem| anyhow::anyhow!("rules_from: {problem}"))?;
    let table = RuleTable::new(database.clone());
    let Opened { policy, following: followed, .. } = postgres::open(database, snapshot).await?;
    Ok(Rules { policy, following: Some(Arc::new(Following { followed, table })) })
}
