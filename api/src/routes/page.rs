// SPDX-License-Identifier: Apache-2.0
//! The page: files that are part of the program, the same for everybody, and what a browser may do with them.
//!
//! Invariant: they tell nothing of the machine, and load nothing from anywhere else.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Absent, Open};
use super::extract::{NoQuery, Segment, nothing_at};
use crate::wire::Problem;

const PAGE: &str = include_str!("../page/page.html");

macro_rules! files {
    ($($name:literal $kind:expr,)*) => {
        /// Files of the page: name, content type, content.
        const FILES: &[(&str, &str, &str)] = &[$(($name, $kind, include_str!(concat!("../page/", $name))),)*];
    };
}
const SCRIPT: &str = "text/javascript; charset=utf-8";
files! {
    "controls.js" SCRIPT,
    "feeds.js" SCRIPT,
    "history.js" SCRIPT,
    "host.js" SCRIPT,
    "icon.svg" "image/svg+xml",
    "ledger.js" SCRIPT,
    "matrix.js" SCRIPT,
    "page.css" "text/css; charset=utf-8",
    "page.js" SCRIPT,
    "server.js" SCRIPT,
    "tiles.js" SCRIPT,
    "words.js" SCRIPT,
}

/// What the page may do: load its own files, talk to this server, nothing else; no text ever becomes script or markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// Whether a path is one of the page's, where nothing of the machine is told.
pub(crate) fn is_of_the_page(path: &str) -> bool {
    path == "/" || path.strip_prefix("/page/").is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The page that shows the machine.
#[utoipa::path(
    get, path = "/", tag = "documents", operation_id = "getPage",
    responses((status = 200, description = "HTML", body = String, content_type = "text/html"), Open)
)]
pub(super) async fn page(_: NoQuery) -> Response {
    file("text/html; charset=utf-8", PAGE)
}

/// The page where it has to ask for the token before it asks for anything else.
pub(super) async fn page_with_token(_: NoQuery) -> Response {
    file("text/html; charset=utf-8", PAGE.replacen("<html", "<html data-token=\"needed\"", 1))
}

/// One of the page's files.
#[utoipa::path(
    get, path = "/page/{file}", tag = "documents", operation_id = "getPageFile",
    params(("file" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The file", content(
            (String = "text/javascript"), (String = "text/css"), (String = "image/svg+xml"),
        )),
        Absent, Open
    )
)]
pub(super) async fn page_file(Segment(name): Segment, _: NoQuery) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, content) = found.ok_or_else(|| nothing_at(&format!("/page/{name}")))?;
    Ok(file(kind, *content))
}

fn file(content_type: &'static str, content: impl IntoResponse) -> Response {
    let mut response = content.into_response();
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_directory_is_served() {
        let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page")).unwrap();
        let mut names: Vec<String> = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "page.html");
        names.sort();
        assert_eq!(names, FILES.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_imported_is_there() {
        for (name, _, content) in FILES {
            for line in content.lines().filter(|line| line.starts_with("import ")) {
                let imported = line.split('"').nth(1).and_then(|path| path.strip_prefix("./")).unwrap();
                assert!(FILES.iter().any(|(known, ..)| *known == imported), "{name}: {imported}");
            }
        }
    }

    #[test]
    fn only_paths_of_the_page_are_of_the_page() {
        assert!(is_of_the_page("/") && is_of_the_page("/page/page.js"));
        for path in ["", "//", "/page", "/page/", "/page/page.js/", "/page/../api/v1/vm", "/metrics"] {
            assert!(!is_of_the_page(path), "{path}");
        }
    }
}
