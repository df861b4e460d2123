//! Which operation of a service a request is for, as far as it says so in a form that these are known by.

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::http::request::Parts;
use orchestrator_http::percent;

/// Names the operation, as `INTERFACE.OPERATION`.
const TARGET: &str = "x-amz-target";
/// The parameter that does, of a query or a form.
const ACTION: &str = "action";
/// Services whose operations stand in forms alone.
const OF_FORMS: [&str; 2] = ["iam", "sts"];
/// The mark before a text in UTF-8, which some servers pass over.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// Types of bodies that are no forms.
const JSON: [&str; 2] = ["application/x-amz-json-1.0", "application/x-amz-json-1.1"];
/// The keys of the query by which S3 knows what a `POST` is.
const POSTS: [&str; 5] = ["delete", "restore", "select", "uploadid", "uploads"];
/// Values of `x-amz-acl` that give nobody else a right.
const PRIVATE: [&str; 2] = ["private", "bucket-owner-full-control"];

/// Whether a service is one of S3: its operations stand in method, path and query, a body has a statement about itself, and paths are
/// encoded once.
pub fn is_s3(service: &str) -> bool {
    matches!(
        service,
        "s3" | "s3express" | "s3-outposts" | "s3-object-lambda"
    )
}

/// The operations that a request may be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    pub names: Vec<String>,
    /// Whether all servers find these in it.
    pub is_known: bool,
}

impl Operations {
    /// Finds those of a request to `host` with this body, or as much of it as was read.
    pub fn of(service: &str, (host, head): (&str, &Parts), body: &[u8]) -> Self {
        match is_s3(service) {
            true => Self::of_objects(head, body),
            false => Self::named((service, host), head, body),
        }
    }

    /// Of S3: the keys of the query, `acl` where headers give others rights, and `form` for a `POST` that is none of S3's, and for what looks
    /// like none: where keys are made at the same place (Ceph, MinIO), it may be a request for one.
    fn of_objects(head: &Parts, body: &[u8]) -> Self {
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let mut names: Vec<String> = pairs(query).map(|(name, _)| name).collect();
        let gives = |name: &str, value: &str| {
            let name = header_name(name);
            name == "x-amz-acl" && !PRIVATE.contains(&value)
                || name == "x-amz-object-ownership" && value != "BucketOwnerEnforced"
                || name.starts_with("x-amz-grant-")
        };
        let mut headers = head.headers.iter();
        // In a signed address the query has what headers have.
        if headers.any(|(name, value)| gives(name.as_str(), value.to_str().unwrap_or_default()))
            || pairs(query).any(|(name, value)| gives(&name, &value))
        {
            names.push("acl".into());
        }
        let is_posts = |name: &String| POSTS.contains(&&*name.to_ascii_lowercase());
        let types = head.headers.get_all(CONTENT_TYPE).iter();
        let mut types = types.map(|value| value.as_bytes().to_ascii_lowercase());
        let is_form = types.any(|media| memchr::memmem::find(&media, b"form").is_some())
            || pairs(body).any(|(name, _)| name.eq_ignore_ascii_case(ACTION));
        let mut headers = head.headers.keys();
        let has_target = headers.any(|name| header_name(name.as_str()) == TARGET);
        if has_target || head.method == Method::POST && (is_form || !names.iter().any(is_posts)) {
            names.push("form".into());
        }
        Self {
            names,
            is_known: true,
        }
    }

    fn named((service, host): (&str, &str), head: &Parts, body: &[u8]) -> Self {
        let of_pairs = |text: &[u8]| -> Vec<String> {
            let pairs = pairs(text).filter(|(name, _)| name.eq_ignore_ascii_case(ACTION));
            pairs.map(|(_, value)| value).collect()
        };
        let headers = head.headers.iter();
        let targets = headers.filter(|(name, _)| header_name(name.as_str()) == TARGET);
        let targets: Vec<Option<String>> = targets
            .map(|(_, value)| target(value.to_str().unwrap_or_default()))
            .collect();
        let are_plain = targets.iter().all(Option::is_some) && !body.starts_with(MARK);
        // Others read a form in a body whatever is said of its type, and those of AWS know their services' own.
        let has_json = is_of_aws(host) && !OF_FORMS.contains(&service);
        let is_json = has_json && targets.len() == 1 && is_json(&head.headers);
        let targets: Vec<String> = targets.into_iter().flatten().collect();
        let mut names = [
            targets,
            of_pairs(head.uri.query().unwrap_or_default().as_bytes()),
            of_path(head.uri.path()),
        ]
        .concat();
        if !is_json {
            names.extend(of_pairs(body));
        }
        // Some servers end a name where another byte stands.
        let is_known = are_plain && matches!(&names[..], [name] if is_word(name));
        Self { names, is_known }
    }
}

/// The operation that a target names, if all servers find the same in it.
fn target(text: &str) -> Option<String> {
    let (interface, operation) = match text.strip_prefix("com.amazonaws.") {
        // `com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101.LookupEvents`
        Some(rest) => rest.rsplit_once('.')?,
        None => text.split_once('.')?,
    };
    let is_plain = interface
        .split('.')
        .all(|part| part.is_empty() || is_word(part));
    (is_plain && is_word(operation)).then(|| operation.to_owned())
}

fn is_word(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(plain)
}

fn is_of_aws(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"]
        .iter()
        .any(|end| host.ends_with(end))
}

/// Of Smithy's protocols, whose paths are `/service/NAME/operation/NAME`.
fn of_path(path: &str) -> Vec<String> {
    let path = percent::decoded(path.as_bytes());
    let path = String::from_utf8_lossy(&path);
    let lower = path.to_ascii_lowercase();
    // Some servers pass over what stands behind the name.
    let name = |(at, before): (usize, &str)| {
        let rest = &path[at + before.len()..];
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next();
        name.unwrap_or_default().to_owned()
    };
    lower.match_indices("/operation/").map(name).collect()
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(one), None) = (types.next(), types.next()) else {
        return false;
    };
    one.to_str().is_ok_and(|one| JSON.contains(&one.trim()))
}

/// The name of a header as all servers read it: some take `_` for `-`.
pub(crate) fn header_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// The decoded parameters of a query or a form, however they are separated.
pub(crate) fn pairs(text: &[u8]) -> impl Iterator<Item = (String, String)> {
    let pairs = text.split(|byte| b"&;".contains(byte));
    pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        (part(parts.next()), part(parts.next()))
    })
}

fn part(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default().iter();
    let spaced: Vec<u8> = bytes
        .map(|&byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    let decoded = percent::decoded(&spaced);
    String::from_utf8_lossy(&decoded).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn of(service: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> Operations {
        let host = format!("{service}.eu-west-1.amazonaws.com");
        at(&host, service, (uri, headers), body)
    }

    fn at(
        host: &str,
        service: &str,
        (uri, headers): (&str, &[(&str, &str)]),
        body: &str,
    ) -> Operations {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let head = request.body(()).unwrap().into_parts().0;
        Operations::of(service, (host, &head), body.as_bytes())
    }

    fn known(operations: &Operations) -> Option<&str> {
        let first = operations.names.first().map(String::as_str);
        first.filter(|_| operations.is_known)
    }

    #[test]
    fn an_operation_that_is_named_once_is_known() {
        let target = ("x-amz-target", "DynamoDB_20120810.GetItem");
        let json = ("content-type", "application/x-amz-json-1.0");
        let form = ("content-type", "application/x-www-form-urlencoded");
        let identity = "Action=GetCallerIdentity&Version=2011-06-15";
        for (uri, headers, body, want) in [
            ("/", vec![form], identity, Some("GetCallerIdentity")),
            ("/?Action=ListUsers", vec![], "", Some("ListUsers")),
            ("/", vec![form], "%41ction=Get+", Some("Get")),
            (
                "/",
                vec![target, json],
                "{\"a\": \"&Action=x\"}",
                Some("GetItem"),
            ),
            ("/service/S/operation/Put", vec![], "", Some("Put")),
            ("/service/S/operation/Put/", vec![], "", Some("Put")),
            ("/service/S/operation/Put;x/y%20", vec![], "", Some("Put")),
            ("/service/S/operation/Put%20", vec![], "", Some("Put")),
            // Named twice, or in a place that only some servers read.
            ("/", vec![target, form], "&Action=x", None),
            ("/", vec![target, target, json], "", None),
            (
                "/?Action=GetCallerIdentity",
                vec![form],
                "Action=AssumeRole",
                None,
            ),
            (
                "/",
                vec![form],
                "Action=GetCallerIdentity;action=AssumeRole",
                None,
            ),
            ("/", vec![form], "Version=1", None),
            ("/", vec![form], "Action=", None),
            ("/", vec![form], "Action=AssumeRole%00", None),
            ("/", vec![json], "{}", None),
            (
                "/",
                vec![form],
                "\u{feff}Action=AssumeRole&Action=Get",
                None,
            ),
        ] {
            let operations = of("dynamodb", uri, &headers, body);
            assert_eq!(known(&operations), want, "{uri} {body}");
        }
    }

    #[test]
    fn a_form_is_one_whatever_is_said_of_its_type() {
        let target = ("x-amz-target", "X.GetCallerIdentity");
        let json = ("content-type", "application/x-amz-json-1.1");
        let assume = "Action=AssumeRole&Version=2011-06-15";
        for (host, service, want) in [
            ("dynamodb.eu-west-1.amazonaws.com", "dynamodb", true),
            ("DynamoDB.Eu-West-1.AmazonAWS.com", "dynamodb", true),
            ("sts.amazonaws.com", "sts", false),
            ("iam.amazonaws.com", "iam", false),
            ("ceph.example", "dynamodb", false),
            ("amazonaws.com.example", "dynamodb", false),
        ] {
            let operations = at(host, service, ("/", &[target, json]), assume);
            assert_eq!(operations.is_known, want, "{host} {service}");
            let operations = at(host, service, ("/", &[target, json]), "{}");
            assert_eq!(known(&operations), Some("GetCallerIdentity"), "{host}");
        }
    }

    #[test]
    fn a_target_is_known_if_all_servers_read_it_alike() {
        let json = ("content-type", "application/x-amz-json-1.1");
        let trail = "com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101.LookupEvents";
        for (name, value, want) in [
            ("x-amz-target", "DynamoDB_20120810.GetItem", Some("GetItem")),
            ("x-amz-target", trail, Some("LookupEvents")),
            ("x-amz-target", "DynamoDB_20120810#PutResourcePolicy", None),
            ("x-amz-target", "DynamoDB_20120810/PutResourcePolicy", None),
            ("x-amz-target", "D.PutResourcePolicy.GetItem", None),
            ("x-amz-target", "PutResourcePolicy", None),
            ("x-amz-target", "D.", None),
            ("x_amz_target", "D.GetItem", Some("GetItem")),
        ] {
            let operations = of("dynamodb", "/", &[(name, value), json], "{}");
            assert_eq!(known(&operations), want, "{name} {value}");
        }
        let both = [
            ("x-amz-target", "D.GetItem"),
            ("x_amz_target", "D.Put"),
            json,
        ];
        assert_eq!(known(&of("dynamodb", "/", &both, "{}")), None);
    }

    #[test]
    fn a_post_that_is_none_of_s3_is_a_form() {
        const XML: &str = "<Delete><Object><Key>a</Key></Object></Delete>";
        let form = ("content-type", "application/x-www-form-urlencoded");
        for (uri, headers, body, want) in [
            ("/", &[][..], "", vec!["form"]),
            ("/?x", &[], "", vec!["x", "form"]),
            ("/?delete", &[], "<Delete/>", vec!["delete"]),
            ("/b/k?uploadId=1", &[], XML, vec!["uploadId"]),
            ("/?delete", &[form], "", vec!["delete", "form"]),
            (
                "/?delete",
                &[("x-amz-target", "I.CreateUser")],
                "",
                vec!["delete", "form"],
            ),
            (
                "/?uploads",
                &[],
                "Action=AssumeRole",
                vec!["uploads", "form"],
            ),
            ("/?uploads", &[], "a=1&%41ction=x", vec!["uploads", "form"]),
        ] {
            assert_eq!(of("s3", uri, headers, body).names, want, "{uri} {body}");
        }
    }

    #[test]
    fn operations_of_s3_are_in_the_query_and_rights_in_headers() {
        for (uri, headers, want) in [
            ("/b?policy&delete", vec![], vec!["policy", "delete"]),
            ("/b?%70olicy=&delete=y", vec![], vec!["policy", "delete"]),
            (
                "/b/k?delete",
                vec![("x-amz-acl", "private")],
                vec!["delete"],
            ),
            (
                "/b/k?delete",
                vec![("x-amz-acl", "public-read")],
                vec!["delete", "acl"],
            ),
            (
                "/b/k?delete",
                vec![("x-amz-object-ownership", "ObjectWriter")],
                vec!["delete", "acl"],
            ),
            (
                "/b/k?delete",
                vec![("x_amz_acl", "public-read")],
                vec!["delete", "acl"],
            ),
            (
                "/b/k?delete",
                vec![("x-amz-grant-read", "uri=x")],
                vec!["delete", "acl"],
            ),
            (
                "/b?delete&X-Amz-Acl=public-read",
                vec![],
                vec!["delete", "X-Amz-Acl", "acl"],
            ),
            (
                "/b?delete&x-amz-acl=private",
                vec![],
                vec!["delete", "x-amz-acl"],
            ),
            (
                "/b?delete&x_amz-grant-read=x",
                vec![],
                vec!["delete", "x_amz-grant-read", "acl"],
            ),
        ] {
            let operations = of("s3", uri, &headers, "");
            assert_eq!(operations.names, want, "{uri}");
            assert!(operations.is_known);
        }
        for (service, want) in [
            ("s3", true),
            ("s3-outposts", true),
            ("s3express", true),
            ("s3tables", false),
            ("sts", false),
        ] {
            assert_eq!(is_s3(service), want, "{service}");
        }
    }
}
