// SPDX-License-Identifier: Apache-2.0
//! Downloads Debian packages through apt, with a configuration of our own that leaves the machine's alone.
//!
//! Place in the flow: [`super::Store`] asks for packages by name. Invariant: needs no root and installs nothing; lists,
//! archives and the (empty) record of installed packages live in the cache directory. Which mirror and which release are read
//! from the machine's own apt, so a local mirror or proxy is honoured; the backports suite, which holds QEMU 10 for
//! Debian 12, is added in our file only, never in /etc/apt. apt verifies signatures as always.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::REMEDY;
use crate::child;
use crate::unavailable::LabUnavailable;

const ASK_LIMIT: Duration = Duration::from_secs(60);
const UPDATE_LIMIT: Duration = Duration::from_secs(180);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(900);
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Releases whose own QEMU is older than the 10 that several emulated processors need.
const RELEASES_WITH_OLD_QEMU: [&str; 1] = ["bookworm"];

/// apt with lists that are fresh.
#[derive(Debug)]
pub(super) struct Apt {
    config: PathBuf,
    backports: Option<String>,
}

impl Apt {
    /// Writes the configuration and updates the lists.
    pub(super) fn open(directory: &Path) -> Result<Self, LabUnavailable> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let codename = debian_codename(&release)
            .ok_or_else(|| LabUnavailable::new("Debian's packages", "this machine does not run Debian", REMEDY))?;
        let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
        let mut ask = child::bound_to_us("apt-get");
        ask.args(["indextargets", "--format", format, "Created-By: Packages"]);
        let targets = String::from_utf8_lossy(&child::output(&mut ask, ASK_LIMIT, REMEDY)?).into_owned();
        let signed_by = Path::new(KEYRING).is_file().then_some(KEYRING);
        let (sources, backports) = sources(&targets, codename, signed_by);
        if sources.is_empty() {
            let why = format!("apt knows no repository of {codename}");
            return Err(LabUnavailable::new("Debian's packages", why, REMEDY));
        }
        let apt = Self { config: directory.join("apt.conf"), backports };
        let failed = |error| super::cache_failed(directory, error);
        fs::create_dir_all(directory.join("state/lists/partial")).map_err(failed)?;
        fs::create_dir_all(directory.join("cache/archives/partial")).map_err(failed)?;
        fs::write(directory.join("status"), "").map_err(failed)?;
        fs::write(directory.join("sources.list"), sources).map_err(failed)?;
        fs::write(&apt.config, configuration(directory)).map_err(failed)?;
        child::output(apt.tool("apt-get").arg("update"), UPDATE_LIMIT, REMEDY)?;
        Ok(apt)
    }

    /// Names of all known packages that start with `prefix`.
    pub(super) fn package_names(&self, prefix: &str) -> Result<Vec<String>, LabUnavailable> {
        let text = child::output(self.tool("apt-cache").args(["pkgnames", prefix]), ASK_LIMIT, REMEDY)?;
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }

    /// Downloads one package into `archives`.
    pub(super) fn download(&self, package: &str, archives: &Path) -> Result<(), LabUnavailable> {
        let mut tool = self.tool("apt-get");
        tool.args(["download", package]).current_dir(archives);
        child::output(&mut tool, DOWNLOAD_LIMIT, REMEDY).map(drop)
    }

    /// Downloads a package and all it needs, the C library included, into `archives`.
    pub(super) fn download_with_dependencies(&self, package: &str, archives: &Path) -> Result<(), LabUnavailable> {
        let mut tool = self.tool("apt-get");
        tool.args(["install", "--download-only", "--yes", "-o"]);
        tool.arg(format!("Dir::Cache::archives={}", archives.display()));
        if let Some(suite) = &self.backports {
            tool.args(["-t", suite]);
        }
        child::output(tool.arg(package), DOWNLOAD_LIMIT, REMEDY).map(drop)
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = child::bound_to_us(name);
        command.env("APT_CONFIG", &self.config).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// The release's name, when the machine runs Debian itself.
fn debian_codename(os_release: &str) -> Option<&str> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"'))
    };
    (value("ID")? == "debian").then_some(value("VERSION_CODENAME")?)
}

/// The lines of our own sources file, and the suite to prefer for QEMU.
fn sources(targets: &str, codename: &str, signed_by: Option<&str>) -> (String, Option<String>) {
    let options = signed_by.map(|path| format!("[signed-by={path}] ")).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    let mut add = |uri: &str, suite: &str| {
        let line = format!("deb {options}{uri} {suite} main\n");
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    let backports = RELEASES_WITH_OLD_QEMU.contains(&codename).then(|| format!("{codename}-backports"));
    for target in targets.lines() {
        let mut words = target.split(' ');
        let (Some(uri), Some(suite), Some("main")) = (words.next(), words.next(), words.next()) else { continue };
        if suite != codename && !suite.starts_with(&format!("{codename}-")) {
            continue;
        }
        add(uri, suite);
        if suite == codename {
            backports.iter().for_each(|suite| add(uri, suite));
        }
    }
    (lines.concat(), backports)
}

fn configuration(directory: &Path) -> String {
    let place = |name: &str| directory.join(name).display().to_string();
    format!(
        "Dir::State \"{}\";\nDir::State::status \"{}\";\nDir::Cache \"{}\";\nDir::Etc::sourcelist \"{}\";\n\
         Dir::Etc::sourceparts \"-\";\nDir::Etc::preferencesparts \"-\";\nDir::Etc::preferences \"-\";\n\
         APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\nAPT::Install-Recommends \"false\";\n\
         APT::Sandbox::User \"root\";\nAPT::Get::List-Cleanup \"true\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"1\";\nAcquire::http::Timeout \"20\";\n\
         APT::Update::Error-Mode \"any\";\n",
        place("state"),
        place("status"),
        place("cache"),
        place("sources.list"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "http://mirror.example/debian/ bookworm main\nhttp://mirror.example/debian/ bookworm main\n\
        http://mirror.example/security/ bookworm-security main\nhttp://other.example/ nodistro main\n\
        http://mirror.example/debian/ bookworm contrib\n";

    #[test]
    fn the_machines_own_mirror_is_used_with_backports_added() {
        let (sources, backports) = sources(TARGETS, "bookworm", Some("/key"));
        assert_eq!(
            sources,
            "deb [signed-by=/key] http://mirror.example/debian/ bookworm main\n\
             deb [signed-by=/key] http://mirror.example/debian/ bookworm-backports main\n\
             deb [signed-by=/key] http://mirror.example/security/ bookworm-security main\n"
        );
        assert_eq!(backports.as_deref(), Some("bookworm-backports"));
    }

    #[test]
    fn a_release_with_a_new_qemu_needs_no_backports() {
        let (sources, backports) = sources("http://mirror.example/debian/ trixie main", "trixie", None);
        assert_eq!(sources, "deb http://mirror.example/debian/ trixie main\n");
        assert_eq!(backports, None);
    }

    #[test]
    fn only_debian_is_debian() {
        assert_eq!(debian_codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(debian_codename("ID=ubuntu\nVERSION_CODENAME=noble\n"), None);
        assert_eq!(debian_codename(""), None);
    }
}
