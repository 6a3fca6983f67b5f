// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI document as a judge of answers: is this status documented for this route, and is the body what is said of it.

use api::client::Answer;
use serde_json::{Value, json};

/// The document.
pub(crate) struct Document(Value);

/// One route of the document.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) method: String,
    /// With an index and a file's name put in.
    pub(crate) path: String,
    /// As the document writes it.
    pub(crate) template: String,
    pub(crate) operation: Value,
}

impl Document {
    pub(crate) fn read() -> Self {
        Self(serde_json::from_str(include_str!("../../openapi.json")).unwrap())
    }

    pub(crate) fn routes(&self) -> Vec<Route> {
        let of = |(path, methods): (&String, &Value)| {
            let one = |(method, operation): (&String, &Value)| Route {
                method: method.to_uppercase(),
                path: path.replace("{index}", "1").replace("{file}", "page.js"),
                template: path.clone(),
                operation: operation.clone(),
            };
            methods.as_object().unwrap().iter().map(one).collect::<Vec<_>>()
        };
        self.0["paths"].as_object().unwrap().iter().flat_map(of).collect()
    }

    /// The paths with the methods that each takes.
    pub(crate) fn paths(&self) -> Vec<(String, Vec<String>)> {
        let methods = |methods: &Value| methods.as_object().unwrap().keys().cloned().collect();
        self.0["paths"].as_object().unwrap().iter().map(|(path, of)| (path.clone(), methods(of))).collect()
    }

    /// The route that a request is for; none if there is no such path, or it does not take the method.
    pub(crate) fn route(&self, method: &str, path: &str) -> Option<Route> {
        let path = path.split('?').next().unwrap_or_default();
        let fits = |template: &str| {
            let (wanted, given): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
            let same =
                |(wanted, given): (&&str, &&str)| wanted == given || wanted.starts_with('{') && !given.is_empty();
            wanted.len() == given.len() && wanted.iter().zip(&given).all(same)
        };
        self.routes().into_iter().find(|route| route.method == method && fits(&route.template))
    }

    /// What is wrong with an answer to a request for this route.
    pub(crate) fn complaint(&self, route: &Route, answer: &Answer) -> Option<String> {
        let status = answer.head.status;
        let named = format!("{} {} {status}", route.method, route.template);
        let body = String::from_utf8_lossy(&answer.body);
        let Some(response) = route.operation["responses"].get(status.to_string()) else {
            return Some(format!("{named}: the status is not documented; {body}"));
        };
        let Some(content) = response["content"].as_object() else {
            return (!answer.body.is_empty()).then(|| format!("{named}: a body that is not documented"));
        };
        let told = answer.head.header("content-type").unwrap_or_default();
        let Some((media, described)) = content.iter().find(|(media, _)| told.split(';').next() == Some(media)) else {
            return Some(format!("{named}: content type {told} is not documented"));
        };
        if media != "application/json" || route.template == "/openapi.json" && status == 200 {
            return None;
        }
        let schema = json!({"allOf": [described["schema"]], "components": self.0["components"]});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let body: Value = match serde_json::from_slice(&answer.body) {
            Ok(body) => body,
            Err(error) => return Some(format!("{named}: no JSON: {error}")),
        };
        let complaints: Vec<String> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
        if !complaints.is_empty() {
            return Some(format!("{named}: {}", complaints.join("; ")));
        }
        let code = body["code"].as_str();
        let known = api::wire::Code::ALL.iter().find(|known| Some(known.name()) == code);
        let fits = status < 400 || known.is_some_and(|known| known.status() == status);
        (!fits).then(|| format!("{named}: code {code:?} belongs to another status"))
    }
}

impl Route {
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.template)
    }

    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.operation["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap()).collect()
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.path.ends_with("/stream") || self.path.ends_with("/events")
    }
}
