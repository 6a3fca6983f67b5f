// SPDX-License-Identifier: Apache-2.0
//! The emulator: which one is used, and the arguments that make it the host that was asked for.
//!
//! Place in the flow: a checked machine and the places of its files go in, a command to start comes out; [`crate::session`]
//! runs it. Invariant: no KVM, no network, no disk, no display: the same emulated machine everywhere, and nothing of the
//! real host's hardware in it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::packages::Store;
use crate::real_cpu;
use crate::shape::{HostShape, NumaLayout};
use crate::soundness::{self, Threading, Version};
use crate::unavailable::LabUnavailable;

const PROGRAM: &str = "qemu-system-x86_64";
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// Translated code kept, in MiB. With QEMU's default, a guest inside the guest evicts its own host.
const TRANSLATION_BUFFER_MIB: u32 = 512;
/// Without XSAVE: with it, KVM in the lab does not see a guest's XSETBV, CPUID.(EAX=0DH,ECX=0):EBX stays at 576, and every
/// Linux guest warns of an "XSAVE consistency problem".
const CPU: &str = "max,+svm,-xsave";
/// `mitigations=off`: they cost time and protect nobody here. `tsc=reliable`: one clock, no watchdog on it.
/// `no_timer_check`: under load the emulated PIT misses Linux' deadline, which then panics ("8254 timer not connected").
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 panic=-1 mitigations=off tsc=reliable no_timer_check quiet";

/// A QEMU that was found and asked for its version.
#[derive(Debug, Clone)]
pub(crate) struct Emulator {
    /// The program and what must come before our own arguments.
    invocation: Vec<OsString>,
    /// Its version.
    pub(crate) version: Version,
}

impl Emulator {
    /// The named one; else `$VMM_LAB_QEMU`; else the installed one, if it is sound for this many processors; else Debian's,
    /// from the cache.
    pub(crate) fn find(named: Option<&Path>, cpus: u32, store: &Store) -> Result<Self, LabUnavailable> {
        if let Some(path) = named {
            return Self::probe(vec![path.into()]);
        }
        if let Some(path) = env::var_os("VMM_LAB_QEMU").filter(|path| !path.is_empty()) {
            return Self::probe(vec![path]);
        }
        if let Ok(installed) = Self::probe(vec![PROGRAM.into()])
            && soundness::check(cpus, None, installed.version).is_ok()
        {
            return Ok(installed);
        }
        Self::probe(unpacked_invocation(&store.qemu()?))
    }

    fn probe(invocation: Vec<OsString>) -> Result<Self, LabUnavailable> {
        let remedy = "install qemu-system-x86, or set VMM_LAB_QEMU to its qemu-system-x86_64";
        let mut command = child::bound_to_us(&invocation[0]);
        let text = child::output(command.args(&invocation[1..]).arg("--version"), VERSION_LIMIT, remedy)?;
        let text = String::from_utf8_lossy(&text);
        let version = Version::parse(text.lines().next().unwrap_or_default())
            .ok_or_else(|| LabUnavailable::new("QEMU", format!("{:?} states no version", text.trim()), remedy))?;
        Ok(Self { invocation, version })
    }

    /// The command that starts it with these arguments, on one real processor if it must not run on two.
    pub(crate) fn command(&self, arguments: &[OsString]) -> Command {
        let cpu = soundness::wants_one_real_cpu(self.version).then(real_cpu::choose).flatten();
        let mut command = match cpu {
            Some(cpu) => {
                // It becomes the program, as setpriv does, and comes from the same package.
                let mut command = child::bound_to_us("taskset");
                command.args(["--cpu-list", &cpu.to_string()]).arg(&self.invocation[0]);
                command
            }
            None => child::bound_to_us(&self.invocation[0]),
        };
        command.args(&self.invocation[1..]).args(arguments);
        command
    }
}

/// Debian's QEMU, unpacked below `root` with every library: its own dynamic linker starts it, so the libraries of this machine
/// do not matter.
fn unpacked_invocation(root: &Path) -> Vec<OsString> {
    let place = |path: &str| root.join(path).into_os_string();
    let mut libraries = place("lib/x86_64-linux-gnu");
    libraries.push(":");
    libraries.push(place("usr/lib/x86_64-linux-gnu"));
    let linker = ["lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"];
    let linker = linker.iter().map(|path| root.join(path)).find(|path| path.is_file()).unwrap_or(root.join(linker[0]));
    vec![
        linker.into_os_string(),
        "--library-path".into(),
        libraries,
        place("usr/bin/qemu-system-x86_64"),
        "-L".into(),
        place("usr/share/qemu"),
        "-L".into(),
        place("usr/share/seabios"),
    ]
}

/// The emulated host, checked.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) shape: HostShape,
    pub(crate) memory_mib: u32,
    pub(crate) numa: Option<NumaLayout>,
    pub(crate) pause_filter: bool,
    /// Time passes with the instructions executed.
    pub(crate) counted_time: bool,
    pub(crate) threading: Threading,
    /// Rate of the time-stamp counter, where it is known.
    pub(crate) tsc_khz: Option<u32>,
}

/// Where the serial ports of the lab host end.
#[derive(Debug, Clone)]
pub(crate) enum Ports {
    /// Each in a file of its own.
    Files(PortFiles),
    /// The console on our terminal, Ctrl-A X kills the lab host; no other port.
    Terminal,
}

/// The files that take what the lab host writes.
#[derive(Debug, Clone)]
pub(crate) struct PortFiles {
    pub(crate) console: PathBuf,
    pub(crate) results: PathBuf,
    pub(crate) heartbeat: PathBuf,
    pub(crate) output: PathBuf,
    /// No port: the emulator's own standard error.
    pub(crate) complaints: PathBuf,
}

impl PortFiles {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        let place = |name: &str| directory.join(name);
        Self {
            console: place("console"),
            results: place("results"),
            heartbeat: place("heartbeat"),
            output: place("output"),
            complaints: place("complaints"),
        }
    }
}

/// Where time is counted in instructions, each takes two to the power of this in nanoseconds: 250 million a second, which the
/// emulator does not reach on any machine seen, so that its clock never runs ahead of the real one.
const INSTRUCTION_NS_LOG2: u32 = 2;

/// All arguments for one start.
pub(crate) fn arguments(machine: &Machine, ports: &Ports, kernel: &Path, initramfs: &Path) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: String| out.extend([option.into(), OsString::from(value)]);
    let thread = machine.threading.word();
    add("-accel", format!("tcg,thread={thread},tb-size={TRANSLATION_BUFFER_MIB}"));
    let pause = if machine.pause_filter { ",+pause-filter,+pfthreshold,x-force-features=on" } else { "" };
    add("-cpu", format!("{CPU}{pause}"));
    if machine.counted_time {
        add("-icount", format!("shift={INSTRUCTION_NS_LOG2},align=off"));
    }
    add("-M", "q35".to_owned());
    add("-m", machine.memory_mib.to_string());
    let HostShape { sockets, dies, cores, threads } = machine.shape;
    let cpus = machine.shape.cpus();
    add("-smp", format!("{cpus},sockets={sockets},dies={dies},cores={cores},threads={threads}"));
    for (option, value) in machine.numa.iter().flat_map(numa) {
        add(option, value);
    }
    let tsc = machine.tsc_khz.map(|khz| format!(" tsc_early_khz={khz}")).unwrap_or_default();
    add("-append", format!("{KERNEL_COMMAND_LINE}{tsc}"));
    out.extend(["-nodefaults", "-no-reboot", "-display", "none", "-vga", "none"].map(OsString::from));
    match ports {
        Ports::Terminal => out.extend(["-serial", "mon:stdio"].map(OsString::from)),
        Ports::Files(files) => serial(&mut out, files),
    }
    out.extend(["-kernel".into(), kernel.into(), "-initrd".into(), initramfs.into()]);
    out
}

fn numa(layout: &NumaLayout) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for (index, node) in layout.nodes.iter().enumerate() {
        out.push(("-object", format!("memory-backend-ram,id=ram{index},size={}M", node.memory_mib)));
        let cpus = node.cpus.map(|(first, last)| format!(",cpus={first}-{last}")).unwrap_or_default();
        out.push(("-numa", format!("node,nodeid={index},memdev=ram{index}{cpus}")));
    }
    for (from, row) in layout.distances.iter().flatten().enumerate() {
        for (to, value) in row.iter().enumerate() {
            out.push(("-numa", format!("dist,src={from},dst={to},val={value}")));
        }
    }
    out
}

/// Four ports with an interrupt each: sharing one between two ISA devices loses edges.
fn serial(out: &mut Vec<OsString>, files: &PortFiles) {
    let ports = [(&files.console, 4), (&files.results, 3), (&files.heartbeat, 5), (&files.output, 7)];
    for (index, (file, interrupt)) in ports.into_iter().enumerate() {
        let mut chardev = OsString::from(format!("file,id=port{index},path="));
        chardev.push(doubled_commas(file));
        out.extend(["-chardev".into(), chardev, "-device".into()]);
        out.push(format!("isa-serial,index={index},chardev=port{index},irq={interrupt}").into());
    }
}

/// QEMU ends an option's value at a comma unless it is doubled.
fn doubled_commas(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let numa = None;
        let threading = Threading::Single;
        Machine {
            shape: HostShape::ONE_CPU,
            memory_mib: 3072,
            numa,
            pause_filter: false,
            counted_time: false,
            threading,
            tsc_khz: None,
        }
    }

    fn text(machine: &Machine) -> String {
        let ports = Ports::Files(PortFiles::in_directory(Path::new("/d,ir")));
        let arguments = arguments(machine, &ports, Path::new("/k"), Path::new("/i"));
        arguments.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_default_is_one_processor_on_one_thread() {
        assert_eq!(
            text(&machine()),
            "-accel tcg,thread=single,tb-size=512 -cpu max,+svm,-xsave -M q35 -m 3072 -smp 1,sockets=1,dies=1,cores=1,threads=1 \
             -append console=ttyS0 panic=-1 mitigations=off tsc=reliable no_timer_check quiet \
             -nodefaults -no-reboot -display none -vga none \
             -chardev file,id=port0,path=/d,,ir/console -device isa-serial,index=0,chardev=port0,irq=4 \
             -chardev file,id=port1,path=/d,,ir/results -device isa-serial,index=1,chardev=port1,irq=3 \
             -chardev file,id=port2,path=/d,,ir/heartbeat -device isa-serial,index=2,chardev=port2,irq=5 \
             -chardev file,id=port3,path=/d,,ir/output -device isa-serial,index=3,chardev=port3,irq=7 \
             -kernel /k -initrd /i"
        );
    }

    #[test]
    fn the_rate_of_the_counter_is_told_where_it_is_known() {
        let machine = Machine { tsc_khz: Some(2_599_998), ..machine() };
        assert!(text(&machine).contains("no_timer_check quiet tsc_early_khz=2599998 -nodefaults"));
    }

    #[test]
    fn the_pause_filter_is_forced_on() {
        let machine = Machine { pause_filter: true, ..machine() };
        assert!(text(&machine).contains("-cpu max,+svm,-xsave,+pause-filter,+pfthreshold,x-force-features=on "));
    }

    #[test]
    fn time_by_instructions_is_asked_for_by_its_rate() {
        let machine = Machine { counted_time: true, ..machine() };
        assert!(text(&machine).contains(" -icount shift=2,align=off "));
    }

    #[test]
    fn an_emulator_that_loses_interrupts_between_threads_runs_on_one_real_processor() {
        let words = |major| {
            let emulator = Emulator { invocation: vec!["/q".into()], version: Version { major, minor: 2 } };
            let command = emulator.command(&["-x".into()]);
            command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let cpu = real_cpu::choose().unwrap().to_string();
        assert_eq!(words(7), ["--pdeathsig", "KILL", "--", "taskset", "--cpu-list", &cpu, "/q", "-x"]);
        assert_eq!(words(11), ["--pdeathsig", "KILL", "--", "/q", "-x"]);
    }

    #[test]
    fn nodes_and_distances_are_stated_in_full() {
        let shape = "2x2x2".parse().unwrap();
        let numa = NumaLayout::new(&shape, 2, 3001, &[(0, 1, 21)]).unwrap();
        let machine = Machine { shape, memory_mib: 3001, numa: Some(numa), ..machine() };
        let text = text(&machine);
        for part in [
            "-smp 8,sockets=2,dies=1,cores=2,threads=2 ",
            "-object memory-backend-ram,id=ram0,size=1501M -numa node,nodeid=0,memdev=ram0,cpus=0-3 ",
            "-object memory-backend-ram,id=ram1,size=1500M -numa node,nodeid=1,memdev=ram1,cpus=4-7 ",
            "-numa dist,src=0,dst=0,val=10 -numa dist,src=0,dst=1,val=21 -numa dist,src=1,dst=0,val=21 ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_shell_has_the_terminal_and_no_other_port() {
        let arguments = arguments(&machine(), &Ports::Terminal, Path::new("/k"), Path::new("/i"));
        let text: Vec<_> = arguments.iter().map(|a| a.to_str().unwrap()).collect();
        assert!(text.windows(2).any(|pair| pair == ["-serial", "mon:stdio"]));
        assert!(!text.contains(&"-chardev"));
    }
}
