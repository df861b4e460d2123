//! The object that a request for S3 copies into its own: the service reads it by the same key, in whichever bucket it lies.

use crate::operations::{header_name, pairs};
use hyper::header::{HeaderMap, HeaderName};
use hyper::http::request::Parts;

/// The header that names an object to copy ("CopyObject").
const SOURCE: &str = "x-amz-copy-source";
/// The header that names one to move ("RenameObject").
const RENAMED: &str = "x-amz-rename-source";

/// An object that a request copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopySource {
    /// Of the bucket of the request: the path by which a `GET` at the same host would read it.
    SameBucket(String),
    /// Of another bucket, or nobody knows of which.
    Elsewhere,
}

/// The object that a request to the host `place` copies; `None` if it copies none.
pub fn copy_source(place: &str, head: &Parts) -> Option<CopySource> {
    let copied: Vec<_> = values(&head.headers, SOURCE).collect();
    // In a signed address the query has what headers have; whoever signs by headers has no reason for it.
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let mut named = pairs(query).map(|(name, _)| header_name(&name));
    if named.any(|name| [SOURCE, RENAMED].contains(&&*name)) {
        return Some(CopySource::Elsewhere);
    }
    if copied.is_empty() && values(&head.headers, RENAMED).next().is_none() {
        return None;
    }
    let path = match &copied[..] {
        [source] => path_of(place, head.uri.path(), source),
        _ => None,
    };
    Some(path.map_or(CopySource::Elsewhere, CopySource::SameBucket))
}

/// The values of a header, under each of its names.
fn values<'h>(headers: &'h HeaderMap, name: &'static str) -> impl Iterator<Item = &'h str> {
    let is_one = move |one: &HeaderName| header_name(one.as_str()) == name;
    let all = headers.iter().filter(move |(one, _)| is_one(one));
    all.map(|(_, value)| value.to_str().unwrap_or_default())
}

fn path_of(place: &str, path: &str, source: &str) -> Option<String> {
    let source = source.strip_prefix('/').unwrap_or(source);
    let object = source.split('?').next().unwrap_or_default();
    let (bucket, key) = object.split_once('/')?;
    // As it stands in the address of the request: who writes it otherwise gets no copy.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if bucket.is_empty() || !bucket.bytes().all(is_plain) {
        return None;
    }
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    match own_bucket(host) {
        Some(own) => (own == bucket).then(|| format!("/{key}")),
        None => {
            let first = path.split('/').nth(1);
            (first == Some(bucket)).then(|| format!("/{bucket}/{key}"))
        }
    }
}

/// The bucket of a host of AWS' that is for one, and whose paths do not name it. Of others the first part of a path is the bucket.
fn own_bucket(host: &str) -> Option<&str> {
    let is_aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
    let marks = [".s3.", ".s3-", ".s3express-"];
    let ends = marks.iter().filter_map(|mark| host.rfind(mark));
    ends.max().filter(|_| is_aws).map(|end| &host[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_read_where_it_is_of_the_same_bucket() {
        const BUCKET: &str = "b.s3.eu-central-1.amazonaws.com:443";
        const ALL: &str = "s3.eu-central-1.amazonaws.com:443";
        for (place, path, source, want) in [
            (BUCKET, "/k", "b/d/x%20y", Some("/d/x%20y")),
            (BUCKET, "/k", "/b/x?versionId=1", Some("/x")),
            (ALL, "/b/k", "/b/x", Some("/b/x")),
            ("a.b.s3-eu-1.amazonaws.com", "/k", "a.b/x", Some("/x")),
            ("127.0.0.1:9000", "/b/k", "b/x", Some("/b/x")),
            (BUCKET, "/k", "other/secret", None),
            (BUCKET, "/k", "b.s3/x", None),
            ("minio.example:443", "/b/k", "minio/b/x", None),
            // The first part of this path is no bucket.
            (BUCKET, "/other/k", "other/secret", None),
            (ALL, "/b/k", "other/x", None),
            (BUCKET, "/k", "b%2Fx", None),
            (BUCKET, "/k", "arn:aws:s3:eu:1:accesspoint/a/object/x", None),
            (BUCKET, "/k", "", None),
        ] {
            for name in [SOURCE, "x_amz_copy_source"] {
                let request = hyper::Request::put(path).header(name, source);
                let head = request.body(()).unwrap().into_parts().0;
                let want = want.map_or(CopySource::Elsewhere, |path| {
                    CopySource::SameBucket(path.into())
                });
                assert_eq!(copy_source(place, &head), Some(want), "{place} {source}");
            }
        }
        let head = |names: &[&'static str]| {
            let request = hyper::Request::put("/b/k");
            let add = |request: hyper::http::request::Builder, name: &&'static str| {
                request.header(*name, "/b/x")
            };
            let request = names.iter().fold(request, add);
            request.body(()).unwrap().into_parts().0
        };
        for uri in [
            "/b/k?x-amz-copy-source=%2Fb%2Fx",
            "/b/k?a=1;X_Amz-Rename-Source=x",
        ] {
            let head = hyper::Request::put(uri).body(()).unwrap().into_parts().0;
            assert_eq!(
                copy_source(ALL, &head),
                Some(CopySource::Elsewhere),
                "{uri}"
            );
        }
        assert_eq!(copy_source(ALL, &head(&[])), None);
        for names in [&[SOURCE, SOURCE][..], &[RENAMED]] {
            let want = Some(CopySource::Elsewhere);
            assert_eq!(copy_source(ALL, &head(names)), want, "{names:?}");
        }
    }
}
