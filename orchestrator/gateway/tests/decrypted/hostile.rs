//! Requests that are meant to be read in two ways, or to reach another host than the connection was made to.

use crate::world::*;
use hyper::Request;
use orchestrator_gateway::decrypted::CarryError;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn every_request_names_the_host_of_the_connection() {
    local(async {
        let world = World::new(Setup::default()).await;
        for (line, host, want) in [
            ("GET /x HTTP/1.1", "Host: a.example\r\n", "200"),
            ("GET /x HTTP/1.1", "Host: A.EXAMPLE.:443\r\n", "200"),
            (
                "GET https://a.example/x HTTP/1.1",
                "Host: a.example\r\n",
                "200",
            ),
            ("GET /x HTTP/1.1", "Host: b.example\r\n", "421"),
            ("GET /x HTTP/1.1", "Host: a.example:8443\r\n", "421"),
            (
                "GET https://b.example/x HTTP/1.1",
                "Host: a.example\r\n",
                "421",
            ),
            (
                "GET https://a.example/x HTTP/1.1",
                "Host: b.example\r\n",
                "421",
            ),
            (
                "GET http://a.example/x HTTP/1.1",
                "Host: a.example\r\n",
                "421",
            ),
            (
                "GET https://u@a.example/x HTTP/1.1",
                "Host: a.example\r\n",
                "421",
            ),
            (
                "GET /x HTTP/1.1",
                "Host: a.example\r\nHost: a.example\r\n",
                "400",
            ),
            ("GET /x HTTP/1.1", "", "400"),
        ] {
            let answer = world
                .http1(&format!("{line}\r\n{host}Connection: close\r\n\r\n"))
                .await;
            assert_eq!(&answer[9..12], want, "{line} {host}: {answer}");
        }
        assert_eq!(world.seen.borrow().len(), 3);
        assert!(world.seen.borrow().iter().all(|seen| seen.uri == "/x"));
    });
}

#[test]
fn a_kept_connection_is_checked_again() {
    local(async {
        let world = World::new(Setup::default()).await;
        let answer = world
            .http1(
                "GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\nGET /2 HTTP/1.1\r\nHost: b.example\r\n\r\n\
                 GET /3 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
            )
            .await;
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 421").count(), 1, "{answer}");
        assert_eq!(world.seen.borrow().len(), 2);
    });
}

#[test]
fn http2_requests_name_one_host() {
    local(async {
        let world = World::new(Setup::default()).await;
        let mut http2 = world.http2().await;
        for (authority, hosts, want) in [
            ("a.example", vec![], 200),
            ("a.example", vec!["a.example"], 200),
            ("a.example", vec!["a.example", "a.example"], 400),
            ("a.example", vec!["b.example"], 421),
            ("b.example", vec![], 421),
            ("a.example:8443", vec![], 421),
        ] {
            let mut request = Request::get(format!("https://{authority}/x"));
            for host in &hosts {
                request = request.header("host", *host);
            }
            let answer = http2.send_request(request.body(full("")).unwrap()).await;
            assert_eq!(answer.unwrap().status(), want, "{authority} {hosts:?}");
        }
        assert_eq!(world.seen.borrow().len(), 2);
    });
}

#[test]
fn two_ways_to_delimit_a_body_are_answered_with_400() {
    local(async {
        let world = World::new(Setup::default()).await;
        for headers in [
            "Content-Length: 4\r\nContent-Length: 4\r\n",
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
            "Transfer-Encoding: chunked,\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            let answer = world
                .http1(&format!(
                    "POST /x HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n0\r\n\r\n"
                ))
                .await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{headers}: {answer}");
        }
        assert!(world.seen.borrow().is_empty());
    });
}

#[test]
fn a_tunnel_inside_of_the_connection_is_refused() {
    local(async {
        let world = World::new(Setup::default()).await;
        let answer = world
            .http1("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
        assert!(world.seen.borrow().is_empty());
    });
}

/// The hello's name never decides where the connection leads.
#[test]
fn a_hello_for_another_host_is_refused_and_named() {
    local(async {
        let world = World::new(Setup::default()).await;
        let tls = world.try_tls("a.example:443", "b.example", &[HTTP1]).await;
        assert!(tls.is_err());
        tokio::task::yield_now().await;
        let errors = world.errors.borrow();
        assert!(
            matches!(&errors[..], [CarryError::Name { asked, .. }] if asked == "b.example"),
            "{errors:?}"
        );
    });
}

#[test]
fn without_tls_all_passes_as_text() {
    local(async {
        let world = World::new(Setup::default()).await;
        let mut stream = world.tunnel("a.example:443").await;
        let text = format!("GET /api/x HTTP/1.1\r\nHost: a.example\r\n{}\r\n", bearer());
        stream.write_all(text.as_bytes()).await.unwrap();
        // The host speaks TLS only, and says that this is none.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer.first(), Some(&0x15), "an alert of TLS");
        assert_eq!(world.wanted(), 0);
        assert!(world.reports().is_empty());
    });
}

#[test]
fn a_program_that_does_not_believe_the_authority_is_named() {
    local(async {
        let world = World::new(Setup::default()).await;
        let foreign = World::new(Setup::default()).await;
        let stream = world.tunnel("a.example:443").await;
        let authority = foreign.ended.authority().unwrap();
        assert!(client(&authority.certificate, stream).await.is_err());
        until(|| !world.errors.borrow().is_empty()).await;
        let errors = world.errors.borrow();
        assert!(
            matches!(&errors[..], [CarryError::NotTrusted]),
            "{errors:?}"
        );
    });
}

/// Java's `HttpClient` says nothing, and closes the connection when it has seen the certificate.
#[test]
fn a_program_that_leaves_at_the_certificate_is_named() {
    local(async {
        let world = World::new(Setup::default()).await;
        let mut stream = world.tunnel("a.example:443").await;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = "a.example".try_into().unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        stream.write_all(&hello).await.unwrap();
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        drop(stream);
        until(|| !world.errors.borrow().is_empty()).await;
        let errors = world.errors.borrow();
        assert!(
            matches!(&errors[..], [CarryError::LeftAtCertificate]),
            "{errors:?}"
        );
    });
}
