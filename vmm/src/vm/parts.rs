// SPDX-License-Identifier: Apache-2.0
//! The devices of a machine, made, connected and given their addresses: what the stage `devices` of the assembly does.
//!
//! Invariant: what the ACPI tables say of a register is what the device behind it understands; the compiler checks it.

use std::sync::Arc;

use devices::acpi_pm::{self, AcpiPm};
use devices::bus::{BusBuilder, BusError, Device};
use devices::i8042::{self, I8042};
use devices::pvpanic::PvPanic;
use devices::serial;
use topology::acpi;

use super::accesses::Buses;
use super::console::{Console, ConsoleEvents, ConsoleOutput, EventLine, PacedConsole, Sink};
use super::end::EndNote;
use super::error::AssemblyError;
use super::observed::{Observer, Onlookers};
use crate::config::SerialConfig;
use crate::kvm::vm::Vm;
use crate::layout;

/// The power registers and the power button.
pub type PowerRegisters = AcpiPm<Arc<EndNote>, EventLine>;

/// The devices, as the later stages share them.
pub struct Parts {
    /// What the guest's accesses reach.
    pub buses: Arc<Buses>,
    /// The serial port.
    pub console: Arc<Console>,
    /// What its output goes to; none if that is lost.
    pub sink: Option<Arc<Sink>>,
    /// What it tells the event loop.
    pub events: Arc<ConsoleEvents>,
    /// Power registers and button.
    pub power: Arc<PowerRegisters>,
    /// Where the end is noted.
    pub end: Arc<EndNote>,
}

impl Parts {
    /// Makes the devices and connects them to the interrupt controllers of `vm`, which are there already.
    ///
    /// # Errors
    /// No descriptors, a console that cannot be opened, a kernel that refuses an interrupt line.
    pub(super) fn connect(vm: &Vm, serial: &SerialConfig, onlookers: Onlookers) -> Result<Self, AssemblyError> {
        let end = Arc::new(EndNote::new().map_err(AssemblyError::EventDescriptor)?);
        let events = Arc::new(ConsoleEvents::new(Arc::clone(&end)).map_err(AssemblyError::EventDescriptor)?);
        let output = ConsoleOutput::open(serial, onlookers.goes_on, Observer::new(onlookers))
            .map_err(|source| AssemblyError::Console { target: serial.to_string(), source })?;
        let sink = output.sink();
        let console = Arc::new(Console::new(line(vm, layout::SERIAL_GSI)?, output, Arc::clone(&events)));
        let power = Arc::new(AcpiPm::new(Arc::clone(&end), line(vm, layout::EVENT_GSI)?));
        let paced = PacedConsole::new(Arc::clone(&console), sink.clone());
        let ports = claim_ports(&end, Arc::new(paced), &power)?;
        let buses = Arc::new(Buses { ports: ports.build(), memory: BusBuilder::new().build() });
        Ok(Self { buses, console, sink, events, power, end })
    }
}

fn line(vm: &Vm, gsi: u32) -> Result<EventLine, AssemblyError> {
    let line = EventLine::new().map_err(AssemblyError::EventDescriptor)?;
    vm.connect_interrupt(&line.0, gsi)?;
    Ok(line)
}

fn claim_ports(
    end: &Arc<EndNote>,
    console: Arc<dyn Device>,
    power: &Arc<PowerRegisters>,
) -> Result<BusBuilder, BusError> {
    let keyboard = Arc::new(I8042::new(Arc::clone(end)));
    let panic = Arc::new(PvPanic::new(Arc::clone(end)));
    let port = |port: u16| u64::from(port);
    BusBuilder::new()
        .claim("serial port", port(layout::SERIAL_PORT), serial::REGISTERS, console)?
        .claim_window(
            "keyboard data",
            port(layout::I8042_DATA_PORT),
            1,
            i8042::DATA,
            Arc::clone(&keyboard) as Arc<dyn Device>,
        )?
        .claim_window("keyboard command", port(layout::I8042_COMMAND_PORT), 1, i8042::STATUS_COMMAND, keyboard)?
        .claim(
            "power registers",
            port(layout::SLEEP_CONTROL_PORT),
            acpi_pm::REGISTERS,
            Arc::clone(power) as Arc<dyn Device>,
        )?
        .claim("pvpanic", port(layout::PVPANIC_PORT), 1, panic)
}

// The tables tell the guest what the registers understand, and neither room knows the other.
const _: () = {
    assert!(acpi_pm::S5_SLEEP_TYPE == acpi::S5_SLEEP_TYPE, "\\_S5 and the sleep control register agree");
    assert!(acpi_pm::EVENT_POWER_BUTTON == acpi::EVENT_POWER_BUTTON, "_EVT and the event register agree");
    assert!(acpi_pm::RESET_VALUE == layout::RESET_VALUE, "FADT and the reset register agree");
    assert!(layout::SLEEP_STATUS_PORT as u64 == layout::SLEEP_CONTROL_PORT as u64 + acpi_pm::SLEEP_STATUS);
    assert!(layout::RESET_PORT as u64 == layout::SLEEP_CONTROL_PORT as u64 + acpi_pm::RESET);
    assert!(layout::EVENT_PORT as u64 == layout::SLEEP_CONTROL_PORT as u64 + acpi_pm::EVENT);
};
