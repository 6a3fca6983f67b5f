// SPDX-License-Identifier: Apache-2.0
//! What a user can get wrong. Each error names the thing, the value, the cause and the next step, has status 1 or 2, and
//! leaves nothing behind: no file, no process, no word on stdout.

use std::fs;
use std::process::Command;

use libtest_mimic::Trial;

use crate::images::{E_MACHINE, EI_CLASS, Field, Image};
use crate::monitor::{self, Ended, Monitor};
use crate::{kvm, namespaces, nothing, trial};

/// A name, the arguments, and what the error must say; all have status 2 and are found without KVM.
type Wrong = (&'static str, &'static [&'static str], &'static [&'static str]);

const WRONG: &[Wrong] = &[
    ("no_cpus", &["--cpus=0"], &["0 CPUs", "ask for at least 1"]),
    ("more_cpus_than_a_machine_has", &["--cpus=5000"], &["5000 CPUs", "4096", "ask for fewer"]),
    ("cpus_that_are_no_number", &["--cpus=many"], &["many", "--cpus"]),
    ("levels_that_do_not_multiply_up", &["--cpus=5,cores=2"], &["5 CPUs do not fit the shape"]),
    ("a_level_of_0", &["--cpus=4,threads=0"], &["threads=0"]),
    (
        "a_cpu_in_no_node",
        &["--cpus=4", "--numa=cpus=[0-1],memory=64M", "--numa=cpus=[3],memory=64M"],
        &["CPUs 2 are in no NUMA node", "add them to cpus="],
    ),
    (
        "a_cpu_in_two_nodes",
        &["--cpus=4", "--numa=cpus=[0-2],memory=64M", "--numa=cpus=[2-3],memory=64M"],
        &["CPU 2 is in node 0 and in node 1", "take it out of one"],
    ),
    ("a_cpu_that_is_not_there", &["--cpus=2", "--numa=cpus=[0-2],memory=64M"], &["node 0 names CPU 2", "CPUs 0 to 1"]),
    (
        "a_node_without_memory",
        &["--cpus=2", "--numa=cpus=[0],memory=64M", "--numa=cpus=[1],memory=0"],
        &["node 1 has no memory", "memory=1G"],
    ),
    ("no_nodes", &["--numa=0"], &["0 NUMA nodes", "1 to 64"]),
    ("too_many_nodes", &["--cpus=65", "--numa=65"], &["65 NUMA nodes", "1 to 64"]),
    ("no_memory", &["--memory=0"], &["0 bytes of memory", "--memory 1G"]),
    ("memory_in_half_pages", &["--memory=4097"], &["memory 4097", "4096-byte pages", "4K"]),
    ("more_memory_than_addresses", &["--memory=5000T"], &["memory 5000T", "4096T", "ask for less"]),
    ("a_distance_below_10", &["--cpus=2", "--numa=2", "--numa-distance=0:1=9"], &["0:1=9", "below 10"]),
    ("a_matrix_with_a_hole", &["--cpus=3", "--numa=3", "--numa-distance=0:1=20"], &["none between nodes 0 and 2"]),
    ("a_distance_to_no_node", &["--cpus=2", "--numa=2", "--numa-distance=0:7=20"], &["0:7", "7"]),
    ("a_core_across_nodes", &["--cpus=2,threads=2", "--numa=2"], &["node"]),
    ("an_unknown_flag", &["--cpu=3"], &["--cpu", "--cpus"]),
    (
        "an_unknown_word_for_the_probe_guest",
        &["--probe=rnig seconds=1"],
        &["--probe \"rnig seconds=1\"", "does not know the word `rnig`", "did you mean `ring`?"],
    ),
    ("an_unknown_key_for_the_probe_guest", &["--probe=ring second=1"], &["`second=1`", "did you mean `seconds`?"]),
    (
        "a_bad_parameter_for_the_probe_guest",
        &["--probe=ring seconds=301"],
        &["does not take `seconds=301`", "seconds takes 0.001 to 300"],
    ),
    ("a_second_workload_for_the_probe_guest", &["--probe=ring spin"], &["`spin` is a second", "drop one"]),
    ("a_kernel_that_is_not_there", &["--kernel=absent"], &["--kernel absent", "No such file"]),
    ("a_kernel_that_is_a_directory", &["--kernel=/"], &["--kernel /", "is a directory"]),
    ("a_kernel_that_is_a_device", &["--kernel=/dev/null"], &["--kernel /dev/null", "is a device"]),
    ("an_initrd_without_a_kernel", &["--initrd=x"], &["--initrd", "add --kernel"]),
    ("a_report_in_no_directory", &["--report=absent/run.json"], &["--report absent/run.json", "No such file"]),
    ("a_report_that_is_a_directory", &["--report=/"], &["--report /", "is a directory"]),
    ("a_report_where_no_file_can_be", &["--report=/proc/run.json"], &["--report /proc/run.json", "cannot create"]),
    ("a_log_in_no_directory", &["--serial=file=absent/log"], &["--serial absent/log", "No such file"]),
    ("a_config_that_is_not_there", &["--config=absent.toml"], &["absent.toml", "No such file"]),
];

/// Every fault, one test each.
pub(crate) fn trials() -> Vec<Trial> {
    let wrong = WRONG.iter().map(|&(name, arguments, parts)| {
        trial(format!("refused_{name}"), nothing, move || {
            refused(Monitor::new(arguments.iter().copied()), 2, parts, &[]);
        })
    });
    let kernels = kernels()
        .into_iter()
        .map(|(name, image, parts)| trial(format!("refused_kernel_{name}"), kvm, move || kernel(&image, &parts)));
    let hosts = [
        trial("refused_a_host_without_kvm", namespaces::root, no_kvm),
        trial("refused_a_user_who_may_not_use_kvm", namespaces::root, forbidden_kvm),
        trial("refused_a_kvm_that_is_none", namespaces::root, another_device),
        trial("refused_more_cpus_than_kvm_allows", kvm, more_than_kvm_allows),
        trial("refused_more_memory_than_the_host_addresses", kvm, more_than_the_host_addresses),
        trial("refused_a_kernel_that_is_a_pipe", nothing, pipe),
        trial("refused_a_kernel_that_is_empty", nothing, empty),
        trial("refused_a_config_with_an_unknown_key", nothing, unknown_key),
        trial("a_report_that_cannot_be_written_is_found_before_boot", nothing, found_before_boot),
        trial("help_to_a_closed_stdout_does_not_crash", nothing, help_without_reader),
    ];
    wrong.chain(kernels).chain(hosts).collect()
}

/// Starts a monitor that must refuse, with an error that says all of `parts`; `files` were there before.
pub(crate) fn refused(monitor: Monitor, status: i32, parts: &[&str], files: &[&str]) -> Ended {
    let ended = monitor.run().expect(status);
    parts.iter().for_each(|part| assert!(ended.errors.contains(part), "{} should say {part}", ended.errors));
    assert_eq!(ended.output, "", "nothing of the guest's");
    assert!(!ended.errors.contains("panicked"), "{}", ended.errors);
    assert_eq!(ended.files(), files, "files left behind");
    ended
}

/// A kernel image that is wrong, and what the error must say.
type Kernel = (&'static str, Image, Vec<&'static str>);

fn kernels() -> Vec<Kernel> {
    let image = Image::new;
    let past_half = image().bytes().len() / 2;
    let first = image().value(0, Field::PhysicalAddress);
    let second = image().segment(1, Field::PhysicalAddress, first);
    vec![
        ("truncated_in_its_magic", image().cut(3), vec!["no kernel image that is known here"]),
        ("truncated_in_its_header", image().cut(40), vec!["ends inside its ELF header", "truncated"]),
        ("truncated_behind_its_header", image().cut(64), vec!["ends inside its program headers", "truncated"]),
        ("truncated_in_its_segment_table", image().cut(100), vec!["ends inside its program headers", "truncated"]),
        ("truncated_in_its_segments", image().cut(past_half), vec!["is truncated"]),
        ("of_zeros", Image::new().with(0, &[0; 16]), vec!["no kernel image that is known here"]),
        ("for_aarch64", image().with(E_MACHINE, &183u16.to_le_bytes()), vec!["machine 183", "x86-64"]),
        ("of_32_bits", image().with(EI_CLASS, &[1]), vec!["32-bit ELF", "64-bit"]),
        ("for_i386", image().with(E_MACHINE, &3u16.to_le_bytes()), vec!["32-bit ELF"]),
        (
            "above_memory",
            image().segment(0, Field::PhysicalAddress, 1 << 33),
            vec!["segment", "0x200000000", "not inside the guest's RAM", "--memory"],
        ),
        (
            "at_the_last_page",
            image().segment(0, Field::PhysicalAddress, u64::MAX - 4095),
            vec!["segment", "0xfffffffffffff000", "not inside"],
        ),
        (
            "at_2_to_the_63",
            image().segment(0, Field::PhysicalAddress, 1 << 63),
            vec!["segment", "0x8000000000000000", "not inside"],
        ),
        ("in_the_gap", image().segment(0, Field::PhysicalAddress, 0xC000_0000), vec!["0xc0000000", "not inside"]),
        (
            "on_our_tables",
            image().segment(0, Field::PhysicalAddress, 0xE_0000),
            vec!["0xe0000", "overlaps the boot tables"],
        ),
        (
            "at_address_0",
            image().segment(0, Field::PhysicalAddress, 0),
            vec!["overlaps the boot tables", "link the kernel higher"],
        ),
        ("with_segments_on_each_other", second, vec!["segments", "overlap in memory"]),
        ("with_2_to_the_63_bytes", image().segment(0, Field::MemorySize, 1 << 63), vec!["not inside"]),
        ("larger_in_its_file", image().segment(0, Field::FileSize, 1 << 40), vec!["bytes in the file but"]),
        ("with_bytes_past_its_end", image().segment(0, Field::Offset, 1 << 40), vec!["is truncated"]),
        ("with_an_entry_outside", image().entry(0x7000_0000), vec!["entry point 0x70000000", "none of its segments"]),
        (
            "without_an_entry",
            image().without_note().with(24, &[0; 8]),
            vec!["entry point 0x0 is in none of its segments"],
        ),
    ]
}

fn kernel(image: &Image, parts: &[&str]) {
    let monitor = Monitor::new(["--kernel=kernel"]);
    fs::write(monitor.directory().join("kernel"), image.bytes()).unwrap();
    let ended = refused(monitor, 1, parts, &["kernel"]);
    assert!(ended.errors.contains("kernel"), "{} should name the file", ended.errors);
}

fn no_kvm() {
    let monitor = namespaces::after("mount -t tmpfs none /dev", &["--cpus=2"]);
    refused(monitor, 1, &["/dev/kvm does not exist", "load kvm_intel or kvm_amd", "`vmm lab -- ARGS...`"], &[]);
}

fn forbidden_kvm() {
    let monitor = namespaces::as_nobody(&["--cpus=2"]);
    refused(monitor, 1, &["/dev/kvm: permission denied", "kvm", "run as root"], &["vmm"]);
}

fn another_device() {
    let monitor = namespaces::after("mount --bind /dev/null /dev/kvm", &["--cpus=2"]);
    refused(monitor, 1, &["/dev/kvm is not KVM's device", "mknod /dev/kvm"], &[]);
}

fn more_than_kvm_allows() {
    let allowed = vmm::kvm::system::System::open().unwrap().max_vcpus();
    let cpus = format!("--cpus={},cores=1", allowed + 1);
    // Where KVM takes as many as a machine can have, that limit is met first.
    let status = if allowed < topology::guest::MAX_CPUS { 1 } else { 2 };
    let (asked, most) = (format!("{} CPUs", allowed + 1), allowed.to_string());
    refused(Monitor::new([&cpus]), status, &[&asked, &most, "ask for"], &[]);
}

fn more_than_the_host_addresses() {
    refused(Monitor::new(["--memory=4096T"]), 1, &["bits", "memory"], &[]);
}

fn pipe() {
    let monitor = Monitor::new(["--kernel=pipe"]);
    let made = Command::new("mkfifo").arg(monitor.directory().join("pipe")).status().unwrap();
    assert!(made.success());
    refused(monitor, 2, &["--kernel pipe", "is a pipe", "regular file"], &["pipe"]);
}

fn empty() {
    let monitor = Monitor::new(["--kernel=empty"]);
    fs::write(monitor.directory().join("empty"), "").unwrap();
    refused(monitor, 2, &["--kernel empty", "is empty"], &["empty"]);
}

fn unknown_key() {
    let monitor = Monitor::new(["--config=vm.toml"]);
    fs::write(monitor.directory().join("vm.toml"), "cpu = 4\n").unwrap();
    refused(monitor, 2, &["vm.toml", "cpu", "did you mean `cpus`?"], &["vm.toml"]);
}

/// A run that began would have said something on stdout.
fn found_before_boot() {
    let monitor = Monitor::new(["--cpus=2", "--report=kept"]);
    fs::create_dir(monitor.directory().join("kept")).unwrap();
    refused(monitor, 2, &["--report kept", "is a directory"], &["kept"]);
}

fn help_without_reader() {
    for arguments in
        [&["--help"][..], &["--version"], &["--print-config"], &["host"], &["topology"], &["lab", "--help"]]
    {
        let ended = Monitor::new(arguments).stdout(monitor::broken_pipe()).run();
        assert!([0, 1].contains(&ended.code()), "{arguments:?}: {}", ended.errors);
        assert!(!ended.errors.contains("panicked"), "{arguments:?}: {}", ended.errors);
    }
}
