// SPDX-License-Identifier: Apache-2.0
//! The parser against the printer, and against what a hostile guest could send.

use proptest::prelude::*;

use super::*;
use crate::command_line::{Ring, Workload};
use crate::record::*;
use crate::value::{Bytes, Milli};

fn parsed(line: &str) -> Result<Record, ParseError> {
    parse_line(line.as_bytes()).expect("a line with the prefix")
}

#[test]
fn a_line_of_the_documentation_is_read() {
    let line = "@probe cpu index=5 apic_id=9 package=1 die=0 cluster=0 core=0 thread=1 node=1 l1d=2 l1i=2 l2=2 l3=-\r";
    let cpu = Cpu {
        index: 5,
        apic_id: 9,
        package: 1,
        die: 0,
        cluster: 0,
        core: 0,
        thread: 1,
        node: Some(1),
        l1d: Some(2),
        l1i: Some(2),
        l2: Some(2),
        l3: None,
    };
    assert_eq!(parsed(line), Ok(Record::Cpu(cpu)));
    assert_eq!(parsed("@probe done status=ok"), Ok(Record::Done(Done { status: Status::Ok })));
}

#[test]
fn other_output_is_not_a_record() {
    for line in ["", "hello", "@probe", "@probes cpu", " @probe cpu", "[    0.0] @probe done status=ok"] {
        assert_eq!(parse_line(line.as_bytes()), None, "{line:?}");
    }
}

#[test]
fn fields_of_a_newer_guest_are_skipped() {
    let record = Record::Missing(Missing { index: 1, apic_id: 2 });
    assert_eq!(parsed("@probe missing index=1 apic_id=2 colour=green"), Ok(record));
}

#[test]
fn every_way_to_be_wrong_has_its_error() {
    let word = |text: &str| Word::new(text.as_bytes());
    assert_eq!(parsed("@probe nonsense"), Err(ParseError::UnknownKind { kind: word("nonsense") }));
    assert_eq!(parsed("@probe missing index=1"), Err(ParseError::MissingField { key: "apic_id" }));
    let bad = |value: &str| Err(ParseError::BadValue { key: "index", value: word(value) });
    assert_eq!(parsed("@probe missing index=+1 apic_id=2"), bad("+1"));
    assert_eq!(parsed("@probe missing index=4294967296 apic_id=2"), bad("4294967296"));
    assert_eq!(parsed("@probe missing index= apic_id=2"), bad(""));
    assert_eq!(parsed("@probe missing index"), Err(ParseError::BadField { field: word("index") }));
    let twice = "@probe missing index=1 index=2 apic_id=2";
    assert_eq!(parsed(twice), Err(ParseError::BadField { field: word("index=2") }));
    assert_eq!(parsed("@probe done\tstatus=ok"), Err(ParseError::NotText { position: 11 }));
    let long = format!("@probe error reason={} detail=x", "x".repeat(LINE_MAX));
    assert_eq!(parsed(&long), Err(ParseError::TooLong { len: long.len() }));
}

#[test]
fn no_line_of_the_guest_is_longer_than_what_is_read() {
    let most = Some(u64::MAX);
    let longest = Outcome {
        workload: Workload::TripleFault,
        cpl: Ring::User,
        port: true,
        spins: u32::MAX,
        cpus: u32::MAX,
        us: u64::MAX,
        operations: u64::MAX,
        operations_per_s: u64::MAX,
        port_writes: u64::MAX,
        writes_per_operation: Some(Milli(u64::MAX)),
        spin_us: most,
        wait_p50_ns: most,
        wait_p99_ns: most,
        wait_p999_ns: most,
        jain: Some(Milli(u64::MAX)),
    };
    assert!(longest.to_string().len() <= LINE_MAX);
    let row = Distance { from: u32::MAX, to: u32::MAX, values: Bytes::new([255; Bytes::MAX].into_iter()) };
    assert!(row.to_string().len() <= LINE_MAX);
}

fn outcome() -> impl Strategy<Value = Record> {
    let optional = || prop::option::of(any::<u64>());
    let all = (
        prop::sample::select(Workload::ALL),
        prop::sample::select(Ring::ALL),
        any::<(bool, u32, u32, u64, u64, u64)>(),
        any::<u64>(),
        [optional(), optional(), optional(), optional(), optional(), optional()],
    );
    all.prop_map(|(workload, cpl, (port, spins, cpus, us, operations, operations_per_s), port_writes, rest)| {
        let [spin_us, wait_p50_ns, wait_p99_ns, wait_p999_ns, writes, jain] = rest;
        let (writes_per_operation, jain) = (writes.map(Milli), jain.map(Milli));
        Record::Outcome(Outcome {
            workload,
            cpl,
            port,
            spins,
            cpus,
            us,
            operations,
            operations_per_s,
            port_writes,
            writes_per_operation,
            spin_us,
            wait_p50_ns,
            wait_p99_ns,
            wait_p999_ns,
            jain,
        })
    })
}

fn record() -> impl Strategy<Value = Record> {
    let word = || prop::collection::vec(any::<u8>(), 0..80).prop_map(|bytes| Word::new(&bytes));
    let row = prop::collection::vec(any::<u8>(), 0..=Bytes::MAX);
    prop_oneof![
        outcome(),
        (word(), word()).prop_map(|(reason, detail)| Record::Error(Error { reason, detail })),
        (any::<u32>(), any::<u32>(), row).prop_map(|(from, to, row)| {
            Record::Distance(Distance { from, to, values: Bytes::new(row.into_iter()) })
        }),
        any::<(u32, u64, u64, Option<u64>)>().prop_map(|(index, operations, port_writes, spin_us)| {
            Record::Worker(Worker { index, operations, port_writes, spin_us })
        }),
        prop::sample::select(Status::ALL).prop_map(|status| Record::Done(Done { status })),
    ]
}

/// Text that gets past the prefix more often than chance would have it.
fn hostile_line() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec("[a-z_]{0,9}=?[-0-9a-z.,]{0,24}", 0..40);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2 * LINE_MAX),
        prop::collection::vec(any::<u8>(), 0..LINE_MAX).prop_map(|tail| [b"@probe ", tail.as_slice()].concat()),
        (prop::sample::select(vec!["cpu", "node", "distance", "result", "done", "boot"]), words)
            .prop_map(|(kind, words)| format!("@probe {kind} {}", words.join(" ")).into_bytes()),
    ]
}

proptest! {
    #[test]
    fn what_the_guest_prints_is_read_back(record in record()) {
        prop_assert_eq!(parsed(&record.to_string()), Ok(record));
    }

    #[test]
    fn hostile_output_never_panics_and_its_error_is_bounded(line in hostile_line()) {
        if let Some(Err(error)) = parse_line(&line) {
            prop_assert!(error.to_string().len() < 256, "{}", error);
        }
    }

    #[test]
    fn a_damaged_line_never_panics(record in record(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = record.to_string().into_bytes();
        *at.get_mut(&mut line) = byte;
        let _ = parse_line(&line).is_some_and(|result| result.is_ok());
    }
}
