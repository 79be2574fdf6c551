//! Logs in columns that a `#Fields:` line names: CloudFront's standard logs, and other W3C extended logs.

use std::borrow::Cow;

use crate::entry::Entry;
use crate::field::{Field, Times};
use crate::moment::Moment;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Column {
    Date,
    Time,
    Field(Field),
}

impl Column {
    pub(crate) fn named(name: &str) -> Column {
        Column::Field(match name {
            "date" => return Column::Date,
            "time" => return Column::Time,
            "c-ip" => Field::Ip,
            "cs-username" => Field::User,
            "cs-method" => Field::Method,
            "cs-uri-stem" => Field::Path,
            "cs-uri-query" => Field::Query,
            "x-host-header" | "cs-host" => Field::Host,
            "sc-status" => Field::Status,
            "cs(User-Agent)" => Field::header("user-agent"),
            "cs(Referer)" => Field::header("referer"),
            _ => Field::Ignored,
        })
    }
}

pub(crate) fn read<'l>(
    line: &'l str,
    columns: &[Column],
    times: &mut Times,
    entry: &mut Entry<'l>,
) -> Result<(), String> {
    if columns.is_empty() {
        return Err("no #Fields: line came before it".to_owned());
    }
    let (mut date, mut time) = ("", "");
    let separator = if line.contains('\t') { '\t' } else { ' ' };
    for (column, value) in columns.iter().zip(line.split(separator)) {
        match column {
            Column::Date => date = value,
            Column::Time => time = value,
            Column::Field(field) => {
                field.set(entry, Cow::Borrowed(value), times).map_err(|wanted| format!("{value:?} is not {wanted}"))?
            }
        }
    }
    let moment = Moment::rfc3339(&format!("{date}T{time}Z"), 0)
        .ok_or_else(|| format!("{date:?} and {time:?} are not a date and a time"))?;
    times.precision = times.precision.max(moment.precision);
    entry.set_moment(moment);
    Ok(())
}
