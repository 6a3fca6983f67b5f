// SPDX-License-Identifier: Apache-2.0
//! What is the same for every machine: the OpenAPI document and the page.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Always, Open};
use super::extract::NoQuery;
#[cfg(test)]
use super::{machine, settings, streams, vcpus, vm};

/// The document, as it is generated from this crate and kept in its directory.
const OPENAPI: &str = include_str!("../../openapi.json");
const PAGE: &str = include_str!("../page/page.html");
const SCRIPT: &str = include_str!("../page/page.js");
const STYLE: &str = include_str!("../page/page.css");

/// What the page may do: load its own two files, talk to this server, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// The document that describes all this: generated in a test, which compares it with what is served.
#[cfg(test)]
#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "vmm", description = "Controls and watches one virtual machine (docs/api.md)", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    paths(
        vm::get_vm, vm::create_vm, vm::change_state, vm::power_button, vm::reset, vm::nmi,
        vcpus::list, vcpus::one, vcpus::change,
        machine::topology, machine::host, machine::stats, machine::decisions, machine::metrics,
        settings::placement, settings::change_placement, settings::pause, settings::change_pause,
        streams::serial_history, streams::serial_stream, streams::events,
        openapi, page, page_script, page_style,
    ),
    components(schemas(crate::wire::Problem)),
    modifiers(&Bearer),
)]
pub(crate) struct Document;

/// Over TCP all but the page needs the token; over the Unix socket nothing does.
#[cfg(test)]
struct Bearer;

#[cfg(test)]
impl utoipa::Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        document.security = Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])]);
    }
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "documents", operation_id = "getOpenApi",
    responses((status = 200, description = "OpenAPI 3.1", body = Object), Always)
)]
pub(super) async fn openapi(_: NoQuery) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// The page that shows the machine.
#[utoipa::path(
    get, path = "/", tag = "documents", operation_id = "getPage",
    responses((status = 200, description = "HTML", body = String, content_type = "text/html"), Open)
)]
pub(super) async fn page(_: NoQuery) -> Response {
    file("text/html; charset=utf-8", PAGE)
}

/// The page's script.
#[utoipa::path(
    get, path = "/page.js", tag = "documents", operation_id = "getPageScript",
    responses((status = 200, description = "JavaScript", body = String, content_type = "text/javascript"), Open)
)]
pub(super) async fn page_script(_: NoQuery) -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

/// The page's style.
#[utoipa::path(
    get, path = "/page.css", tag = "documents", operation_id = "getPageStyle",
    responses((status = 200, description = "CSS", body = String, content_type = "text/css"), Open)
)]
pub(super) async fn page_style(_: NoQuery) -> Response {
    file("text/css; charset=utf-8", STYLE)
}

fn file(content_type: &'static str, content: &'static str) -> Response {
    let headers: [(HeaderName, &str); 4] = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use utoipa::OpenApi;

    use super::*;

    #[test]
    fn the_document_that_is_served_is_the_one_that_is_generated() {
        let generated = Document::openapi().to_pretty_json().unwrap() + "\n";
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"), &generated).unwrap();
            return;
        }
        assert!(
            generated == OPENAPI,
            "openapi.json is not what the code says: UPDATE_OPENAPI=1 cargo test -p api --lib"
        );
    }
}
