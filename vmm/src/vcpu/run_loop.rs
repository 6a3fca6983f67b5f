// SPDX-License-Identifier: Apache-2.0
//! The run loop: run, see why it stopped, have it dealt with. Fits one screen, and knows no device and no policy.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Instant;

use super::control::{Mailbox, Request, State};
use super::counters::{ExitCounters, ExitKind};
use super::hook::VcpuHook;
use crate::kvm::exit::{Exit, InternalError};
use crate::kvm::vcpu::Vcpu;
use crate::ledger::meter::Meter;

/// What serves a guest's accesses; implemented by the device bus.
pub trait AccessHandler {
    /// The guest reads `data.len()` bytes from a port, `width` at a time.
    fn port_read(&self, port: u16, width: u8, data: &mut [u8]);
    /// The guest writes `data` to a port, `width` bytes at a time.
    fn port_write(&self, port: u16, width: u8, data: &[u8]);
    /// The guest reads an address that is not RAM.
    fn mmio_read(&self, gpa: u64, data: &mut [u8]);
    /// The guest writes an address that is not RAM.
    fn mmio_write(&self, gpa: u64, data: &[u8]);
}

/// How a vCPU came to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// Triple fault.
    TripleFault,
    /// A system event of KVM's own (`KVM_SYSTEM_EVENT_*`).
    SystemEvent {
        /// Its kind.
        kind: u32,
    },
    /// The processor refused to enter the guest.
    EntryFailed {
        /// Hardware's reason.
        hardware_reason: u64,
        /// Host CPU it happened on.
        host_cpu: u32,
    },
    /// KVM gave up.
    InternalError {
        /// What it said.
        error: InternalError,
        /// Where the guest was, when that could be read.
        rip: Option<u64>,
    },
    /// An exit that this monitor does not know, or did not ask for.
    UnknownExit {
        /// Its name.
        kind: &'static str,
        /// `kvm_run.exit_reason`, where it has a number.
        reason: u32,
    },
    /// `KVM_RUN` failed.
    RunFailed {
        /// The kernel's error number.
        errno: i32,
    },
}

/// One vCPU and what its loop needs.
pub struct RunLoop<'a, H, K> {
    /// The vCPU, owned by this thread.
    pub vcpu: Vcpu,
    /// Where requests come from.
    pub mailbox: &'a Mailbox,
    /// What the guest's accesses reach.
    pub accesses: &'a H,
    /// What is told of the vCPU's comings and goings.
    pub hook: K,
    /// Counted here, read elsewhere.
    pub exits: &'a ExitCounters,
    /// Times the calls of `KVM_RUN`.
    pub meter: &'a Meter,
    /// Set when the guest is entered for the first time.
    pub first_run: &'a OnceLock<Instant>,
}

impl<H: AccessHandler, K: VcpuHook> RunLoop<'_, H, K> {
    /// Created and paused: waits for a request. Gives the end when there is one.
    pub fn serve(&mut self) -> End {
        loop {
            let state = match self.mailbox.next() {
                Request::Run => State::Running,
                Request::Pause => State::Paused,
                Request::Nmi => {
                    self.vcpu.queue_nmi();
                    self.mailbox.state()
                }
                Request::Finish => return End::Asked,
            };
            self.mailbox.arrived(state);
            if state == State::Running {
                self.first_run.get_or_init(Instant::now);
                let end = self.run_guest();
                self.hook.resting();
                if let Some(end) = end {
                    return end;
                }
            }
        }
    }

    /// Running: runs guest code until a request waits (`None`) or the guest comes to an end.
    fn run_guest(&mut self) -> Option<End> {
        let mut stretch = self.meter.start();
        loop {
            // Cleared before looking: a kick after the look sets it again and the next KVM_RUN returns at once.
            self.vcpu.clear_immediate_exit();
            // The handler runs on this very thread, so it is enough that the compiler keeps the order.
            compiler_fence(Ordering::SeqCst);
            if self.mailbox.pending() {
                return None;
            }
            self.hook.entering();
            if self.hook.let_go_of_cpu() {
                stretch.let_go_of_cpu();
            }
            stretch.entering();
            let exit = self.vcpu.run();
            stretch.left();
            let exit = match exit {
                Ok(exit) => exit,
                Err(error) => return Some(run_failed(&error)),
            };
            self.exits.count(ExitKind::of(&exit));
            match exit {
                Exit::PortWrite { port, data, .. } if self.hook.takes(port, data) => self.hook.pause(&mut self.vcpu),
                Exit::PortWrite { port, width, data } => self.accesses.port_write(port, width, data),
                Exit::PortRead { port, width, data } => self.accesses.port_read(port, width, data),
                Exit::MmioWrite { gpa, data } => self.accesses.mmio_write(gpa, data),
                Exit::MmioRead { gpa, data } => self.accesses.mmio_read(gpa, data),
                Exit::Interrupted => self.hook.interrupted(&mut self.vcpu),
                Exit::MsrRead { fault, .. } | Exit::MsrWrite { fault, .. } => *fault = 1,
                Exit::Again => stretch.waited_for_sipi(),
                Exit::TripleFault => return Some(End::TripleFault),
                Exit::SystemEvent { kind } => return Some(End::SystemEvent { kind }),
                Exit::EntryFailed { hardware_reason, host_cpu } => {
                    return Some(End::EntryFailed { hardware_reason, host_cpu });
                }
                Exit::InternalError(error) => {
                    let rip = self.vcpu.instruction_pointer().ok();
                    return Some(End::InternalError { error, rip });
                }
                Exit::Halted => return Some(End::UnknownExit { kind: "halt without an in-kernel APIC", reason: 5 }),
                Exit::Hypercall { .. } => return Some(End::UnknownExit { kind: "hypercall", reason: 3 }),
                Exit::Debug => return Some(End::UnknownExit { kind: "debug", reason: 4 }),
                Exit::InterruptWindow => return Some(End::UnknownExit { kind: "interrupt window", reason: 7 }),
                Exit::Unknown { reason } => return Some(End::UnknownExit { kind: "unknown", reason }),
            }
        }
    }
}

fn run_failed(error: &io::Error) -> End {
    End::RunFailed { errno: error.raw_os_error().unwrap_or(0) }
}
