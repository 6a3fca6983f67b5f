// SPDX-License-Identifier: Apache-2.0
//! The kernel's own handling of pause loops: `kvm_vcpu_on_spin`, now and in 3.8, and `yield_to`.
//!
//! Invariant: the handler looks at runqueues without their locks and pays for the locks it takes, waiting included.

use super::state::{Segment, State, Wait};
use super::world::World;
use crate::guest::Handler;

/// Failed looks after which the kernel's handler gives up (`try`, virt/kvm/kvm_main.c).
const KERNEL_TRIES: u32 = 3;

impl World {
    /// The kernel's handler of a pause-loop exit (`kvm_vcpu_on_spin`, 6.12 and later).
    pub(crate) fn on_spin(&mut self, cpu: usize, task: usize) {
        let vm = self.tasks[task].vm;
        let (first, count) = (self.vms[vm].first, self.vms[vm].vm.vcpus);
        let bail_out = self.vms[vm].vm.arm.bail_out;
        let old = self.vms[vm].vm.arm.handler == Handler::Linux38;
        let start = self.vms[vm].last_boosted + 1;
        let (mut cost, mut tries) = (0, KERNEL_TRIES);
        // Until it is back in the guest: whoever looks at it meanwhile finds it spinning.
        self.tasks[task].in_spin_loop = true;
        for step in 0..count {
            let other = first + (start + step) % count;
            if other == task
                || !(if old { self.was_candidate(cpu, other, &mut cost) } else { self.is_candidate(other) })
            {
                continue;
            }
            if bail_out && self.both_alone(cpu, other) {
                tries -= 1;
                if tries == 0 {
                    break;
                }
                continue;
            }
            cost += self.lock_both(cpu, self.tasks[other].cpu, cost);
            self.vms[vm].counts.kernel_attempted += 1;
            if self.tasks[other].state == State::Queued {
                self.vms[vm].last_boosted = other - first;
                self.vms[vm].counts.kernel_boosted += 1;
                return self.yield_to(cpu, other, cost);
            }
        }
        self.after_kernel(cpu, task, cost);
    }

    /// Whether the handler of 3.8 tries `other`: neither halted nor in guest mode, and eligible. Adds what looking costs.
    fn was_candidate(&mut self, cpu: usize, other: usize, cost: &mut u64) -> bool {
        let there = self.tasks[other].cpu;
        let (spins, eligible, state) = {
            let one = &self.tasks[other];
            (one.in_spin_loop, one.eligible, one.state)
        };
        if matches!(state, State::Halted | State::Parked) {
            return false;
        }
        if spins {
            self.tasks[other].eligible = !eligible;
            if !eligible {
                return false;
            }
        }
        *cost += 2 * self.params.line_ns[self.host.distance(there, cpu) as usize];
        state == State::Queued || !self.cpus[there].segment.in_guest()
    }

    /// Whether the kernel's handler considers `other`: ready, not halted with nothing pending, in kernel mode, eligible.
    fn is_candidate(&mut self, other: usize) -> bool {
        let one = &mut self.tasks[other];
        // `ready`: off CPU and runnable. What runs may still look ready for a moment, which is how the handler came to
        // try tasks that needed no help before the bail-out; that moment is the switch to it.
        let switching = one.state == State::Running && self.cpus[one.cpu].segment == Segment::Switch;
        if one.state != State::Queued && !switching {
            return false;
        }
        if one.preempted && !one.kernel && one.interrupts.is_empty() {
            return false;
        }
        if !one.in_spin_loop && one.wait == Wait::Nothing {
            return true;
        }
        let eligible = !one.in_spin_loop || one.eligible;
        if one.in_spin_loop {
            one.eligible = !one.eligible;
        }
        eligible
    }

    pub(crate) fn length(&self, cpu: usize) -> usize {
        self.cpus[cpu].queue.waiting.len() + usize::from(self.cpus[cpu].current.is_some())
    }

    pub(crate) fn both_alone(&self, cpu: usize, other: usize) -> bool {
        self.length(cpu) == 1 && self.length(self.tasks[other].cpu) == 1
    }

    /// Takes both runqueue locks after `spent` ns, and says how long that took with the waiting.
    pub(crate) fn lock_both(&mut self, a: usize, b: usize, spent: u64) -> u64 {
        let from = self.now + spent;
        let free = from.max(self.cpus[a].lock_free).max(self.cpus[b].lock_free) + self.params.yield_to_ns;
        self.cpus[a].lock_free = free;
        self.cpus[b].lock_free = free;
        free - from
    }

    /// Favours `other`, which waits, and yields.
    pub(crate) fn yield_to(&mut self, cpu: usize, other: usize, cost: u64) {
        let there = self.tasks[other].cpu;
        if self.params.next_buddy {
            self.cpus[there].queue.buddy = u32::try_from(other).ok();
            if there != cpu {
                self.resched(there);
            }
        }
        self.yield_now(cpu, cost);
    }
}
