// SPDX-License-Identifier: Apache-2.0
//! From the decision log of a guest to what an experiment keeps of it. Pure.

use ::experiment::look::{Decided, Deed, LookRecord};
use ::experiment::sample::GuestSample;
use policy::pause::log::{LogError, Reader, Record};
use policy::pause::{Act, How};
use policy::time::Nanos;

/// What the log says about the run `name` of a guest. A log that was cut off counts as far as it goes: the guest ended meanwhile.
///
/// # Errors
/// The bytes are no log.
pub(super) fn of(name: &str, guest: &GuestSample, bytes: &[u8]) -> Result<LookRecord, LogError> {
    let mut reader = Reader::new(bytes)?;
    let (mut decisions, mut first) = (Vec::new(), None);
    loop {
        match reader.next_record() {
            Ok(None) | Err(LogError::Truncated { .. }) => break,
            Ok(Some(Record::Outcome { .. })) => {}
            Ok(Some(Record::Decision { now, event, decision })) => {
                let (deed, target) = deed(decision.act);
                let since: Nanos = *first.get_or_insert(now);
                decisions.push(Decided { at_us: microseconds(now.since(since)), vcpu: event.source.0, deed, target });
            }
            Err(error) => return Err(error),
        }
    }
    let ledger = guest.vcpus.iter().map(|vcpu| vcpu.ledger_ns).collect();
    Ok(LookRecord::of(name, ledger, &decisions))
}

#[expect(clippy::cast_precision_loss, reason = "a run of minutes is far below 2^53 ns")]
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn deed(act: Act) -> (Deed, Option<u32>) {
    match act {
        Act::YieldTo { target, how } => {
            let deed = match how {
                How::SchedYield | How::WakeThenYield | How::Hypercall => Deed::Yield,
                How::Wake => Deed::Wake,
                How::WakeAndPark { .. } => Deed::Park,
            };
            (deed, Some(target.0))
        }
        Act::Yield => (Deed::Yield, None),
        Act::Park { .. } => (Deed::Park, None),
        Act::Spin => (Deed::Spin, None),
        Act::Bail(_) => (Deed::Bail, None),
    }
}
