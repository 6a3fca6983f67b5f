// SPDX-License-Identifier: Apache-2.0
//! Sorting CPUs into groups by what each CPU's own file says about its neighbours.
//!
//! Invariant: the groups of a [`Partition`] are not empty, do not overlap, hold every CPU, and are in order of their
//! lowest CPU. Work is linear in the number of CPUs, however the text repeats itself.

use super::text::{clip, parse_list};
use super::{HostError, Level};
use crate::id::HostCpu;

/// CPUs by dense index, sorted into groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Group of every CPU.
    pub(super) of: Vec<usize>,
    /// CPUs of every group, ascending.
    pub(super) groups: Vec<Vec<usize>>,
}

impl Partition {
    /// Groups the CPUs that have the same key; groups are numbered by their lowest CPU.
    pub(super) fn by_key<K: Ord>(keys: impl Iterator<Item = K>) -> Self {
        let mut numbers = std::collections::BTreeMap::new();
        let (mut of, mut groups) = (Vec::new(), Vec::<Vec<usize>>::new());
        for (cpu, key) in keys.enumerate() {
            let group = *numbers.entry(key).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(cpu);
            of.push(group);
        }
        Self { of, groups }
    }

    /// The groups in which CPUs share both a group of `self` and one of `other`.
    pub(super) fn refine(&self, other: &Self) -> Self {
        Self::by_key(self.of.iter().zip(&other.of))
    }

    /// Two CPUs of one group of `self` that `outer` separates, if there are such.
    pub(super) fn torn_by(&self, outer: &Self) -> Option<(usize, usize)> {
        let torn = |group: &Vec<usize>| {
            let first = group[0];
            group.iter().find(|&&cpu| outer.of[cpu] != outer.of[first]).map(|&cpu| (first, cpu))
        };
        self.groups.iter().find_map(torn)
    }

    /// Fails if a group of `self` does not lie within one group of `outer`.
    pub(super) fn must_nest(&self, names: (Level, Level), outer: &Self, ids: &[HostCpu]) -> Result<(), HostError> {
        match self.torn_by(outer) {
            None => Ok(()),
            Some((a, b)) => Err(HostError::NotNested { inner: names.0, outer: names.1, cpu: ids[a], other: ids[b] }),
        }
    }
}

/// One level as its files tell it: the text of every CPU's file, where there is one.
pub(super) struct Claims<'a> {
    /// The level, for messages.
    pub(super) level: Level,
    /// Online CPUs, ascending.
    pub(super) ids: &'a [HostCpu],
    /// Path and content of every CPU's file.
    pub(super) texts: Vec<Option<(String, &'a str)>>,
}

impl<'a> Claims<'a> {
    /// How many CPUs have no file.
    pub(super) fn missing(&self) -> usize {
        self.texts.iter().filter(|text| text.is_none()).count()
    }

    /// Groups the CPUs as their files say. CPUs without a file are grouped as `fallback` groups them.
    ///
    /// A list that names offline CPUs is read as if it did not.
    pub(super) fn partition(&self, fallback: &Partition) -> Result<Partition, HostError> {
        let mut leader: Vec<Option<usize>> = vec![None; self.ids.len()];
        let mut leader_text: Vec<&'a str> = vec![""; self.ids.len()];
        for cpu in 0..self.ids.len() {
            let Some((path, text)) = &self.texts[cpu] else { continue };
            if let Some(first) = leader[cpu]
                && leader_text[first] == *text
            {
                continue;
            }
            let members = self.members(path, text)?;
            if members.binary_search(&cpu).is_err() {
                let (level, cpu) = (self.level, self.ids[cpu]);
                return Err(HostError::SpanWithoutSelf { level, cpu, text: clip(text) });
            }
            self.agree(cpu, &members, &leader)?;
            for &member in &members {
                leader[member] = Some(members[0]);
            }
            leader_text[members[0]] = text;
        }
        Ok(Partition::by_key((0..self.ids.len()).map(|cpu| match leader[cpu] {
            Some(first) => (0, first),
            None => (1, fallback.of[cpu]),
        })))
    }

    /// Fails unless nobody in `members` belongs to a group yet, or the group is exactly this one.
    fn agree(&self, cpu: usize, members: &[usize], leader: &[Option<usize>]) -> Result<(), HostError> {
        let asymmetric =
            |a: usize, b: usize| Err(HostError::Asymmetric { level: self.level, cpu: self.ids[a], other: self.ids[b] });
        let expected = leader[cpu];
        if let Some(&other) = members.iter().find(|&&member| leader[member] != expected) {
            return asymmetric(cpu, other);
        }
        let Some(first) = expected else { return Ok(()) };
        // The group exists already and was written differently: it must have the same members.
        let lost = (0..leader.len()).find(|&c| leader[c] == Some(first) && members.binary_search(&c).is_err());
        lost.map_or(Ok(()), |other| asymmetric(other, cpu))
    }

    /// Dense indices of the online CPUs that a list names.
    fn members(&self, path: &str, text: &str) -> Result<Vec<usize>, HostError> {
        let named = parse_list(path, text)?;
        Ok(named.iter().filter_map(|cpu| self.ids.binary_search(&cpu).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims<'a>(ids: &'a [HostCpu], texts: &[Option<&'a str>]) -> Claims<'a> {
        let texts = texts.iter().map(|text| text.map(|text| ("file".to_owned(), text))).collect();
        Claims { level: Level::Core, ids, texts }
    }

    const IDS: [HostCpu; 4] = [HostCpu(0), HostCpu(1), HostCpu(4), HostCpu(5)];

    fn alone() -> Partition {
        Partition::by_key(0..4)
    }

    #[test]
    fn groups_follow_the_lists_and_skip_offline_cpus() {
        let partition = claims(&IDS, &[Some("0,4"), Some("1-3,5"), Some("0,4"), Some("1,5")]).partition(&alone());
        assert_eq!(partition.unwrap().groups, [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn cpus_without_a_file_follow_the_fallback() {
        let together = Partition::by_key([7, 7, 7, 7].into_iter());
        let partition = claims(&IDS, &[Some("0-1"), None, None, None]).partition(&together).unwrap();
        assert_eq!(partition.groups, [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn a_list_without_its_own_cpu_is_refused() {
        let error = claims(&IDS, &[Some("1"), None, None, None]).partition(&alone()).unwrap_err();
        let text = "1".to_owned();
        assert_eq!(error, HostError::SpanWithoutSelf { level: Level::Core, cpu: HostCpu(0), text });
    }

    #[test]
    fn lists_that_disagree_are_refused() {
        for texts in [["0-1", "1", "4", "5"], ["0", "0-1", "4", "5"], ["0-1", "1,4", "1,4", "5"]] {
            let error = claims(&IDS, &texts.map(Some)).partition(&alone()).unwrap_err();
            assert!(matches!(error, HostError::Asymmetric { .. }), "{texts:?}: {error}");
        }
    }
}
