//! The page of `--ui`: a console for a person, as static files in the program.
//!
//! *Guarantees*: it is the same for everybody and contains no secret, so it needs no token. It requests what it shows with the
//! token, which comes in the fragment of its address and so is in no request. The headers let the browser run and load only these
//! files, and show the page in no frame. *Tested by*: `the_page_is_the_same_for_everybody_and_all_else_needs_the_token`,
//! `a_script_of_the_page_makes_no_markup_of_text`, and in a browser `tests/browser/run`.

use crate::response::{ResponseBody, error_reply};
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use orchestrator_wire::error::ErrorCode;

/// What the page may do in the browser. `trusted-types` makes it refuse every way to turn text into markup or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    path: &'static str,
    media_type: &'static str,
    body: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every file of the page.
const ASSETS: [Asset; 9] = [
    Asset {
        path: "/",
        media_type: "text/html; charset=utf-8",
        body: include_str!("../page/index.html"),
    },
    Asset {
        path: "/console.css",
        media_type: "text/css; charset=utf-8",
        body: include_str!("../page/console.css"),
    },
    Asset {
        path: "/icon.svg",
        media_type: "image/svg+xml",
        body: include_str!("../page/icon.svg"),
    },
    script("/console.js", include_str!("../page/console.js")),
    script("/connection.js", include_str!("../page/connection.js")),
    script("/elements.js", include_str!("../page/elements.js")),
    script("/conversation.js", include_str!("../page/conversation.js")),
    script("/approvals.js", include_str!("../page/approvals.js")),
    script("/panels.js", include_str!("../page/panels.js")),
];

const fn script(path: &'static str, body: &'static str) -> Asset {
    Asset {
        path,
        media_type: SCRIPT,
        body,
    }
}

/// The file of the page with this path.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// The response to a request for a file of the page.
pub(crate) fn reply(method: &Method, asset: &'static Asset) -> Response<ResponseBody> {
    if method != Method::GET {
        let mut response = error_reply(
            StatusCode::METHOD_NOT_ALLOWED,
            ErrorCode::MethodNotAllowed,
            "only GET",
        );
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    let body = Bytes::from_static(asset.body.as_bytes());
    let mut response = Response::new(ResponseBody::Whole(Some(body)));
    for (name, value) in [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the program has another page.
        (header::CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways for a script to turn text into markup, code or an address.
    const MARKUP: [&str; 15] = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "setHTML",
        "document.write",
        "DOMParser",
        "createContextualFragment",
        "srcdoc",
        "eval(",
        "Function(",
        "setTimeout(\"",
        "javascript:",
        "import(",
        "localStorage",
        "sessionStorage",
    ];

    fn makes_markup(script: &str) -> Option<&'static str> {
        MARKUP.into_iter().find(|way| script.contains(way))
    }

    #[test]
    fn a_script_of_the_page_makes_no_markup_of_text() {
        let scripts: Vec<_> = ASSETS
            .iter()
            .filter(|asset| asset.media_type == SCRIPT)
            .collect();
        assert_eq!(scripts.len(), 6);
        for asset in scripts {
            assert_eq!(makes_markup(asset.body), None, "{}", asset.path);
        }
        assert_eq!(
            makes_markup("node.innerHTML = text"),
            Some("innerHTML"),
            "the check can fail"
        );
    }

    #[test]
    fn the_page_has_no_script_style_or_handler_of_its_own() {
        let page = asset("/").unwrap().body;
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains(r#"<script type="module" src="/console.js"></script>"#));
        for inline in [
            "<style", "style=", " onclick", " onload", " onerror", "http:", "https:",
        ] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn every_file_that_the_page_names_is_there() {
        let page = asset("/").unwrap().body;
        let named = page
            .split('"')
            .filter(|part| part.starts_with('/') && part.len() > 1);
        let imported = ASSETS
            .iter()
            .flat_map(|asset| asset.body.split("from \".").skip(1));
        let imported = imported.filter_map(|rest| rest.split('"').next());
        let mut count = 0;
        for path in named.chain(imported).filter(|path| path.starts_with('/')) {
            assert!(asset(path).is_some(), "{path}");
            count += 1;
        }
        assert!(count > 6, "{count}");
        assert!(asset("/../Cargo.toml").is_none() && asset("//").is_none() && asset("").is_none());
    }

    #[test]
    fn only_get_is_answered() {
        let page = asset("/").unwrap();
        assert_eq!(reply(&Method::GET, page).status(), StatusCode::OK);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(
                reply(&method, page).status(),
                StatusCode::METHOD_NOT_ALLOWED
            );
        }
    }
}
