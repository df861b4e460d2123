//! The paths, with their methods: once, for the answers, the descriptions and the log.

/// The wish of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiEndpoint {
    Health,
    Models,
    Tools,
    Conversations,
    Conversation,
    Settings,
    ChangeSettings,
    ValidateKey,
    Run,
    RunStream,
    RunStatus,
    CancelRun,
    ApproveRun,
    OpenApi,
    AsyncApi,
    WebSocket,
    Mcp,
}

/// `{id}` stands for any one part of a path.
pub(crate) const API_ENDPOINTS: [(&str, &str, ApiEndpoint); 19] = [
    ("GET", "/health", ApiEndpoint::Health),
    ("GET", "/models", ApiEndpoint::Models),
    ("GET", "/tools", ApiEndpoint::Tools),
    ("GET", "/conversations", ApiEndpoint::Conversations),
    ("GET", "/conversations/{id}", ApiEndpoint::Conversation),
    ("GET", "/settings", ApiEndpoint::Settings),
    ("PUT", "/settings", ApiEndpoint::ChangeSettings),
    ("POST", "/keys/validate", ApiEndpoint::ValidateKey),
    ("POST", "/run", ApiEndpoint::Run),
    ("POST", "/run/stream", ApiEndpoint::RunStream),
    ("GET", "/runs/{id}/status", ApiEndpoint::RunStatus),
    ("POST", "/runs/{id}/cancel", ApiEndpoint::CancelRun),
    ("POST", "/runs/{id}/approve", ApiEndpoint::ApproveRun),
    ("GET", "/openapi.json", ApiEndpoint::OpenApi),
    ("GET", "/asyncapi.json", ApiEndpoint::AsyncApi),
    ("GET", "/ws", ApiEndpoint::WebSocket),
    ("GET", "/mcp", ApiEndpoint::Mcp),
    ("POST", "/mcp", ApiEndpoint::Mcp),
    ("DELETE", "/mcp", ApiEndpoint::Mcp),
];

/// The answer to a path and a method.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RouteMatch<'p> {
    Endpoint {
        endpoint: ApiEndpoint,
        /// The part of the path that is an ID, if it has one.
        id: Option<&'p str>,
    },
    /// The path exists, but only with these methods, as the header `Allow` has them.
    OnlyMethods(String),
    Nowhere,
}

/// Where a request with this method leads. A slash at the end of the path makes no difference.
pub(crate) fn find<'p>(method: &str, path: &'p str) -> RouteMatch<'p> {
    let mut methods = Vec::new();
    for (allowed, pattern, endpoint) in API_ENDPOINTS {
        let Some(id) = matched(pattern, path) else {
            continue;
        };
        if allowed == method {
            return RouteMatch::Endpoint { endpoint, id };
        }
        methods.push(allowed);
    }
    match methods.is_empty() {
        true => RouteMatch::Nowhere,
        false => RouteMatch::OnlyMethods(methods.join(", ")),
    }
}

/// The pattern of a path, with `*` in place of its ID, for the log; `None` if it does not exist.
pub(crate) fn pattern(path: &str) -> Option<String> {
    let known = API_ENDPOINTS
        .iter()
        .find(|(_, pattern, _)| matched(pattern, path).is_some());
    known.map(|(_, pattern, _)| pattern.replace("{id}", "*"))
}

/// The ID in `path`, if it has the form of `pattern`.
fn matched<'p>(pattern: &str, path: &'p str) -> Option<Option<&'p str>> {
    let mut id = None;
    let mut given = path.trim_end_matches('/').split('/');
    for part in pattern.split('/') {
        match (part, given.next()?) {
            ("{id}", part) => id = Some(part),
            (part, same) if part == same => {}
            (_, _) => return None,
        }
    }
    given.next().is_none().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_leads_to_its_endpoint_and_another_method_to_the_list_of_methods() {
        let to = |endpoint, id| RouteMatch::Endpoint { endpoint, id };
        for (method, path, want) in [
            ("GET", "/health", to(ApiEndpoint::Health, None)),
            ("GET", "/health/", to(ApiEndpoint::Health, None)),
            (
                "GET",
                "/runs/r-1/status",
                to(ApiEndpoint::RunStatus, Some("r-1")),
            ),
            (
                "GET",
                "/conversations/c",
                to(ApiEndpoint::Conversation, Some("c")),
            ),
            ("DELETE", "/mcp", to(ApiEndpoint::Mcp, None)),
            ("HEAD", "/health", RouteMatch::OnlyMethods("GET".to_owned())),
            (
                "POST",
                "/settings",
                RouteMatch::OnlyMethods("GET, PUT".to_owned()),
            ),
            (
                "PUT",
                "/mcp",
                RouteMatch::OnlyMethods("GET, POST, DELETE".to_owned()),
            ),
            ("GET", "/", RouteMatch::Nowhere),
            ("GET", "", RouteMatch::Nowhere),
            ("GET", "/healthy", RouteMatch::Nowhere),
            ("GET", "/health/x", RouteMatch::Nowhere),
            ("GET", "//health", RouteMatch::Nowhere),
            ("GET", "/runs/a/b/status", RouteMatch::Nowhere),
            ("GET", "/runs/status", RouteMatch::Nowhere),
        ] {
            assert_eq!(find(method, path), want, "{method} {path}");
        }
        assert_eq!(
            pattern("/runs/r-1/cancel").as_deref(),
            Some("/runs/*/cancel")
        );
        assert_eq!(pattern("/other"), None);
    }

    #[test]
    fn each_path_is_in_the_readme() {
        let page = include_str!("../README.md");
        for (_, path, _) in API_ENDPOINTS {
            let path = path.replace("{id}", "ID");
            assert!(page.contains(&path), "{path} is not in the README");
        }
    }
}
