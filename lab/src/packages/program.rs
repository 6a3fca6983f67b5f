// SPDX-License-Identifier: Apache-2.0
//! A program of one of Debian's packages, with the libraries that it is linked with: for the file system of a guest.
//!
//! The unpacked dynamic linker says which they are, so that the libraries of this machine do not matter. Invariant: either
//! all of them are there, or the program is not available.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Store, remove};
use crate::child;
use crate::unavailable::LabUnavailable;

const LIST_LIMIT: Duration = Duration::from_secs(60);
/// Where the dynamic linker of Debian's amd64 is named, and where it looks.
const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";
const NO_LINKER: &str = "the package of its dynamic linker holds none";
const LIBRARIES: &str = "/lib/x86_64-linux-gnu";

impl Store {
    /// The program `path` of `package`: path in the guest and file here, its libraries and their linker behind it.
    pub fn program(&self, package: &str, path: &str) -> Result<Vec<(String, PathBuf)>, LabUnavailable> {
        let root = self.unpacked(package, |apt, archives| apt.download_with_dependencies(package, archives))?;
        let missing = |what: &str| LabUnavailable::new(format!("{path} of {package}"), what, remove(&root));
        let program = root.join(path.trim_start_matches('/'));
        let linker = linker_below(&root).ok_or_else(|| missing(NO_LINKER))?;
        let mut command = linked(&linker, &root);
        command.arg("--list").arg(&program);
        let listed = child::output(&mut command, LIST_LIMIT, "remove the lab's cache so that it is fetched again")?;
        let mut files = vec![(path.to_owned(), program.clone()), (LINKER.to_owned(), linker)];
        for (name, place) in libraries(&String::from_utf8_lossy(&listed)) {
            let place = place.ok_or_else(|| missing(&format!("its library {name} is not among its dependencies")))?;
            files.push((format!("{LIBRARIES}/{name}"), place));
        }
        Ok(files)
    }
}

impl Store {
    /// Other files of `package` and what it depends on, by their places in it: name of the file, and file here.
    pub fn files(&self, package: &str, places: &[&str]) -> Result<Vec<(String, PathBuf)>, LabUnavailable> {
        let root = self.unpacked(package, |apt, archives| apt.download_with_dependencies(package, archives))?;
        let file = |place: &&str| {
            let path = root.join(place);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).filter(|_| path.is_file());
            let missing = || LabUnavailable::new(format!("{place} of {package}"), "it is not there", remove(&root));
            Ok((name.ok_or_else(missing)?, path))
        };
        places.iter().map(file).collect()
    }

    /// A command that runs the program `path` of `package` on this machine, with the libraries that it came with.
    pub(super) fn command_of(&self, package: &str, path: &str) -> Result<Command, LabUnavailable> {
        let root = self.unpacked(package, |apt, archives| apt.download_with_dependencies(package, archives))?;
        let missing = || LabUnavailable::new(format!("{path} of {package}"), NO_LINKER, remove(&root));
        let mut command = linked(&linker_below(&root).ok_or_else(missing)?, &root);
        command.arg(root.join(path.trim_start_matches('/')));
        Ok(command)
    }
}

/// The dynamic linker, to be given a program of the same unpacked system.
fn linked(linker: &Path, root: &Path) -> Command {
    let mut command = child::bound_to_us(linker);
    command.arg("--library-path").arg(library_path(root));
    command
}

/// The dynamic linker of an unpacked system, before and after the merge of /lib into /usr.
fn linker_below(root: &Path) -> Option<PathBuf> {
    let name = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
    [root.join(name), root.join("usr").join(name)].into_iter().find(|path| path.is_file())
}

fn library_path(root: &Path) -> String {
    ["lib", "usr/lib"].map(|place| root.join(place).join("x86_64-linux-gnu").display().to_string()).join(":")
}

/// The libraries that `ld.so --list` names, with their places; `None` for one that it does not find.
fn libraries(listed: &str) -> Vec<(String, Option<PathBuf>)> {
    let parse = |line: &str| {
        let (name, place) = line.trim().split_once(" => ")?;
        let place = place.rsplit_once(" (").map(|(place, _)| PathBuf::from(place));
        (!name.starts_with('/')).then(|| (name.to_owned(), place))
    };
    listed.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_linker_lists_is_read_and_what_it_lacks_is_seen() {
        let listed = "\tlinux-vdso.so.1 (0x7ff)\n\tlibm.so.6 => /root/lib/libm.so.6 (0x7f1)\n\tlibJudy.so.1 => not found\n\
                      \t/lib64/ld-linux-x86-64.so.2 => /root/lib/ld.so (0x7f2)\n";
        let found = |name: &str, place: &str| (name.to_owned(), Some(PathBuf::from(place)));
        assert_eq!(libraries(listed), [found("libm.so.6", "/root/lib/libm.so.6"), ("libJudy.so.1".to_owned(), None)]);
    }
}
