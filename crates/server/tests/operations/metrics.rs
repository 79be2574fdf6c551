//! The metrics page, compared with the catalog from which its reference is generated.

use tollkeeper_server::metrics::FAMILIES;
use tollkeeper_testkit::Service;

/// These need rules from Postgres.
const WITH_A_RULES_DATABASE: [&str; 4] = [
    "tollkeeper_rules_version",
    "tollkeeper_rules_refused_version",
    "tollkeeper_rules_database_up",
    "tollkeeper_rules_errors_total",
];

/// These are the proxy's.
const OF_THE_PROXY: [&str; 2] = ["tollkeeper_proxy_", "tollkeeper_upstream_"];

#[test]
fn the_page_shows_the_families_of_the_catalog_in_its_order_and_nothing_else() {
    let service = Service::on("rules: [{ name: a, key: '{user}', limit: 2/h }]", &[]);
    let page = service.get("/metrics");
    let described: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).collect();
    let expected: Vec<String> = FAMILIES
        .iter()
        .filter(|family| !WITH_A_RULES_DATABASE.contains(&family.name))
        .filter(|family| !OF_THE_PROXY.iter().any(|prefix| family.name.starts_with(prefix)))
        .flat_map(|family| {
            let (name, kind) = (family.name, family.kind.name());
            [format!("# HELP {name} {}", family.help), format!("# TYPE {name} {kind}")]
        })
        .collect();
    assert_eq!(described, expected);
}
