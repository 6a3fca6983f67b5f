// SPDX-License-Identifier: Apache-2.0
//! Where time went and what KVM counted: turned into the report, and told to a person as a table.

use std::collections::BTreeMap;
use std::fmt;

use crate::kvm::stats::{Descriptor, Layout, Reading, Stats, StatsError};
use crate::report::{CounterValue, KvmCounter, KvmStats, LedgerReport, VcpuReport};

/// A machine of more vCPUs is told in one line: the mean of all.
const ROWS_MAX: usize = 8;

/// KVM's counters of a VM and what all of them mean; `vcpu` are those of any vCPU.
pub(super) fn of_vm(vm: Result<Stats, StatsError>, vcpu: Option<Result<&Stats, &StatsError>>) -> KvmStats {
    let read = vm.and_then(|stats| Ok((described(stats.layout(), "vm"), values(&stats.read()?))));
    match read {
        Ok((mut counters, vm)) => {
            let missing = match vcpu {
                Some(Ok(stats)) => {
                    counters.extend(described(stats.layout(), "vcpu"));
                    None
                }
                Some(Err(error)) => Some(error.to_string()),
                None => None,
            };
            KvmStats { counters, vm, missing }
        }
        Err(error) => KvmStats { missing: Some(error.to_string()), ..KvmStats::default() },
    }
}

/// KVM's counters of a vCPU; empty where there are none, [`KvmStats::missing`] says why.
pub(super) fn of_vcpu(stats: Result<&Stats, &StatsError>) -> BTreeMap<String, CounterValue> {
    stats.ok().and_then(|stats| stats.read().ok()).map(|reading| values(&reading)).unwrap_or_default()
}

fn described(layout: &Layout, scope: &str) -> Vec<KvmCounter> {
    let counter = |descriptor: &Descriptor| KvmCounter {
        name: descriptor.name.to_string(),
        scope: scope.to_owned(),
        kind: descriptor.kind.name().to_owned(),
        unit: descriptor.unit_name(),
    };
    layout.descriptors().iter().map(counter).collect()
}

fn values(reading: &Reading) -> BTreeMap<String, CounterValue> {
    let counters = reading.iter().filter_map(|(descriptor, values)| {
        let values: Vec<u64> = values.collect();
        let used = values.iter().rposition(|value| *value != 0)? + 1;
        let value = match values[..] {
            [one] => CounterValue::One(one),
            _ => CounterValue::Buckets(values[..used].to_vec()),
        };
        Some((descriptor.name.to_string(), value))
    });
    counters.collect()
}

/// The table: a row a vCPU, or one for all.
pub(super) fn tell(f: &mut fmt::Formatter<'_>, vcpus: &[VcpuReport]) -> fmt::Result {
    if vcpus.iter().all(|vcpu| terms(&vcpu.ledger_ns) == [0; 6]) {
        return Ok(());
    }
    writeln!(f, "  time         seconds   guest  halted polling waiting  kernel    user")?;
    if vcpus.len() <= ROWS_MAX {
        return vcpus.iter().try_for_each(|vcpu| row(f, &format!("vcpu{}", vcpu.index), terms(&vcpu.ledger_ns)));
    }
    let all = vcpus.iter().map(|vcpu| terms(&vcpu.ledger_ns));
    let sum = all.fold([0; 6], |sum, one| std::array::from_fn(|at| sum[at] + one[at]));
    row(f, &format!("{} vcpus", vcpus.len()), sum)
}

/// The terms in the order of the table.
fn terms(ledger: &LedgerReport) -> [u64; 6] {
    ledger.terms().map(|(_, ns)| ns)
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, terms: [u64; 6]) -> fmt::Result {
    let total: u64 = terms.iter().sum();
    write!(f, "  {name:<10} {:>5}.{:03}", total / 1_000_000_000, total / 1_000_000 % 1000)?;
    for term in terms {
        let permille = u128::from(term) * 1000 / u128::from(total.max(1));
        write!(f, " {:>4}.{}%", permille / 10, permille % 10)?;
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PauseReport;

    struct Table(Vec<VcpuReport>);

    impl fmt::Display for Table {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            tell(f, &self.0)
        }
    }

    fn vcpus(count: u32) -> Table {
        let ledger_ns =
            LedgerReport { guest: 900_000_000, halted: 98_000_000, user: 2_000_000, ..LedgerReport::default() };
        let vcpu = |index| VcpuReport {
            index,
            apic_id: index,
            tid: 1,
            exits: BTreeMap::new(),
            run_loop_ns: 1_000_000_000,
            ledger_ns,
            kvm_stats: BTreeMap::new(),
            placement: None,
            pause: PauseReport::default(),
        };
        Table((0..count).map(vcpu).collect())
    }

    #[test]
    fn few_vcpus_have_a_row_each_and_many_one_for_all() {
        assert_eq!(
            vcpus(1).to_string(),
            "  time         seconds   guest  halted polling waiting  kernel    user\n\
             \x20 vcpu0          1.000   90.0%    9.8%    0.0%    0.0%    0.0%    0.2%\n"
        );
        assert_eq!(vcpus(8).to_string().lines().count(), 9);
        let many = vcpus(255).to_string();
        assert_eq!(many.lines().count(), 2);
        assert!(many.contains("255 vcpus    255.000   90.0%"), "{many}");
    }

    #[test]
    fn a_machine_that_never_ran_has_no_table() {
        let mut table = vcpus(2);
        table.0.iter_mut().for_each(|vcpu| vcpu.ledger_ns = LedgerReport::default());
        assert_eq!(table.to_string(), "");
    }
}
