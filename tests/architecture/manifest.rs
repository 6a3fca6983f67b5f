// SPDX-License-Identifier: Apache-2.0
//! What the manifests say: the members of the workspace and whom each depends on.
//!
//! Invariant: a dependency counts whatever it is for (build, tests, one platform) and whatever name it is given.

use std::path::Path;

use toml::{Table, Value};

/// A member of the workspace.
pub(crate) struct Member {
    /// Its directory, relative to the root: the room.
    pub(crate) room: String,
    /// Its package name.
    pub(crate) package: String,
    /// Package names of everything it depends on.
    pub(crate) dependencies: Vec<String>,
    /// Whether its lints are those of the workspace.
    pub(crate) inherits_lints: bool,
}

impl Member {
    /// A member that exists only to be found out.
    pub(crate) fn made_up(room: &str, package: &str, dependencies: &[&str]) -> Self {
        let dependencies = dependencies.iter().map(ToString::to_string).collect();
        Self { room: room.into(), package: package.into(), dependencies, inherits_lints: true }
    }

    fn parse(room: &str, manifest: &Table, shared: &Table) -> Self {
        let inherited = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
        Self {
            room: room.into(),
            package: manifest["package"]["name"].as_str().unwrap().into(),
            dependencies: dependencies(manifest, shared),
            inherits_lints: inherited == Some(true),
        }
    }
}

/// Every member, as its manifest below `root` describes it.
pub(crate) fn members(root: &Path) -> Vec<Member> {
    let workspace = read(&root.join("Cargo.toml"));
    let workspace = workspace["workspace"].as_table().unwrap();
    let shared = workspace["dependencies"].as_table().unwrap();
    let rooms = workspace["members"].as_array().unwrap().iter().map(|room| room.as_str().unwrap());
    rooms.map(|room| Member::parse(room, &read(&root.join(room).join("Cargo.toml")), shared)).collect()
}

fn read(path: &Path) -> Table {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dependencies(manifest: &Table, shared: &Table) -> Vec<String> {
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = platforms.filter_map(Value::as_table).chain([manifest]);
    tables
        .flat_map(|table| ["dependencies", "dev-dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .flatten()
        .filter_map(Value::as_table)
        .flat_map(|entries| entries.iter().map(|(name, entry)| package_of(name, entry, shared)))
        .collect()
}

/// The package behind an entry: its `package` key, that of the workspace's entry, or the entry's own name.
fn package_of(name: &str, entry: &Value, shared: &Table) -> String {
    let renamed = |entry: &Value| entry.get("package").and_then(Value::as_str).map(String::from);
    renamed(entry).or_else(|| shared.get(name).and_then(renamed)).unwrap_or_else(|| name.into())
}

#[test]
fn dependencies_of_every_kind_and_name_are_seen() {
    let shared = "alias = { package = 'real', path = 'real' }".parse().unwrap();
    let manifest = "
        [package]
        name = 'member'
        [dependencies]
        alias.workspace = true
        [dev-dependencies]
        other = { package = 'libc', version = '0.2' }
        [build-dependencies]
        cc = '1'
        [target.'cfg(unix)'.dependencies]
        nix = '1'
    ";
    let member = Member::parse("room", &manifest.parse().unwrap(), &shared);
    assert_eq!(member.dependencies, ["nix", "real", "libc", "cc"]);
    assert!(!member.inherits_lints);
}
