//! The local address to which a browser returns after a login. It takes one answer.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// Maximum bytes of a request.
const REQUEST_MAX: usize = 16 << 10;
/// How long a browser may take to send its request.
const REQUEST: Duration = Duration::from_secs(5);
const PATH: &str = "/callback";

/// A local address that waits for a browser.
pub struct Callback {
    listener: TcpListener,
    port: u16,
}

impl Callback {
    /// Binds `port` on this machine, or any free port. Has to come before we confine ourselves.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn bind(port: Option<u16>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or_default()))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// The address to which the browser is to return.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// The address with which a browser returned from the page `login`, including its query. Any other request gets an error: every
    /// program of the machine and every page can send one, but only who has seen that page knows its `state`.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn returned(self, login: &str) -> io::Result<String> {
        let state = Url::parse(login).ok().and_then(|url| state_of(&url));
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            // Do not wait for a silent connection; another one may come.
            let asked = timeout(REQUEST, asked(&mut stream)).await.ok().flatten();
            let found = asked.map(|path| format!("http://127.0.0.1:{}{path}", self.port));
            let found = found.filter(|address| answers(address, state.as_deref()));
            let (status, text) = match found {
                Some(_) => (
                    "200 OK",
                    "Lazaret has heard of it. You can close this page.",
                ),
                None => ("404 Not Found", "There is nothing here."),
            };
            let length = text.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
            );
            let _ = timeout(REQUEST, stream.write_all(answer.as_bytes())).await;
            if let Some(address) = found {
                return Ok(address);
            }
        }
    }
}

/// Whether this is the return from the login with this `state`.
fn answers(address: &str, state: Option<&str>) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    url.path() == PATH && state.is_some() && state_of(&url).as_deref() == state
}

/// The state of a login (RFC 6749, 4.1.1).
fn state_of(url: &Url) -> Option<String> {
    url.query_pairs()
        .find(|(name, _)| name == "state")
        .map(|(_, state)| state.into_owned())
}

/// The path of a request for a page.
async fn asked(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut piece) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream
            .read(&mut piece)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        request.extend_from_slice(&piece[..count]);
        if request.len() > REQUEST_MAX {
            return None;
        }
    }
    let text = String::from_utf8(request).ok()?;
    let line = text.lines().next()?;
    let path = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn ask(port: u16, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[tokio::test]
    async fn one_answer_is_taken_and_nothing_else() {
        let callback = Callback::bind(None).unwrap();
        let port = callback.port;
        let browser = std::thread::spawn(move || {
            for other in [
                "GET / HTTP/1.1\r\n\r\n".to_owned(),
                "POST /callback?code=1 HTTP/1.1\r\n\r\n".to_owned(),
                "GET /callbacks?code=1&state=2 HTTP/1.1\r\n\r\n".to_owned(),
                "GET /callback?code=1 HTTP/1.1\r\n\r\n".to_owned(),
                "GET /callback?error=access_denied&state=3 HTTP/1.1\r\n\r\n".to_owned(),
                "GET /callback?state=3&code=1&state=2 HTTP/1.1\r\n\r\n".to_owned(),
            ] {
                assert!(ask(port, &other).starts_with("HTTP/1.1 404"), "{other}");
            }
            ask(
                port,
                &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(REQUEST_MAX)),
            );
            ask(
                port,
                "GET /callback?code=1&state=2 HTTP/1.1\r\nHost: x\r\n\r\n",
            )
        });
        let returned = callback
            .returned("https://a.example/login?client_id=1&state=2")
            .await
            .unwrap();
        assert_eq!(
            returned,
            format!("http://127.0.0.1:{port}/callback?code=1&state=2")
        );
        assert!(browser.join().unwrap().starts_with("HTTP/1.1 200"));
    }
}
