// SPDX-License-Identifier: Apache-2.0
//! The parser against a description laid out as the kernel's, and against damage.

use proptest::prelude::*;

use super::*;

/// Flags, exponent, number of values, offset, bucket size, name.
type Row = (u32, i16, u16, u32, u32, &'static str);

/// Five rows as Linux 6.18 writes them, and one of a future kernel.
const ROWS: [Row; 6] = [
    (0x000, 0, 1, 904, 0, "exits"),
    (0x020, -9, 1, 48, 0, "halt_wait_ns"),
    (0x024, -9, 32, 568, 0, "halt_wait_hist"),
    (0x041, 0, 1, 824, 0, "blocking"),
    (0x002, 0, 1, 912, 0, "max_mmu_rmap_size"),
    (0xFFF, 3, 1, 920, 7, "later"),
];

fn file(rows: &[Row]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let count = u32::try_from(rows.len()).unwrap();
    for word in [0, 48, count, 24, 72, 72 + count * 64] {
        bytes.extend(word.to_ne_bytes());
    }
    let named = |bytes: &mut Vec<u8>, name: &str| {
        bytes.extend(name.bytes());
        bytes.resize(bytes.len() + 48 - name.len(), 0);
    };
    named(&mut bytes, "kvm-4711/vcpu-0");
    for (flags, exponent, values, offset, bucket, name) in rows {
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(exponent.to_ne_bytes());
        bytes.extend(values.to_ne_bytes());
        bytes.extend(offset.to_ne_bytes());
        bytes.extend(bucket.to_ne_bytes());
        named(&mut bytes, name);
    }
    bytes
}

#[test]
fn a_description_reads_as_the_kernel_wrote_it() {
    let layout = Layout::parse(&file(&ROWS)).unwrap();
    let tell = |d: &Descriptor| format!("{} {} {} x{}", d.name, d.kind.name(), d.unit_name(), d.values);
    let told: Vec<String> = layout.descriptors().iter().map(tell).collect();
    assert_eq!(
        told,
        [
            "exits cumulative count x1",
            "halt_wait_ns cumulative ns x1",
            "halt_wait_hist log_histogram ns x32",
            "blocking instant boolean x1",
            "max_mmu_rmap_size peak count x1",
            "later unknown base 15 ^3 unknown x1",
        ]
    );
    assert_eq!((layout.data_offset(), layout.data_bytes()), (72 + 6 * 64, 928));
}

#[test]
fn values_are_found_by_name_and_times_are_nanoseconds_whatever_their_exponent() {
    let mut descriptor = Layout::parse(&file(&ROWS)).unwrap().find("halt_wait_ns").unwrap().clone();
    let mut data = vec![0; 928];
    data[48..56].copy_from_slice(&4711u64.to_ne_bytes());
    assert_eq!(values(&descriptor, &data).collect::<Vec<_>>(), [4711]);
    assert_eq!(descriptor.to_ns(4711), Some(4711));
    descriptor.exponent = -6;
    assert_eq!(descriptor.to_ns(3), Some(3000));
    descriptor.exponent = -12;
    assert_eq!(descriptor.to_ns(3999), Some(3));
    descriptor.exponent = i16::MAX;
    assert_eq!(descriptor.to_ns(1), Some(u64::MAX));
    descriptor.unit = Unit::Cycles;
    assert_eq!(descriptor.to_ns(1), None);
}

#[test]
fn each_way_to_be_wrong_has_its_error() {
    let with = |at: usize, value: u32| {
        let mut bytes = file(&ROWS);
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        Layout::parse(&bytes).unwrap_err()
    };
    assert_eq!(with(4, 0), FormatError::NameSize { bytes: 0 });
    assert_eq!(with(8, u32::MAX), FormatError::Descriptors { count: u32::MAX });
    assert!(matches!(with(16, u32::MAX), FormatError::Place { block: "description", .. }));
    assert!(matches!(with(8, 7), FormatError::Truncated { needed: 520, have: 456 }));
    assert!(matches!(with(72 + 8, u32::MAX), FormatError::Place { block: "data", .. }));
    assert_eq!(with(72 + 16, 0), FormatError::Name { descriptor: 0 });
}

#[test]
fn a_description_cut_short_at_any_length_is_refused() {
    let whole = file(&ROWS);
    for length in 0..whole.len() {
        assert!(matches!(Layout::parse(&whole[..length]), Err(FormatError::Truncated { .. })), "{length}");
    }
}

proptest! {
    #[test]
    fn damaged_bytes_never_reach_outside(
        damage in prop::collection::vec((0usize..456, any::<u8>()), 1..12),
        data in prop::collection::vec(any::<u8>(), 0..1000),
    ) {
        let mut bytes = file(&ROWS);
        for (at, value) in damage {
            bytes[at] = value;
        }
        if let Ok(layout) = Layout::parse(&bytes) {
            prop_assert!(layout.data_bytes() <= DATA_MAX);
            for descriptor in layout.descriptors() {
                prop_assert!(values(descriptor, &data).count() <= data.len() / 8);
                prop_assert!(!descriptor.name.is_empty());
            }
        }
    }

    #[test]
    fn any_bytes_are_a_description_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(layout) = Layout::parse(&bytes) {
            prop_assert!(layout.header().prefix_bytes().unwrap() <= bytes.len());
        }
    }
}
