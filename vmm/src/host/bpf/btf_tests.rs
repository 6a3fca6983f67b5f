// SPDX-License-Identifier: Apache-2.0
//! The reader against a small description of types made here, and against damage.

use proptest::prelude::*;

use super::*;

const STRINGS: &[u8] = b"\0int\0rq\0lock\0nr_running\0inner\0flag\0bpf_task_from_pid\0cfs_rq\0";

fn name(text: &str) -> u32 {
    let with_end = [text.as_bytes(), &[0]].concat();
    let at = STRINGS.windows(with_end.len()).position(|window| window == with_end);
    u32::try_from(at.expect("the name is in the table")).unwrap()
}

/// int; struct rq { int lock; union { int inner; }; int nr_running; int flag:1; }; its union; a function.
fn btf() -> Vec<u8> {
    const FLAGGED: u32 = 1 << 31;
    let types: Vec<u32> = [
        vec![name("int"), 1 << 24, 4, 0x2000_0020],
        vec![name("rq"), FLAGGED | 4 << 24 | 4, 16],
        vec![name("lock"), 1, 0, 0, 3, 32, name("nr_running"), 1, 64, name("flag"), 1, 1 << 24 | 96],
        vec![0, 5 << 24 | 1, 4, name("inner"), 1, 0],
        vec![name("bpf_task_from_pid"), 12 << 24, 0],
        vec![0, 13 << 24 | 1, 0, 0, 1],
        vec![name("cfs_rq"), 4 << 24, 0],
    ]
    .concat();
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    let length = u32::try_from(types.len() * 4).unwrap();
    for word in [24, 0, length, length, u32::try_from(STRINGS.len()).unwrap()] {
        bytes.extend(word.to_ne_bytes());
    }
    types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend(STRINGS);
    bytes
}

#[test]
fn ids_and_offsets_are_found_by_name() {
    let bytes = btf();
    let btf = Btf::parse(&bytes).unwrap();
    let ids = btf.find([
        (Kind::Struct, "rq"),
        (Kind::Function, "bpf_task_from_pid"),
        (Kind::Struct, "cfs_rq"),
        (Kind::Function, "rq"),
        (Kind::Struct, "r"),
    ]);
    assert_eq!(ids, [Some(2), Some(4), Some(6), None, None]);
    assert_eq!(btf.member_offset(2, "lock"), Ok(0));
    assert_eq!(btf.member_offset(2, "inner"), Ok(4), "through the anonymous union");
    assert_eq!(btf.member_offset(2, "nr_running"), Ok(8));
    assert_eq!(btf.member_offset(2, "flag"), Err(BtfError::BitField("flag".to_owned())));
    assert_eq!(btf.member_offset(2, "nr"), Err(BtfError::Absent("nr".to_owned())));
    assert_eq!(btf.member_offset(0, "lock"), Err(BtfError::Absent("lock".to_owned())));
}

#[test]
fn an_anonymous_structure_that_holds_itself_ends_the_search() {
    let mut bytes = btf();
    // The union's only member becomes anonymous and of the union's own type.
    let at = 24 + (4 + 3 + 12 + 3) * 4;
    bytes[at..at + 8].copy_from_slice(&[0, 0, 0, 0, 3, 0, 0, 0]);
    assert!(Btf::parse(&bytes).unwrap().member_offset(2, "inner").is_err());
}

#[test]
fn what_is_not_btf_is_refused() {
    assert_eq!(Btf::parse(&[]).unwrap_err(), BtfError::Truncated { what: "the header" });
    assert_eq!(Btf::parse(&[0; 64]).unwrap_err(), BtfError::Magic { found: 0, version: 0 });
    let mut bytes = btf();
    bytes[24 + 4 + 3] = 31;
    assert_eq!(Btf::parse(&bytes).unwrap_err(), BtfError::UnknownKind { id: 1, kind: 31 });
    let whole = btf();
    for length in 0..whole.len() {
        assert!(matches!(Btf::parse(&whole[..length]), Err(BtfError::Truncated { .. })), "{length}");
    }
}

proptest! {
    #[test]
    fn damaged_bytes_never_reach_outside(damage in prop::collection::vec((0usize..228, any::<u8>()), 1..8)) {
        let mut bytes = btf();
        for (at, value) in damage {
            bytes[at] = value;
        }
        if let Ok(btf) = Btf::parse(&bytes) {
            let ids = btf.find([(Kind::Struct, "rq"), (Kind::Function, "bpf_task_from_pid")]);
            prop_assert!(ids.iter().flatten().all(|id| *id as usize <= bytes.len() / TYPE_BYTES));
            for id in 0..16 {
                let _ = btf.member_offset(id, "nr_running");
            }
        }
    }
}
