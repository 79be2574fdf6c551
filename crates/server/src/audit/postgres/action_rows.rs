//! Actions as rows of their table.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::rows::storable;
use super::{Action, ActionKind, ActionQuery, DatabaseError, Query, Timestamp};

pub(super) async fn insert(connection: &mut PgConnection, actions: &[Action]) -> Result<(), sqlx::Error> {
    const INSERT: &str =
        "insert into rate_limit_action (acted_at, action, rule, bucket_key, granted_limit, ends_at, reason,
            acted_by, instance, key_by)
        select timestamptz 'epoch' + at_us * interval '1 microsecond', action, rule, bucket_key, granted_limit,
            timestamptz 'epoch' + until_us * interval '1 microsecond', reason, acted_by, instance, key_by
        from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
            $9::text[], $10::text[])
            as row (at_us, action, rule, bucket_key, granted_limit, until_us, reason, acted_by, instance, key_by)";
    let each = || actions.iter();
    let maybe = |text: &Option<String>| text.as_deref().map(storable);
    sqlx::query(INSERT)
        .bind(each().map(|one| one.at.as_micros() as i64).collect::<Vec<_>>())
        .bind(each().map(|one| one.action.name()).collect::<Vec<_>>())
        .bind(each().map(|one| storable(&one.rule)).collect::<Vec<_>>())
        .bind(each().map(|one| storable(&one.key)).collect::<Vec<_>>())
        .bind(each().map(|one| maybe(&one.limit)).collect::<Vec<_>>())
        .bind(each().map(|one| one.until.map(|until| until.as_micros() as i64)).collect::<Vec<_>>())
        .bind(each().map(|one| maybe(&one.reason)).collect::<Vec<_>>())
        .bind(each().map(|one| storable(&one.by)).collect::<Vec<_>>())
        .bind(each().map(|one| one.instance.to_string()).collect::<Vec<_>>())
        .bind(each().map(|one| maybe(&one.key_by)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn select(connection: &mut PgConnection, query: &ActionQuery) -> Result<Vec<Action>, DatabaseError> {
    const SELECT: &str = "select (extract(epoch from acted_at) * 1000000)::bigint as at_us, action, rule, bucket_key,
            granted_limit, (extract(epoch from ends_at) * 1000000)::bigint as until_us, reason, acted_by,
            coalesce(instance, '') as instance, key_by
        from rate_limit_action
        where ($1::text is null or action = $1)
            and ($2::text is null or rule = $2)
            and ($3::text[] is null or bucket_key = any($3))
            and ($4::bigint is null or acted_at >= timestamptz 'epoch' + $4 * interval '1 microsecond')
            and ($5::bigint is null or acted_at < timestamptz 'epoch' + $5 * interval '1 microsecond')
        order by acted_at desc, action_id desc
        limit $6";
    let micros = |at: Timestamp| at.as_micros() as i64;
    let spellings = |text: &String| Query::spellings(text).map(|text| storable(&text)).to_vec();
    let rows = sqlx::query(SELECT)
        .bind(query.action.map(ActionKind::name))
        .bind(query.rule.as_deref().map(storable))
        .bind(query.key.as_ref().map(spellings))
        .bind(query.since.map(micros))
        .bind(query.until.map(micros))
        .bind(query.limit as i64)
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().map(read).collect::<Result<Vec<_>, _>>()?)
}

fn read(row: &PgRow) -> Result<Action, sqlx::Error> {
    let time = |micros: i64| Timestamp::from_micros(micros.max(0) as u64);
    let name: String = row.try_get("action")?;
    let unknown = || sqlx::Error::Decode(format!("rate_limit_action holds {name:?}, which is newer than this").into());
    Ok(Action {
        at: time(row.try_get("at_us")?),
        action: ActionKind::named(&name).ok_or_else(unknown)?,
        rule: row.try_get("rule")?,
        key: row.try_get("bucket_key")?,
        key_by: row.try_get("key_by")?,
        limit: row.try_get("granted_limit")?,
        until: row.try_get::<Option<i64>, _>("until_us")?.map(time),
        reason: row.try_get("reason")?,
        by: row.try_get("acted_by")?,
        instance: row.try_get::<String, _>("instance")?.into(),
    })
}
