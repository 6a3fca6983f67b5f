// SPDX-License-Identifier: Apache-2.0
//! The other ways into the same kernel: its vmlinux by PVH and by the 64-bit entry, and an initial RAM disk above 4 GiB.

use std::collections::BTreeMap;

use lab::packages::{Flavour, Series, Store};
use libtest_mimic::{Completion, Failed, Trial};

use crate::guests::{self, Guest, Run};
use crate::{Set, complaints, none_of, seen, trial};

const KERNEL: (Series, Flavour) = (Series::V6_12, Flavour::Cloud);

/// The ELF note that says where PVH enters, without its value: `XEN_ELFNOTE_PHYS32_ENTRY`, 18.
const PVH_NOTE: &[u8] = b"\x12\0\0\0Xen\0";
/// Offset of `initrd_addr_max` in a bzImage (Documentation/arch/x86/boot.rst).
const INITRD_ADDR_MAX: usize = 0x22C;

/// What the guest says of its loader, which the kernel was told: 0xFF by the zero page of this monitor, 0xB0 by PVH on KVM
/// (arch/x86/platform/pvh/enlighten.c).
const LOADERS: [(&str, &str); 3] = [("pvh", "loader 176"), ("entry_64", "loader 255"), ("initrd_high", "loader 255")];

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("vmlinux_boots_by_pvh_and_by_its_64_bit_entry_and_an_initrd_is_found_above_4_gib", Set::Full, boots)]
}

fn boots() -> Result<Completion, Failed> {
    let store = Store::open()?;
    let kernel = store.kernel(KERNEL.0, KERNEL.1)?;
    let vmlinux = store.vmlinux(&kernel)?;
    let mut without_note = vmlinux.clone();
    let note = vmlinux.windows(PVH_NOTE.len()).position(|bytes| bytes == PVH_NOTE).ok_or("it has no PVH note")?;
    without_note[note + 4] = b'Y';
    // A kernel that looks for its RAM disk below 2 MiB, where it does not fit: then it has to lie above 4 GiB.
    let mut looks_low = std::fs::read(&kernel.vmlinuz)?;
    looks_low[INITRD_ADDR_MAX..INITRD_ADDR_MAX + 4].copy_from_slice(&0x1F_FFFFu32.to_le_bytes());
    let see = concat!(
        "echo loader $(cat /proc/sys/kernel/bootloader_type)\n",
        include_str!("../../resources/guest/see-topology.sh")
    );
    let guest = |name: &str, machine: &str, image| Guest {
        image: Some(image),
        script: see.to_owned(),
        ..Guest::new(name, KERNEL, machine)
    };
    let guests = [
        guest("pvh", "--cpus 2 --numa 2 --memory 1G", vmlinux),
        guest("entry_64", "--cpus 2 --numa 2 --memory 1G", without_note),
        guest("initrd_high", "--cpus 1 --memory 5G", looks_low),
    ];
    guests::check(&guests, |runs| as_loaded(&runs))
}

fn as_loaded(runs: &BTreeMap<String, Run>) -> Result<(), Failed> {
    for (name, loader) in LOADERS {
        let run = &runs[name];
        run.ended_with(0)?;
        none_of(&format!("{name}: Linux complains"), &complaints::of(&run.console))?;
        none_of(&format!("{name}: Linux sees it otherwise"), &seen::differences(&run.console, &run.doctor))?;
        if !run.console.contains(loader) {
            return Err(format!("{name} was not loaded as meant, {loader:?} is missing:\n{}", run.console).into());
        }
    }
    // `RAMDISK: [mem 0x13fd00000-0x13fffffff]`
    let console = &runs["initrd_high"].console;
    let start = console.split_once("RAMDISK: [mem 0x").and_then(|(_, rest)| rest.split_once('-'));
    let start = start.and_then(|(digits, _)| u64::from_str_radix(digits, 16).ok());
    if start.is_some_and(|start| start >= 1 << 32) {
        return Ok(());
    }
    Err(format!("the RAM disk is at {start:x?}, not above 4 GiB:\n{console}").into())
}
