// SPDX-License-Identifier: Apache-2.0
//! The known name nearest to a mistyped one.
//!
//! Pure. Distance is Damerau-Levenshtein without regard to case, `-` and `_` being equal; a name is near if at most a
//! third of its letters, and at least one, must change.

/// The name of `known` nearest to `written`, the first of equals; none if nothing is near.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer than any name there is: the distance of a hostile key costs its length times that of every name.
    const LONGEST_WRITTEN: usize = 64;
    if written.len() > LONGEST_WRITTEN {
        return None;
    }
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let written = plain(written);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: [&str; 6] = ["cpus", "memory", "numa", "numa_distance", "kernel", "report"];

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        for (written, meant) in [
            ("cpu", "cpus"),
            ("cpsu", "cpus"),
            ("mem0ry", "memory"),
            ("numa-distance", "numa_distance"),
            ("NUMA", "numa"),
            ("distance", ""),
            ("kernal", "kernel"),
            ("colour", ""),
            ("", ""),
        ] {
            assert_eq!(nearest(written, KNOWN).unwrap_or(""), meant, "{written}");
        }
    }

    proptest! {
        #[test]
        fn a_known_name_is_nearest_to_itself(index in 0..KNOWN.len()) {
            prop_assert_eq!(nearest(KNOWN[index], KNOWN), Some(KNOWN[index]));
        }

        #[test]
        fn any_text_is_borne(written in ".*") {
            let _ = nearest(&written, KNOWN);
        }
    }
}
