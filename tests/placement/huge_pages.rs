// SPDX-License-Identifier: Apache-2.0
//! Pages of guest memory on this host, as its kernel tells afterwards. Nothing of the host's pools is changed: what a pool
//! with pages gives is shown in the lab.

use std::fs;

use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::host::{monitor, report};
use crate::{Missing, kvm, trial};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("more_huge_pages_than_are_free_are_refused_with_both_numbers", pool, too_many),
        trial("transparent_huge_pages_are_used_where_they_are_asked_for", transparent, asked),
        trial("small_pages_stay_small", kvm, small),
        trial("core_scheduling_is_granted_or_the_reason_is_said", kvm, cores),
    ]
}

fn pool() -> Missing {
    kvm().or_else(|| {
        let overcommit = fs::read_to_string(format!("{POOL}/nr_overcommit_hugepages"));
        match overcommit.as_deref().map(str::trim) {
            Ok("0") => None,
            Ok(pages) => Some(format!("the kernel may add {pages} huge pages by itself")),
            Err(error) => Some(format!("{POOL}: {error}")),
        }
    })
}

fn transparent() -> Missing {
    kvm().or_else(|| {
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        (enabled.is_empty() || enabled.contains("[never]")).then(|| "transparent huge pages are off".to_owned())
    })
}

fn too_many() {
    // Far more than any pool has, and reserved as a whole or not at all.
    let ended = monitor(TempDir::new().unwrap().path(), &["--memory", "64T", "--hugepages", "2M"]).run().expect(1);
    assert!(ended.errors.contains("--hugepages 2M: 33554432 pages are needed and"), "{}", ended.errors);
    assert!(ended.errors.contains("nr_hugepages"), "{}", ended.errors);
}

fn pages(pages: &str) -> serde_json::Value {
    let claims = TempDir::new().unwrap();
    let arguments = ["--memory", "64M", "--hugepages", pages, "--report", "run.json"];
    let ended = monitor(claims.path(), &arguments).run().expect(0);
    report(ended.directory.path())["guest"]["pages"].clone()
}

fn asked() {
    let pages = pages("thp");
    assert_eq!((pages["asked"].as_str(), pages["page_bytes"].as_u64()), (Some("thp"), Some(4096)), "{pages}");
    // Whether there is a huge page just now is the host's affair; what it gave is what is told.
    assert!(pages["huge_bytes"].as_u64() <= pages["resident_bytes"].as_u64(), "{pages}");
    assert!(pages["resident_bytes"].as_u64() > Some(0), "{pages}");
}

fn small() {
    let pages = pages("none");
    assert_eq!((pages["asked"].as_str(), pages["huge_bytes"].as_u64()), (Some("none"), Some(0)), "{pages}");
}

fn cores() {
    let claims = TempDir::new().unwrap();
    let arguments = ["--cpus", "2", "--core-scheduling", "--report", "run.json"];
    let ended = monitor(claims.path(), &arguments).run().expect(0);
    let grant = report(ended.directory.path())["placement"]["core_scheduling"].clone();
    let why = grant["why"].as_str().unwrap();
    match grant["granted"].as_bool() {
        Some(true) => assert!(why.contains("all vCPU threads have cookie 0x"), "{grant}"),
        _ => assert!(ended.errors.contains(&format!("--core-scheduling is not granted: {why}")), "{}", ended.errors),
    }
}
