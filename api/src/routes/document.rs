// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI document: the same for every machine.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::answer::Always;
use super::extract::NoQuery;
#[cfg(test)]
use super::{machine, page, settings, streams, vcpus, vm};

/// The document, as it is generated from this crate and kept in its directory.
const OPENAPI: &str = include_str!("../../openapi.json");
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
        settings::thresholds, settings::change_thresholds,
        streams::serial_history, streams::serial_stream, streams::events,
        openapi, page::page, page::page_file,
    ),
    components(schemas(crate::wire::Problem)),
    modifiers(&Bearer, &Absent),
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

/// A parameter that is not given is absent, never `null`.
#[cfg(test)]
struct Absent;

#[cfg(test)]
impl utoipa::Modify for Absent {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::RefOr;
        use utoipa::openapi::schema::{Schema, SchemaType, Type};
        let operations = document.paths.paths.values_mut().flat_map(|path| {
            [&mut path.get, &mut path.put, &mut path.post, &mut path.patch].into_iter().filter_map(Option::as_mut)
        });
        for parameter in operations.filter_map(|operation| operation.parameters.as_mut()).flatten() {
            if let RefOr::T(parameter) = parameter
                && let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
                && let SchemaType::Array(types) = &mut object.schema_type
            {
                types.retain(|one| *one != Type::Null);
                if let [only] = types.as_slice() {
                    object.schema_type = SchemaType::Type(only.clone());
                }
            }
        }
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
