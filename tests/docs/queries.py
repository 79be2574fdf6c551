"""A question that each metric answers, and the query for it. Prometheus reads them when the reference is written."""

QUERIES = {
    "tollkeeper_requests_total": (
        "Which share of requests is denied?",
        'sum(rate(tollkeeper_requests_total{outcome="denied"}[5m])) / sum(rate(tollkeeper_requests_total[5m]))',
    ),
    "tollkeeper_shed_total": ("How many requests a second are shed?", "sum by (front) (rate(tollkeeper_shed_total[5m]))"),
    "tollkeeper_decisions_total": (
        "Which rules deny, and how much?",
        'sum by (rule) (rate(tollkeeper_decisions_total{outcome="denied"}[5m]))',
    ),
    "tollkeeper_remaining_ratio": (
        "How close do clients come to a limit? The fraction left after the median decision:",
        "histogram_quantile(0.5, sum by (rule, le) (rate(tollkeeper_remaining_ratio_bucket[10m])))",
    ),
    "tollkeeper_rule_lacking_attribute_total": (
        "Which rules are skipped because requests lack an attribute?",
        "topk(5, sum by (rule) (rate(tollkeeper_rule_lacking_attribute_total[10m])))",
    ),
    "tollkeeper_check_duration_seconds": (
        "How long do 99 % of decisions take at most?",
        "histogram_quantile(0.99, sum by (le) (rate(tollkeeper_check_duration_seconds_bucket[5m])))",
    ),
    "tollkeeper_store_errors_total": ("How often does the store fail?", "sum by (instance) (rate(tollkeeper_store_errors_total[5m]))"),
    "tollkeeper_keys": ("How full is the memory store, with the default of a million keys?", "max by (instance) (tollkeeper_keys) / 1000000"),
    "tollkeeper_overflow_total": (
        "Is the memory store too small? Decisions by shared buckets:",
        "sum by (instance, lacking) (rate(tollkeeper_overflow_total[5m]))",
    ),
    "tollkeeper_store_full_total": ("Is Redis full?", "sum(rate(tollkeeper_store_full_total[5m])) > 0"),
    "tollkeeper_store_losses_total": ("How often did Redis lose its data today?", "max(increase(tollkeeper_store_losses_total[1d]))"),
    "tollkeeper_breaker_state": ("Which instances cannot reach their store?", "tollkeeper_breaker_state > 0"),
    "tollkeeper_batch_size": (
        "How many requests share a call to Redis?",
        "sum(rate(tollkeeper_batch_size_sum[5m])) / sum(rate(tollkeeper_batch_size_count[5m]))",
    ),
    "tollkeeper_store_duration_seconds": (
        "How long do 99 % of the calls to the store take at most?",
        "histogram_quantile(0.99, sum by (instance, le) (rate(tollkeeper_store_duration_seconds_bucket[5m])))",
    ),
    "tollkeeper_leased_tokens": ("How much quota could a crash lose?", "sum(tollkeeper_leased_tokens)"),
    "tollkeeper_instances": ("Do all instances see each other? This should be 1 line:", "count by (value) (count_values(\"value\", tollkeeper_instances))"),
    "tollkeeper_sharers": (
        "How many instances divide a limit while the store is unreachable?",
        "max(tollkeeper_sharers)",
    ),
    "tollkeeper_rules_loaded": ("Do all instances have the same number of rules? 0 if they do:", "max(tollkeeper_rules_loaded) - min(tollkeeper_rules_loaded)"),
    "tollkeeper_http_requests_total": (
        "Which routes answer with server errors?",
        'sum by (route, status) (rate(tollkeeper_http_requests_total{status=~"5.."}[5m]))',
    ),
    "tollkeeper_resp_requests_total": (
        "How many commands of each kind arrive over the Redis protocol?",
        "sum by (command, outcome) (rate(tollkeeper_resp_requests_total[5m]))",
    ),
    "tollkeeper_rules_reloads_total": (
        "Was a change to the rules file rejected?",
        'sum by (instance) (increase(tollkeeper_rules_reloads_total{outcome="refused"}[1h]))',
    ),
    "tollkeeper_connections": ("How many connections are open?", "sum by (front) (tollkeeper_connections)"),
    "tollkeeper_connections_refused_total": (
        "Whose connections are refused, and why?",
        "sum by (front, reason) (rate(tollkeeper_connections_refused_total[5m]))",
    ),
    "tollkeeper_proxy_waiting": ("How long is the queue of the proxy?", "sum by (instance) (tollkeeper_proxy_waiting)"),
    "tollkeeper_proxy_wait_duration_seconds": (
        "How long do requests wait that finally pass?",
        'histogram_quantile(0.95, sum by (le) (rate(tollkeeper_proxy_wait_duration_seconds_bucket{outcome="passed"}[5m])))',
    ),
    "tollkeeper_proxy_queue_full_total": ("Is the queue of the proxy too short?", "sum(rate(tollkeeper_proxy_queue_full_total[5m]))"),
    "tollkeeper_upstream_duration_seconds": (
        "How fast is the upstream?",
        "histogram_quantile(0.99, sum by (le) (rate(tollkeeper_upstream_duration_seconds_bucket[5m])))",
    ),
    "tollkeeper_upstream_responses_total": (
        "Which share of the upstream's responses are errors?",
        'sum(rate(tollkeeper_upstream_responses_total{class="5xx"}[5m])) / sum(rate(tollkeeper_upstream_responses_total[5m]))',
    ),
    "tollkeeper_upstream_errors_total": ("Why does the upstream not answer?", "sum by (reason) (rate(tollkeeper_upstream_errors_total[5m]))"),
    "tollkeeper_alerts_total": ("Which alerts were raised today?", 'sum by (kind) (increase(tollkeeper_alerts_total{status="started"}[1d]))'),
    "tollkeeper_alert_deliveries_total": (
        "Do alerts reach the webhook?",
        "sum by (outcome) (increase(tollkeeper_alert_deliveries_total[1h]))",
    ),
    "tollkeeper_spans_total": ("Which share of the spans is lost?", 'sum(rate(tollkeeper_spans_total{outcome!="exported"}[5m])) / sum(rate(tollkeeper_spans_total[5m]))'),
    "tollkeeper_wrong_tokens_total": ("Is somebody guessing tokens?", "sum by (instance) (rate(tollkeeper_wrong_tokens_total[5m])) > 1"),
    "tollkeeper_observations_dropped_total": ("How complete are hot keys and findings? 0 is complete:", "sum(rate(tollkeeper_observations_dropped_total[5m]))"),
    "tollkeeper_violations_dropped_total": ("How complete is the audit log? 0 is complete:", "sum(increase(tollkeeper_violations_dropped_total[1d]))"),
    "tollkeeper_audit_queue": ("Does the audit database keep up? 20,000 is a full queue:", "max by (instance) (tollkeeper_audit_queue)"),
    "tollkeeper_rules_version": ("Do all instances have the same rules? 0 if they do:", "max(tollkeeper_rules_version) - min(tollkeeper_rules_version)"),
    "tollkeeper_rules_refused_version": ("Which instances refuse the newest rules?", "tollkeeper_rules_refused_version > 0"),
    "tollkeeper_rules_database_up": ("Which instances cannot reach the rules database?", "tollkeeper_rules_database_up == 0"),
    "tollkeeper_rules_errors_total": ("Why could rules not be read?", "sum by (reason) (increase(tollkeeper_rules_errors_total[1h]))"),
}
