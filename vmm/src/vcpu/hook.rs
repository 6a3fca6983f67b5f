// SPDX-License-Identifier: Apache-2.0
//! What is told of a vCPU's comings and goings, on its own thread. The run loop knows no more of the pause handling.

use crate::kvm::vcpu::Vcpu;

/// Called by the thread of one vCPU, in the order of the methods.
pub trait VcpuHook: Send {
    /// The thread has begun, and has a vCPU.
    fn begin(&mut self, tid: i32, vcpu: &mut Vcpu);

    /// The guest is about to be entered. May block for a bounded time; a kick ends that.
    fn entering(&mut self);

    /// Whether the thread has let go of its CPU on purpose since this was last asked.
    fn let_go_of_cpu(&mut self) -> bool;

    /// Whether a write to a port is a pause event; then [`VcpuHook::pause`] follows.
    fn takes(&mut self, port: u16, data: &[u8]) -> bool;

    /// The guest has reported a pause loop. May block for a bounded time; a kick ends that.
    fn pause(&mut self, vcpu: &mut Vcpu);

    /// A signal ended the run of the guest: a pause event, a look, or a request for somebody else.
    fn interrupted(&mut self, vcpu: &mut Vcpu);

    /// No guest code is run until further notice.
    fn resting(&mut self);

    /// The thread is at its end.
    fn ended(&mut self);
}
