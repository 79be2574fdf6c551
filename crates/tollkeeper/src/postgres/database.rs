//! Postgres: connections with deadlines, and our migrations.
//!
//! Connections are opened when needed and dropped at the first error: uses of Postgres here are rare, or keep their
//! own connection. Messages about a database never contain its password.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, SqlSafeStr as _};
use tokio::time::timeout;

use crate::strict::suggestion;

/// The deadline of every operation, connecting included: a hanging server must not block callers.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// How long migrations may take: they may wait for those of another instance.
const MIGRATION_DEADLINE: Duration = Duration::from_secs(60);

/// A migration: its number, its name, and its SQL.
pub type Step = (i64, &'static str, &'static str);

/// The tables of the rules. Never change a migration that was released: add a file.
pub const RULES: Step = (1, "rules", include_str!("../../migrations/0001_rules.sql"));

/// A database, which may not be reachable yet.
#[derive(Clone)]
pub struct Database {
    options: PgConnectOptions,
    address: String,
    /// The migrations, in order.
    steps: &'static [Step],
}

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
// Exhaustive on purpose: it answers, or it does not.
pub enum DatabaseError {
    /// It is unreachable, or does not answer in time. Retrying may help.
    #[error("{0}")]
    Unreachable(String),
    /// It answered with an error.
    #[error("{message} (SQLSTATE {code})")]
    Refused {
        /// The SQLSTATE code, such as `42501`.
        code: String,
        /// Postgres' own message.
        message: String,
    },
}

impl DatabaseError {
    /// The same, with what was being attempted.
    pub fn context(self, what: &str) -> DatabaseError {
        match self {
            DatabaseError::Unreachable(problem) => DatabaseError::Unreachable(format!("{what}: {problem}")),
            DatabaseError::Refused { code, message } => {
                DatabaseError::Refused { code, message: format!("{what}: {message}") }
            }
        }
    }

    fn timed_out(deadline: Duration) -> DatabaseError {
        DatabaseError::Unreachable(format!("no answer within {deadline:?}"))
    }
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> DatabaseError {
        match error {
            sqlx::Error::Database(said) => {
                let code = said.code().map_or_else(|| "unknown".into(), |code| code.into_owned());
                let message = said.message().to_string();
                // It is starting, stopping, or out of connections: it will be back.
                if code.starts_with("57P") || code.starts_with("53") {
                    return DatabaseError::Unreachable(message);
                }
                DatabaseError::Refused { code, message }
            }
            sqlx::Error::Io(error) => DatabaseError::Unreachable(error.to_string()),
            sqlx::Error::Migrate(error) => match *error {
                sqlx::migrate::MigrateError::Execute(error) => error.into(),
                sqlx::migrate::MigrateError::ExecuteMigration(error, _) => error.into(),
                error => DatabaseError::Refused { code: "migration".into(), message: error.to_string() },
            },
            error => DatabaseError::Unreachable(error.to_string()),
        }
    }
}

impl Database {
    /// Parses a URL such as `postgres://tollkeeper@db.internal/limits`, or says what is wrong with it. Does not
    /// connect.
    pub fn new(url: &str) -> Result<Database, String> {
        check_url(url)?;
        let options = PgConnectOptions::from_str(url).map_err(|error| match error {
            sqlx::Error::Configuration(error) => format!("is not a Postgres URL: {error}; {EXAMPLE}"),
            error => format!("is not a Postgres URL: {error}; {EXAMPLE}"),
        })?;
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let address = format!("postgres at {host}/{}", options.get_database().unwrap_or(options.get_username()));
        let name = options.get_application_name().unwrap_or("tollkeeper").to_string();
        // Statements are ours and have a deadline, so they need not be logged.
        Ok(Database { options: options.application_name(&name).disable_statement_logging(), address, steps: &[RULES] })
    }

    /// The same, with more tables than those of the rules.
    #[must_use]
    pub fn with_steps(self, steps: &'static [Step]) -> Database {
        Database { steps, ..self }
    }

    /// Host and database, without user and password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How to connect, for code that keeps its own connections.
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// A new connection, on which no statement outlives the deadline, even if its caller has gone.
    pub async fn connect(&self) -> Result<PgConnection, DatabaseError> {
        let connecting = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            sqlx::raw_sql("set statement_timeout = '5s'; set lock_timeout = '3s'").execute(&mut connection).await?;
            Ok(connection)
        };
        within(DEADLINE, connecting).await.map_err(|error: DatabaseError| error.context(&self.address))
    }

    /// Brings the tables up to date. Any number of instances may start at once: one migrates, the others wait for it.
    /// If the tables are up to date, read access is enough.
    pub async fn migrate(&self) -> Result<(), DatabaseError> {
        let at = |error: DatabaseError| error.context(&format!("{}: making the tables", self.address));
        let looking = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            let is_up_to_date = is_up_to_date(&mut connection, self.steps).await?;
            Ok((connection, is_up_to_date))
        };
        let (mut connection, is_up_to_date) = within(DEADLINE, looking).await.map_err(at)?;
        if is_up_to_date {
            return Ok(());
        }
        // On this connection alone: the lock ends with it, whatever happens.
        let migrating =
            async { migrator(self.steps).run_direct(None, &mut connection, false).await.map_err(sqlx::Error::from) };
        within(MIGRATION_DEADLINE, async { Ok(migrating.await?) }).await.map_err(at)
    }
}

/// The password stays out of logs.
impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

/// Runs an operation with a deadline.
pub async fn within<T, E: From<DatabaseError>>(
    deadline: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(deadline, work).await.unwrap_or_else(|_| Err(DatabaseError::timed_out(deadline).into()))
}

/// Not the migration library's default table: the database's owner may use that for its own migrations.
const MIGRATION_TABLE: &str = "tollkeeper_migration";

fn migrator(steps: &'static [Step]) -> Migrator {
    let migration = |(version, name, sql): &'static Step| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, (*sql).into_sql_str(), false)
    };
    let mut migrator = Migrator::with_migrations(steps.iter().map(migration).collect());
    migrator.dangerous_set_table_name(MIGRATION_TABLE);
    // During a rolling upgrade, old instances meet the tables of new ones.
    migrator.set_ignore_missing(true);
    migrator
}

async fn is_up_to_date(connection: &mut PgConnection, steps: &[Step]) -> Result<bool, sqlx::Error> {
    let table: Option<String> =
        sqlx::query_scalar("select to_regclass($1)::text").bind(MIGRATION_TABLE).fetch_one(&mut *connection).await?;
    if table.is_none() {
        return Ok(false);
    }
    let applied: Vec<i64> =
        sqlx::query_scalar("select version from tollkeeper_migration where success").fetch_all(connection).await?;
    Ok(steps.iter().all(|(version, ..)| applied.contains(version)))
}

const EXAMPLE: &str = "write for example postgres://USER:PASSWORD@HOST:5432/DATABASE";

const PARAMETERS: [&str; 14] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "options[search_path]",
];

/// The library logs unknown parameters with their values, which may be a misspelt password. So such a URL is refused
/// first.
fn check_url(url: &str) -> Result<(), String> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(format!("is not a Postgres URL; {EXAMPLE}"));
    }
    let Some((_, query)) = url.split_once('?') else { return Ok(()) };
    for name in query.split('&').map(|pair| pair.split('=').next().unwrap_or(pair)) {
        if !PARAMETERS.contains(&name) && !name.starts_with("options[") {
            return Err(format!("the parameter `{name}` is not known{}", suggestion(name, &PARAMETERS)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Database;

    #[test]
    fn a_bad_url_is_refused_and_never_repeated() {
        for (url, problem) in [
            ("hunter2", "is not a Postgres URL"),
            ("mysql://u:hunter2@h/d", "is not a Postgres URL"),
            ("postgres://u:hunter2@h:99999/d", "invalid port"),
            ("postgres://u:hunter2@h/d?pasword=hunter2", "`pasword` is not known; did you mean `password`?"),
            ("postgres://u:hunter2@h/d?sslmode=hunter", "is not a Postgres URL"),
        ] {
            let said = Database::new(url).expect_err(url);
            assert!(said.contains(problem) && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn an_address_holds_no_password() {
        let database = Database::new("postgres://me:hunter2@db.internal:5433/limits?sslmode=require").expect("a URL");
        assert_eq!(database.address(), "postgres at db.internal:5433/limits");
        assert_eq!(format!("{database:?}"), "postgres at db.internal:5433/limits");
    }
}
