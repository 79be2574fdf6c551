//! Every family that the service can have, with its meaning, in display order.

use super::family::{Description, Kind, Unit};

macro_rules! families {
    ($($family:ident $kind:ident $unit:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(pub(crate) static $family: Description = Description {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        };)+

        /// Every family of metrics. Some have samples only in some configurations.
        pub static FAMILIES: &[&Description] = &[$(&$family),+];
    };
}

families! {
    REQUESTS Counter Dimensionless "tollkeeper_requests_total" ["front", "outcome"]
        "Requests, each counted once: allowed, denied, no_rule (allowed, because no rule applies), shed, or error (not decided: a bad request, or the store is unreachable and a rule fails closed).";
    SHED Counter Dimensionless "tollkeeper_shed_total" ["front"]
        "Requests that were neither allowed nor denied, because too many were waiting for a decision.";
    DECISIONS Counter Dimensionless "tollkeeper_decisions_total" ["rule", "outcome", "source"]
        "Decisions of each rule, by outcome and by what answered (source).";
    REMAINING Histogram Dimensionless "tollkeeper_remaining_ratio" ["rule"]
        "The fraction of its limit that a rule had left after a decision.";
    LACKING_ATTRIBUTE Counter Dimensionless "tollkeeper_rule_lacking_attribute_total" ["rule"]
        "Requests that a rule did not apply to because they lack an attribute that the rule needs.";
    CHECK_DURATION Histogram Seconds "tollkeeper_check_duration_seconds" []
        "How long a decision took, for all rules of a request together.";
    STORE_ERRORS Counter Dimensionless "tollkeeper_store_errors_total" []
        "How often the store could not answer.";
    KEYS Gauge Dimensionless "tollkeeper_keys" []
        "Keys in the memory store.";
    OVERFLOW Counter Dimensionless "tollkeeper_overflow_total" ["lacking"]
        "Decisions about new keys that share a bucket, because the memory store had no room for another key or log.";
    STORE_FULL Counter Dimensionless "tollkeeper_store_full_total" []
        "Charges to new keys that Redis had no room for, because it has reached maxmemory.";
    STORE_LOSSES Counter Dimensionless "tollkeeper_store_losses_total" []
        "How often Redis was found to have lost its data: restarted without persistence, emptied, or replaced by an empty replica.";
    BREAKER_STATE Gauge Dimensionless "tollkeeper_breaker_state" []
        "Circuit breaker of the store. 0 closed: calls go out; 1 half-open: probing; 2 open: no calls.";
    BATCH_SIZE Summary Dimensionless "tollkeeper_batch_size" []
        "Requests per call to the store.";
    STORE_DURATION Histogram Seconds "tollkeeper_store_duration_seconds" []
        "How long calls to the store took.";
    LEASED_TOKENS Gauge Dimensionless "tollkeeper_leased_tokens" []
        "Tokens leased from the store that are neither used nor returned yet.";
    INSTANCES Gauge Dimensionless "tollkeeper_instances" []
        "Instances that share the store, by their heartbeats.";
    SHARERS Gauge Dimensionless "tollkeeper_sharers" []
        "Instances that divide a limit among themselves while the store is unreachable, including those that disappeared in the last ten minutes.";
    RULES_LOADED Gauge Dimensionless "tollkeeper_rules_loaded" []
        "Rules in force, including inactive ones.";
    HTTP_REQUESTS Counter Dimensionless "tollkeeper_http_requests_total" ["route", "status"]
        "Responses of the HTTP API.";
    RESP_REQUESTS Counter Dimensionless "tollkeeper_resp_requests_total" ["command", "outcome"]
        "Replies over the Redis protocol.";
    RULES_RELOADS Counter Dimensionless "tollkeeper_rules_reloads_total" ["outcome"]
        "Reloads of the rules file, accepted or refused.";
    CONNECTIONS Gauge Dimensionless "tollkeeper_connections" ["front"]
        "Connections of clients.";
    CONNECTIONS_REFUSED Counter Dimensionless "tollkeeper_connections_refused_total" ["front", "reason"]
        "Connections that were closed: per_address (their address has reached its maximum), plain_text (on a port with TLS), tls_handshake (it failed or took too long), or stream_resets (HTTP/2 streams opened only to be reset).";
    PROXY_WAITING Gauge Dimensionless "tollkeeper_proxy_waiting" []
        "Requests that wait for their turn in the proxy.";
    PROXY_WAIT Histogram Seconds "tollkeeper_proxy_wait_duration_seconds" ["outcome"]
        "How long requests waited in the proxy, by outcome: passed, denied, or gone (the client disconnected).";
    PROXY_QUEUE_FULL Counter Dimensionless "tollkeeper_proxy_queue_full_total" []
        "Requests that were shed or denied because the queue of the proxy was full.";
    UPSTREAM_DURATION Histogram Seconds "tollkeeper_upstream_duration_seconds" []
        "How long the upstream took from the request to the head of its response.";
    UPSTREAM_RESPONSES Counter Dimensionless "tollkeeper_upstream_responses_total" ["class"]
        "Responses of the upstream by status class, 1xx to 5xx.";
    UPSTREAM_ERRORS Counter Dimensionless "tollkeeper_upstream_errors_total" ["reason"]
        "Requests that the upstream did not answer: unreachable, connect_timeout, tls, timeout, or invalid_response.";
    ALERTS Counter Dimensionless "tollkeeper_alerts_total" ["kind", "status"]
        "Alerts that were raised. Each one is in the log too.";
    ALERT_DELIVERIES Counter Dimensionless "tollkeeper_alert_deliveries_total" ["outcome"]
        "Deliveries of alerts to the webhook.";
    SPANS Counter Dimensionless "tollkeeper_spans_total" ["outcome"]
        "Trace spans for the OpenTelemetry collector.";
    WRONG_TOKENS Counter Dimensionless "tollkeeper_wrong_tokens_total" []
        "Requests with an unknown token, and wrong passwords over the Redis protocol.";
    OBSERVATIONS_DROPPED Counter Dimensionless "tollkeeper_observations_dropped_total" []
        "Decisions missing from hot keys and findings because there was no room for them.";
    VIOLATIONS_DROPPED Counter Dimensionless "tollkeeper_violations_dropped_total" []
        "Denials missing from the audit because there was no room for them, or the database refused them.";
    AUDIT_QUEUE Gauge Dimensionless "tollkeeper_audit_queue" []
        "Audit records waiting to be written to the database.";
    RULES_VERSION Gauge Dimensionless "tollkeeper_rules_version" []
        "Version of the rules in force, from the rules database.";
    RULES_REFUSED_VERSION Gauge Dimensionless "tollkeeper_rules_refused_version" []
        "A newer version of the rules that was rejected because of an invalid rule; 0 if there is none.";
    RULES_DATABASE_UP Gauge Dimensionless "tollkeeper_rules_database_up" []
        "1 if the rules database answered last time, 0 if it did not.";
    RULES_ERRORS Counter Dimensionless "tollkeeper_rules_errors_total" ["reason"]
        "How often newer rules could not be read from the database.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn families_are_named_as_prometheus_has_it() {
        let names: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len(), "no name twice");
        for Description { name, kind, unit, labels, help } in FAMILIES {
            assert!(name.starts_with("tollkeeper_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), *unit == Unit::Seconds, "{name}");
            assert!(!labels.contains(&"le") && !labels.contains(&"quantile"), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
    }
}
