//! Violations as rows of the table.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use tollkeeper::Enforcement;

use super::query::Network;
use super::{DatabaseError, Query, Span, Timestamp, Violation};
use crate::audit::Blocked;

/// Creates the daily partitions that are needed, and drops expired ones.
pub(super) async fn sweep(connection: &mut PgConnection, retention: Span) -> Result<(), DatabaseError> {
    let sweep = "select rate_limit_violation_partitions($1 * interval '1 microsecond')";
    sqlx::query(sweep).bind(retention.as_micros() as f64).execute(&mut *connection).await?;
    let forget = "delete from rate_limit_action where acted_at < now() - $1 * interval '1 microsecond'";
    sqlx::query(forget).bind(retention.as_micros() as f64).execute(connection).await?;
    Ok(())
}

/// Drops the oldest days of a table that is too large; its size then.
pub(super) async fn trim(connection: &mut PgConnection, most_bytes: u64) -> Result<u64, DatabaseError> {
    let most = i64::try_from(most_bytes).unwrap_or(i64::MAX);
    let size: i64 = sqlx::query_scalar("select rate_limit_violation_trim($1)").bind(most).fetch_one(connection).await?;
    Ok(size.try_into().unwrap_or(0))
}

pub(super) async fn transaction_id(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(connection).await
}

/// Whether a transaction whose answer was lost was committed.
pub(super) async fn is_committed(connection: &mut PgConnection, transaction: &str) -> Result<bool, DatabaseError> {
    let status = sqlx::query_scalar("select pg_xact_status($1::xid8)").bind(transaction).fetch_one(connection).await?;
    let status: Option<String> = status;
    match status.as_deref() {
        // The commit may have arrived and still be in progress.
        Some("in progress") => Err(DatabaseError::Unreachable("the last batch is still being written".into())),
        status => Ok(status == Some("committed")),
    }
}

pub(super) async fn insert(connection: &mut PgConnection, violations: &[Violation]) -> Result<(), sqlx::Error> {
    const INSERT: &str = "insert into rate_limit_violation (requested_at, rule, bucket_key, user_id, ip, endpoint, cost,
            tokens_at_time, retry_after, count, shadow, instance, blocked, blocked_until, blocked_by, mode)
        select timestamptz 'epoch' + at_us * interval '1 microsecond', rule, bucket_key, user_id, ip::inet, endpoint, cost,
            tokens_at_time, retry_after_ms * interval '1 millisecond', count, shadow, instance,
            blocked, timestamptz 'epoch' + blocked_until_us * interval '1 microsecond', blocked_by, mode
        from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::int[], $11::bool[], $12::text[], $13::bool[], $14::bigint[], $15::text[],
            $16::text[])
            as row (at_us, rule, bucket_key, user_id, ip, endpoint, cost, tokens_at_time, retry_after_ms, count, shadow, instance,
                blocked, blocked_until_us, blocked_by, mode)";
    let each = || violations.iter();
    let maybe = |text: &Option<String>| text.as_deref().map(storable);
    sqlx::query(INSERT)
        .bind(each().map(|one| one.at.as_micros() as i64).collect::<Vec<_>>())
        .bind(each().map(|one| one.rule.to_string()).collect::<Vec<_>>())
        .bind(each().map(|one| storable(&one.key)).collect::<Vec<_>>())
        .bind(each().map(|one| maybe(&one.user_id)).collect::<Vec<_>>())
        // Callers of the API choose the attribute; a value that is not an address is left out.
        .bind(each().map(|one| one.ip.clone().filter(|ip| ip.parse::<Network>().is_ok())).collect::<Vec<_>>())
        .bind(each().map(|one| maybe(&one.endpoint)).collect::<Vec<_>>())
        .bind(each().map(|one| i64::from(one.cost)).collect::<Vec<_>>())
        .bind(each().map(|one| i64::from(one.remaining)).collect::<Vec<_>>())
        .bind(each().map(|one| one.retry_after_ms.map(|ms| ms as i64)).collect::<Vec<_>>())
        .bind(each().map(|one| i32::try_from(one.count).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(each().map(|one| one.shadow).collect::<Vec<_>>())
        .bind(each().map(|one| one.instance.to_string()).collect::<Vec<_>>())
        .bind(each().map(|one| one.blocked.is_some()).collect::<Vec<_>>())
        .bind(each().map(|one| Some(one.blocked.as_ref()?.until?.as_micros() as i64)).collect::<Vec<_>>())
        .bind(each().map(|one| one.blocked.as_ref().and_then(|blocked| maybe(&blocked.by))).collect::<Vec<_>>())
        .bind(each().map(|one| one.mode.name()).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Postgres does not store text with a zero byte.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// One more than asked for, to know whether there are more.
pub(super) async fn select(connection: &mut PgConnection, query: &Query) -> Result<Vec<Violation>, DatabaseError> {
    const SELECT: &str = "select violation_id, (extract(epoch from requested_at) * 1000000)::bigint as at_us, rule, bucket_key,
            user_id, abbrev(ip) as ip, endpoint, cost, tokens_at_time,
            (extract(epoch from retry_after) * 1000)::bigint as retry_after_ms, count, shadow, coalesce(instance, '') as instance,
            blocked, (extract(epoch from blocked_until) * 1000000)::bigint as blocked_until_us, blocked_by,
            coalesce(mode, case when shadow then 'shadow' else 'enforce' end) as mode
        from rate_limit_violation
        where ($1::text is null or rule = $1)
            and ($2::text[] is null or bucket_key = any($2))
            and ($3::text[] is null or user_id = any($3))
            and ($4::text is null or ip <<= $4::inet or ip >>= $4::inet)
            and ($5::bigint is null or requested_at >= timestamptz 'epoch' + $5 * interval '1 microsecond')
            and ($6::bigint is null or requested_at < timestamptz 'epoch' + $6 * interval '1 microsecond')
            and ($7::bigint is null or (requested_at, violation_id) < (timestamptz 'epoch' + $7 * interval '1 microsecond', $8))
        order by requested_at desc, violation_id desc
        limit $9";
    let spellings = |text: &String| Query::spellings(text).map(|text| storable(&text)).to_vec();
    let micros = |at: Timestamp| at.as_micros() as i64;
    let rows = sqlx::query(SELECT)
        .bind(query.rule.as_deref().map(storable))
        .bind(query.key.as_ref().map(spellings))
        .bind(query.user_id.as_ref().map(spellings))
        .bind(query.ip.map(|network| network.to_string()))
        .bind(query.since.map(micros))
        .bind(query.until.map(micros))
        .bind(query.after.map(|cursor| micros(cursor.at)))
        .bind(query.after.map(|cursor| cursor.id as i64))
        .bind(query.limit as i64 + 1)
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().map(read).collect::<Result<Vec<_>, _>>()?)
}

fn read(row: &PgRow) -> Result<Violation, sqlx::Error> {
    let number = |name: &str| row.try_get::<i64, _>(name);
    let text = |name: &str| row.try_get::<Option<String>, _>(name);
    Ok(Violation {
        id: number("violation_id")? as u64,
        at: Timestamp::from_micros(number("at_us")?.max(0) as u64),
        rule: row.try_get::<String, _>("rule")?.into(),
        key: row.try_get("bucket_key")?,
        user_id: text("user_id")?,
        ip: text("ip")?,
        endpoint: text("endpoint")?,
        cost: number("cost")?.try_into().unwrap_or(u32::MAX),
        remaining: number("tokens_at_time")?.try_into().unwrap_or(0),
        retry_after_ms: row.try_get::<Option<i64>, _>("retry_after_ms")?.map(|ms| ms.max(0) as u64),
        count: row.try_get::<i32, _>("count")?.max(0) as u64,
        shadow: row.try_get("shadow")?,
        mode: mode(row.try_get("mode")?),
        blocked: if row.try_get("blocked")? { Some(blocked(row)?) } else { None },
        instance: row.try_get::<String, _>("instance")?.into(),
    })
}

/// Of a mode that only another version knows, what matters is that it may have denied.
fn mode(name: &str) -> Enforcement {
    Enforcement::ALL.into_iter().find(|mode| mode.name() == name).unwrap_or_default()
}

fn blocked(row: &PgRow) -> Result<Blocked, sqlx::Error> {
    let until = row.try_get::<Option<i64>, _>("blocked_until_us")?;
    let until = until.map(|micros| Timestamp::from_micros(micros.max(0) as u64));
    Ok(Blocked { until, by: row.try_get("blocked_by")? })
}
