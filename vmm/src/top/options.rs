// SPDX-License-Identifier: Apache-2.0
//! What is shown of a sample, and how keys change it. Pure.

use std::cmp::Ordering;

use super::keys::Key;
use super::sample::Row;
use crate::config::client::Column;

/// Longest filter that can be typed.
const LONGEST: usize = 40;

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) sort: Column,
    pub(super) reversed: bool,
    /// Rows that do not match are left out.
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    /// No new look is shown.
    pub(super) frozen: bool,
    /// Rows above the first that is shown.
    pub(super) first: usize,
    /// Why the last look failed.
    pub(super) trouble: Option<String>,
}

impl Options {
    pub(super) fn new(sort: Column, filter: &str) -> Self {
        let filter = filter.to_owned();
        Self { sort, reversed: false, filter, typing: false, frozen: false, first: 0, trouble: None }
    }

    /// Takes a key, `page` being the rows that fit; whether it ends the view.
    pub(super) fn take(&mut self, key: Key, page: usize) -> bool {
        if key == Key::Interrupt {
            return true;
        }
        if self.typing {
            self.typed(key);
            return false;
        }
        match key {
            Key::Char('q' | 'Q') => return true,
            Key::Char('s') => self.sort = next(self.sort),
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Char('p' | ' ') => self.frozen = !self.frozen,
            Key::Char('/' | 'f') => self.typing = true,
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Char('k') => self.first = self.first.saturating_sub(1),
            Key::Down | Key::Char('j') => self.first = self.first.saturating_add(1),
            Key::PageUp => self.first = self.first.saturating_sub(page),
            Key::PageDown => self.first = self.first.saturating_add(page),
            Key::Home => self.first = 0,
            Key::End => self.first = usize::MAX,
            Key::Char(_) | Key::Enter | Key::Backspace | Key::Interrupt => {}
        }
        false
    }

    fn typed(&mut self, key: Key) {
        match key {
            Key::Char(one) if self.filter.len() < LONGEST => self.filter.push(one),
            Key::Backspace => _ = self.filter.pop(),
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
        self.first = 0;
    }

    /// The rows that match, in their order.
    pub(super) fn choose<'a>(&self, rows: &'a [Row]) -> Vec<&'a Row> {
        let mut chosen: Vec<&Row> = rows.iter().filter(|row| self.matches(row)).collect();
        // Stable, so that equal rows stay in the order of the index.
        chosen.sort_by(|a, b| compare(self.sort, a, b));
        if self.reversed {
            chosen.reverse();
        }
        chosen
    }

    fn matches(&self, row: &Row) -> bool {
        let wanted = self.filter.trim();
        let of_cpu = |number: &str| number.parse().ok().is_some_and(|number: u32| row.cpu == Some(number));
        match (wanted.strip_prefix("cpu="), wanted.parse::<u32>()) {
            (Some(number), _) => of_cpu(number),
            (None, Ok(index)) => row.index == index,
            (None, Err(_)) => row.state.starts_with(wanted),
        }
    }
}

fn next(column: Column) -> Column {
    match column {
        Column::Index => Column::Cpu,
        Column::Cpu => Column::Guest,
        Column::Guest => Column::Halted,
        Column::Halted => Column::Waiting,
        Column::Waiting => Column::Spin,
        Column::Spin => Column::Events,
        Column::Events => Column::Yields,
        Column::Yields => Column::Index,
    }
}

/// As it is shown.
pub(super) const fn name(column: Column) -> &'static str {
    match column {
        Column::Index => "index",
        Column::Cpu => "cpu",
        Column::Guest => "guest",
        Column::Halted => "halted",
        Column::Waiting => "waiting",
        Column::Spin => "spin",
        Column::Events => "events",
        Column::Yields => "yields",
    }
}

fn compare(column: Column, a: &Row, b: &Row) -> Ordering {
    match column {
        Column::Index => a.index.cmp(&b.index),
        Column::Cpu => a.cpu.cmp(&b.cpu),
        Column::Guest => b.shares.guest.cmp(&a.shares.guest),
        Column::Halted => b.shares.halted.cmp(&a.shares.halted),
        Column::Waiting => b.shares.waiting.cmp(&a.shares.waiting),
        Column::Spin => b.shares.spin.cmp(&a.shares.spin),
        Column::Events => b.rates.events.total_cmp(&a.rates.events),
        Column::Yields => b.rates.yields.total_cmp(&a.rates.yields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::{Rates, Shares};

    fn rows() -> Vec<Row> {
        let row = |(index, state, cpu, guest)| Row {
            index,
            tid: None,
            state,
            cpu: Some(cpu),
            shares: Shares { guest, ..Shares::default() },
            rates: Rates::default(),
        };
        [(0, "running", 1, 10), (1, "halted", 0, 30), (2, "running", 0, 20)].map(row).to_vec()
    }

    fn shown(options: &Options) -> Vec<u32> {
        options.choose(&rows()).iter().map(|row| row.index).collect()
    }

    fn typed(keys: &str) -> Options {
        let mut options = Options::new(Column::Index, "");
        for key in keys.chars() {
            let key = if key == '\n' { Key::Enter } else { Key::Char(key) };
            assert!(!options.take(key, 10));
        }
        options
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_the_keys_chose() {
        assert_eq!(shown(&typed("")), [0, 1, 2]);
        assert_eq!(shown(&typed("s")), [1, 2, 0]);
        assert_eq!(shown(&typed("ss")), [1, 2, 0]);
        assert_eq!(shown(&typed("ssr")), [0, 2, 1]);
        assert_eq!(typed("ssssssss").sort, Column::Index, "once around");
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        assert_eq!(shown(&typed("/run\n")), [0, 2]);
        assert_eq!(shown(&typed("/cpu=0\n")), [1, 2]);
        assert_eq!(shown(&typed("/2\n")), [2]);
        let mut options = typed("/sq");
        assert_eq!((options.filter.as_str(), options.typing), ("sq", true), "keys are text while it is typed");
        options.take(Key::Escape, 1);
        assert_eq!((options.filter.as_str(), options.typing), ("", false));
    }

    #[test]
    fn the_view_ends_and_freezes_by_a_key() {
        let mut options = typed("p");
        assert!(options.frozen);
        assert!(options.take(Key::Char('q'), 1));
        options.typing = true;
        assert!(options.take(Key::Interrupt, 1), "Ctrl-C ends it even while a filter is typed");
    }
}
