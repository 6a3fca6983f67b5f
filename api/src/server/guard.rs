// SPDX-License-Identifier: Apache-2.0
//! Who is served over TCP: whoever names this address as the host, comes from no foreign page, and has the token. Over a Unix
//! socket its permissions are the guard; but a browser reaches one that is forwarded, and any page in it could press buttons
//! there. So a request that says which page it comes from is looked at there too.
//!
//! A page that somebody visits can make the browser send requests here, and a name of its own can be bound to this
//! address while it is open (DNS rebinding). The browser then says that name in `Host`, and the page's own in `Origin`.
//! Invariant: nothing of the machine is told before all three were looked at.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

use super::token::Token;
use crate::routes::page::is_of_the_page;
use crate::wire::{Code, Problem};

/// Checks requests that come over TCP.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    token: Token,
}

impl Guard {
    /// Lets in who has `token`.
    #[must_use]
    pub(crate) fn new(token: Token) -> Self {
        Self { token }
    }

    /// Whether a request is served.
    ///
    /// # Errors
    /// `foreign_host`, `foreign_origin`, `unauthorized`.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        own_page(host(uri, headers)?, headers)?;
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let opens = matches!((given.next(), given.next()), (Some(one), None) if self.token.is_in(one.as_bytes()));
        // The page tells nothing of the machine, and asks for the token itself.
        if opens || is_of_the_page(uri.path()) {
            return Ok(());
        }
        Err(Problem::new(Code::Unauthorized, "the token is missing or wrong")
            .hint("send `Authorization: Bearer TOKEN` with the content of the file of --api-token-file"))
    }
}

/// Whether a request over a Unix socket, forwarded perhaps, comes from no foreign page. Browsers say where they come from
/// with everything that changes something (Fetch, header `Origin`); others do not, and may call the host what they like.
///
/// # Errors
/// `foreign_host`, `foreign_origin`.
pub(crate) fn check_page(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::ORIGIN) { own_page(host(uri, headers)?, headers) } else { Ok(()) }
}

/// Whether the page that the request comes from, if it says one, is the one of `host`.
fn own_page(host: &str, headers: &HeaderMap) -> Result<(), Problem> {
    for origin in headers.get_all(header::ORIGIN) {
        if origin.as_bytes().strip_prefix(b"http://") != Some(host.as_bytes()) {
            return Err(Problem::new(Code::ForeignOrigin, "the request comes from a foreign page")
                .because(format!("Origin is {origin:?} and not http://{host}"))
                .hint("use the page at / of this server, or a client that is no browser"));
        }
    }
    Ok(())
}

/// The host that the request names, if it is a literal address or `localhost`: no name that somebody can bind elsewhere.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
    let foreign = |cause: String| {
        Problem::new(Code::ForeignHost, "the request is meant for another machine")
            .because(cause)
            .hint("name this server by its address or as localhost")
    };
    let mut given = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (given.next(), given.next()) else {
        return Err(foreign("there is no header Host, or several".to_owned()));
    };
    let host = host.to_str().map_err(|_| foreign("Host is not ASCII".to_owned()))?;
    if uri.authority().is_some_and(|authority| authority.as_str() != host) {
        return Err(foreign("Host and the request's target differ".to_owned()));
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let literal = name.parse::<Ipv4Addr>().is_ok() || inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    if literal || name.eq_ignore_ascii_case("localhost") {
        return Ok(host);
    }
    Err(foreign(format!("Host is `{}`", name.chars().take(64).collect::<String>().escape_debug())))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const GOOD: &str = "Bearer 0123456789abcdef";

    fn check(path: &'static str, given: &[(&'static str, &'static str)]) -> Result<(), Code> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let guard = Guard::new(Token::read(&file).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, HeaderValue::from_static(value));
        }
        guard.check(&Uri::from_static(path), &headers).map_err(|problem| problem.code)
    }

    #[test]
    fn a_literal_address_with_the_token_is_served() {
        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:80", "192.0.2.7", "[fe80::1]"] {
            assert_eq!(check("/api/v1/vm", &[("host", host), ("authorization", GOOD)]), Ok(()), "{host}");
        }
        let with_origin = [("host", "127.0.0.1:80"), ("origin", "http://127.0.0.1:80"), ("authorization", GOOD)];
        assert_eq!(check("/api/v1/vm", &with_origin), Ok(()));
        assert_eq!(check("/", &[("host", "127.0.0.1:80")]), Ok(()), "the page tells nothing");
    }

    #[test]
    fn a_name_that_can_be_bound_here_is_not_served() {
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "", "1.2.3", "[::1"]
        {
            assert_eq!(check("/", &[("host", host), ("authorization", GOOD)]), Err(Code::ForeignHost), "{host}");
        }
        assert_eq!(check("/", &[]), Err(Code::ForeignHost));
        assert_eq!(check("/", &[("host", "127.0.0.1"), ("host", "127.0.0.1")]), Err(Code::ForeignHost));
        assert_eq!(check("http://evil.example/", &[("host", "127.0.0.1")]), Err(Code::ForeignHost));
    }

    #[test]
    fn a_foreign_page_is_not_served() {
        for origin in ["null", "http://evil.example", "https://127.0.0.1", "http://127.0.0.1:81", ""] {
            let given = [("host", "127.0.0.1"), ("origin", origin), ("authorization", GOOD)];
            assert_eq!(check("/api/v1/vm", &given), Err(Code::ForeignOrigin), "{origin}");
        }
    }

    #[test]
    fn a_foreign_page_does_not_reach_a_socket_that_is_forwarded() {
        let check = |given: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, HeaderValue::from_static(value));
            }
            check_page(&Uri::from_static("/api/v1/vm/reset"), &headers).map_err(|problem| problem.code)
        };
        assert_eq!(check(&[("host", "vmm")]), Ok(()), "no browser");
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[("host", "localhost:8080"), ("origin", "http://localhost:8080")]), Ok(()), "the page at /");
        for origin in ["null", "http://evil.example", "https://localhost:8080", "http://localhost:81", ""] {
            let given = [("host", "localhost:8080"), ("origin", origin)];
            assert_eq!(check(&given), Err(Code::ForeignOrigin), "{origin}");
        }
        let rebound = [("host", "evil.example:8080"), ("origin", "http://evil.example:8080")];
        assert_eq!(check(&rebound), Err(Code::ForeignHost));
    }

    #[test]
    fn without_the_token_nothing_is_told() {
        let host = ("host", "127.0.0.1");
        for path in ["/api/v1/vm", "/metrics", "/openapi.json", "/events", "//", "/page/page.js/", "/page/"] {
            assert_eq!(check(path, &[host]), Err(Code::Unauthorized), "{path}");
        }
        assert_eq!(check("/metrics", &[host, ("authorization", "Bearer x")]), Err(Code::Unauthorized));
        let twice = [host, ("authorization", "Bearer x"), ("authorization", GOOD)];
        assert_eq!(check("/metrics", &twice), Err(Code::Unauthorized));
    }
}
