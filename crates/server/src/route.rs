//! Every route of the HTTP API, once: the router, the labels of metrics, the suggestions of a 404 and the paths of
//! `/openapi.json` come from this table.
//!
//! Handlers and descriptions are chosen by an exhaustive `match` on [`Route`], so a route without either does not
//! compile.

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Any client.
    Open,
    /// Any client, unless the admin API is off: the page contains no data.
    Page,
    /// Clients that may ask for decisions; any client by default.
    Decide,
    /// Clients that may see data that identifies no client.
    Measure,
    /// Clients that may see other clients or change something.
    Admin,
}

macro_rules! routes {
    ($($route:ident $access:ident [$($pattern:literal),+];)+) => {
        /// A route of the HTTP API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Route {
            $(#[doc = concat!("`", $($pattern, " "),+, "`")] $route,)+
        }

        impl Route {
            /// All of them.
            pub(crate) const ALL: &[Route] = &[$(Route::$route),+];

            /// The names of all of them.
            pub(crate) const NAMES: &[&str] = &[$(Route::$route.name()),+];

            /// Who may use it.
            pub(crate) const fn access(self) -> Access {
                match self {
                    $(Route::$route => Access::$access,)+
                }
            }

            /// The patterns that the router matches. `{*name}` stands for the rest of the path, slashes included.
            pub(crate) const fn patterns(self) -> &'static [&'static str] {
                match self {
                    $(Route::$route => &[$($pattern),+],)+
                }
            }
        }
    };
}

routes! {
    Index Page ["/"];
    Healthz Open ["/healthz"];
    Metrics Measure ["/metrics"];
    Openapi Measure ["/openapi.json"];
    Readyz Open ["/readyz"];
    Actions Admin ["/v1/actions"];
    Authorize Decide ["/v1/authorize", "/v1/authorize/", "/v1/authorize/{*path}"];
    Check Decide ["/v1/check"];
    Exceptions Admin ["/v1/exceptions"];
    Insight Admin ["/v1/insight"];
    Keys Admin ["/v1/keys"];
    Preview Admin ["/v1/preview"];
    Release Decide ["/v1/release"];
    Settle Decide ["/v1/reservations/{id}/settle"];
    Reserve Decide ["/v1/reserve"];
    Rules Admin ["/v1/rules"];
    RulesHistory Admin ["/v1/rules/history"];
    RulesRollback Admin ["/v1/rules/rollback"];
    Rule Admin ["/v1/rules/{*name}"];
    Violations Admin ["/v1/violations"];
}

impl Route {
    /// The name of the route in metrics, traces and messages: the first of its paths.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            // The router's pattern is not what readers of the documentation know.
            Route::Rule => "/v1/rules/{name}",
            route => route.patterns()[0],
        }
    }

    /// The paths as OpenAPI writes them. A path that only adds a trailing slash is left out.
    pub(crate) fn paths(self) -> impl Iterator<Item = String> {
        let patterns = self.patterns().iter();
        patterns.filter(|pattern| **pattern == "/" || !pattern.ends_with('/')).map(|pattern| pattern.replace("{*", "{"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_route_is_named_by_its_first_path_and_no_two_are_alike() {
        let names: BTreeSet<&str> = Route::ALL.iter().map(|route| route.name()).collect();
        assert_eq!(names.len(), Route::ALL.len());
        for route in Route::ALL {
            assert_eq!(route.paths().next().as_deref(), Some(route.name()));
        }
    }
}
