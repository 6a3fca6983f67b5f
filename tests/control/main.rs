// SPDX-License-Identifier: Apache-2.0
//! The control API as others see it: the page in a browser, the document by schemathesis, the metrics by promtool.
//!
//! The browser is headless Chromium of Debian's packages, told what to do over a pipe; `BROWSER_SHOTS=DIR` keeps pictures of
//! several sizes, dark and light. Invariant: a test that this machine cannot run is reported as ignored, with the reason,
//! and never as passed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chromium;
mod guest;
mod judges;
#[path = "../linux/monitor.rs"]
mod monitor;
mod page;
mod served;
#[path = "../trial.rs"]
mod trial;

use std::path::PathBuf;

use api::monitor::{Change, Monitor};
use api::wire::{PauseMode, PlacementChange, PlacementMode, Stats, VmState};
use libtest_mimic::Arguments;

use chromium::Chromium;
use guest::Guest;
use page::Page;
use served::{Memory, TOKEN};
use trial::trial;

/// Roles that somebody acts on, and that say nothing without a name.
const ROLES: [&str; 8] = ["button", "radio", "checkbox", "textbox", "spinbutton", "combobox", "link", "application"];

fn main() {
    let mut arguments = Arguments::from_args();
    // A browser takes what CPUs there are.
    arguments.test_threads = Some(1);
    let trials = vec![
        trial("the_page_shows_a_machine_and_follows_it", Chromium::missing, follows),
        trial("a_click_changes_the_machine_once_it_is_confirmed", Chromium::missing, changes),
        trial("the_page_is_used_with_the_keyboard_and_everything_has_a_name", Chromium::missing, keyboard),
        trial("a_click_changes_a_real_guest", || Chromium::missing().or_else(trial::kvm), real),
        trial("schemathesis_finds_nothing", judges::schemathesis_missing, judges::schemathesis_finds_nothing),
        trial("promtool_finds_nothing", judges::promtool_missing, judges::promtool_finds_nothing),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// Opens the page, and shows it the token.
fn open<'a>(browser: &'a Chromium, url: &str) -> Page<'a> {
    let page = Page::open(browser, url);
    page.until("document.querySelector('#token-dialog')?.open");
    page.click("#token");
    page.write(TOKEN);
    page.press("Enter", 13);
    page.until("document.documentElement.dataset.connection === 'live'");
    page
}

fn has_no_complaint(page: &Page<'_>) {
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// A number that the page shows.
const PASSED: &str = "Number(document.querySelector('#pairs li .number')?.textContent.replaceAll(',', ''))";

fn follows() {
    let (memory, browser) = (Memory::serve(8), Chromium::start());
    let page = open(&browser, &memory.url());
    page.until("document.querySelectorAll('#ledger tbody tr').length === 8");
    page.until("document.querySelectorAll('#host-map .cpu').length === 16");
    page.until("document.querySelectorAll('#host-map .chip').length === 8");
    page.until("document.querySelectorAll('#decisions li').length > 10");
    page.until(
        "document.querySelector('#thresholds').textContent === 'told from 10,000 pause events/s and 10 % stolen on'",
    );
    page.until("document.querySelector('#ledger tbody td:nth-child(5)').textContent === '50 %'");
    // What is seen changes: counters, and the CPU that a thread is on once it may use several.
    let before = page.value(PASSED).as_f64().unwrap();
    page.until(&format!("{PASSED} > {before}"));
    let anywhere = PlacementChange { mode: Some(PlacementMode::None), ..PlacementChange::default() };
    drop(memory.monitor.ask(Change::Placement(anywhere), None));
    page.until("(window.places ??= new Set()).add(document.querySelector('#ledger tbody td:nth-child(3)').textContent) && window.places.size > 1");
    pictures(&page, "memory");
    memory.monitor.forget();
    page.until("document.querySelector('#connection').textContent === 'no machine yet'");
}

fn changes() {
    let (memory, browser) = (Memory::serve(4), Chromium::start());
    let page = open(&browser, &memory.url());
    let mode = || memory.monitor.pause().unwrap().mode;
    page.until("document.querySelector('#pause-modes input[value=act]')?.checked");
    page.click("#pause-modes input[value=observe]");
    page.click("#pause-form button[type=submit]");
    page.until("document.querySelector('#confirm').open");
    assert_eq!(page.value("document.querySelector('#confirm-lines').innerText"), "mode act → observe");
    page.click("#confirm button[value=no]");
    page.until("!document.querySelector('#confirm').open");
    assert_eq!(mode(), PauseMode::Act, "it was not confirmed");
    page.click("#pause-form button[type=submit]");
    page.until("document.querySelector('#confirm').open");
    page.click("#confirm-yes");
    page.until("document.querySelector('#outcome').innerText.startsWith('Done: mode act → observe')");
    assert_eq!(mode(), PauseMode::Observe);
    // The event of it, and counters that follow: nobody yields any more.
    page.until("document.querySelector('#events').innerText.includes('Settings were changed: pause')");
    page.until("[...document.querySelectorAll('.tile')].some((tile) => tile.innerText.startsWith('Yields\\n0'))");
    page.click("#placement-modes input[value=pin]");
    page.click("#placement-form input[name=pin]");
    page.write("2-3");
    page.click("#placement-form button[type=submit]");
    page.until("document.querySelector('#confirm').open");
    page.click("#confirm-yes");
    page.until("document.querySelector('#outcome').innerText.includes('pinned to 2-3')");
    assert_eq!(memory.monitor.placement().unwrap().mode, PlacementMode::Pin);
    page.until("[...document.querySelectorAll('#host-map .chip')].every((chip) => ['2', '3'].includes(chip.closest('.cpu').querySelector('.box-name').textContent))");
    page.click("#buttons [data-does=pause]");
    page.until("document.querySelector('#confirm').open");
    page.click("#confirm-yes");
    page.until("document.querySelector('#state').textContent === 'paused'");
    assert_eq!(memory.monitor.vm().unwrap().state, VmState::Paused);
    has_no_complaint(&page);
}

fn keyboard() {
    let (memory, browser) = (Memory::serve(4), Chromium::start());
    let page = open(&browser, &memory.url());
    page.until("document.querySelectorAll('#ledger tbody tr').length === 4");
    // To the first control of the page, in the order of the tab key: past the head, into the machine.
    page.press("Tab", 9);
    page.until("document.activeElement.className === 'skip'");
    page.press("Enter", 13);
    page.until("document.activeElement.id === 'main'");
    page.value("document.querySelector('#matrix').focus()");
    page.press("ArrowRight", 39);
    page.until("document.querySelector('#cell').textContent.startsWith('vCPU 0 → vCPU 1: ')");
    page.value("document.querySelector('#pause-modes input[value=act]').focus()");
    page.press("ArrowUp", 38);
    page.until("document.querySelector('#pause-modes input[value=observe]').checked");
    let nameless: Vec<_> = page
        .accessible()
        .into_iter()
        .filter(|(role, name)| ROLES.contains(&role.as_str()) && name.is_empty())
        .collect();
    assert_eq!(nameless, []);
    has_no_complaint(&page);
}

fn real() {
    let (guest, browser) = (Guest::start(4), Chromium::start());
    let page = open(&browser, &guest.url());
    page.until("document.querySelectorAll('#ledger tbody tr').length === 4");
    page.until("document.querySelector('#state').textContent === 'running'");
    page.until("document.querySelectorAll('#decisions li').length > 10");
    page.until("document.querySelectorAll('#host-map .cpu .chip').length === 4");
    let before = page.value(PASSED).as_f64().unwrap();
    page.until(&format!("{PASSED} > {before}"));
    pictures(&page, "guest");
    page.click("#pause-modes input[value=observe]");
    page.click("#pause-form button[type=submit]");
    page.until("document.querySelector('#confirm').open");
    page.click("#confirm-yes");
    page.until("document.querySelector('#outcome').innerText.startsWith('Done: mode act → observe')");
    page.until("[...document.querySelectorAll('.tile')].some((tile) => tile.innerText.startsWith('Yields\\n0'))");
    // The guest spins on, and nobody gives a CPU away for it. A decision may be under way while the mode changes.
    let seen = || guest.client().get::<Stats>("/api/v1/stats").unwrap().pause;
    let later = |events: u64| std::iter::repeat_with(seen).take(10_000).find(|pause| pause.events > events).unwrap();
    let mut last = seen();
    let settled = (0..100).any(|_| {
        let next = later(last.events + 10);
        let before = std::mem::replace(&mut last, next);
        before.yields.attempted == last.yields.attempted
    });
    assert!(settled, "yields go on: {last:?}");
    has_no_complaint(&page);
}

/// Keeps pictures of the page, if somebody wants them.
fn pictures(page: &Page<'_>, name: &str) {
    let Some(directory) = std::env::var_os("BROWSER_SHOTS").filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return;
    };
    std::thread::sleep(std::time::Duration::from_secs(20));
    for (width, height) in [(1440, 1000), (820, 1180), (390, 844)] {
        for scheme in ["light", "dark"] {
            page.size(width, height);
            page.scheme(scheme);
            std::thread::sleep(std::time::Duration::from_millis(1500));
            page.picture(&directory.join(format!("{name}-{width}-{scheme}.png")));
        }
    }
}
