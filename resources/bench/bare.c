// SPDX-License-Identifier: Apache-2.0
// The floor: a program that makes the ioctls `vmm` makes, and does nothing else. It has no ACPI tables, no devices but
// two ports, no event loop, no checks of its input beyond what it needs to fail loudly.
//
//     bare IMAGE VCPUS
//
// IMAGE is an ELF with a PVH note (payload.S). Memory is 512 MiB. The guest's bytes on COM1 go to stdout one by one, a
// write to the sleep control register ends the process with status 0.
#define _GNU_SOURCE
#include <elf.h>
#include <err.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MEMORY_BYTES = 512 << 20,
    MAX_ENTRIES = 256,
    MAX_VCPUS = 1024,
    STACK_BYTES = 256 << 10,
    START_INFO = 0x6000,
    MEMORY_MAP = 0x6100,
    XEN_ELFNOTE_PHYS32_ENTRY = 18,
    COM1 = 0x3F8,
    SLEEP_CONTROL = 0x600,
};

struct cpuid {
    struct kvm_cpuid2 head;
    struct kvm_cpuid_entry2 entries[MAX_ENTRIES];
};

// xen/include/public/arch-x86/hvm/start_info.h, version 1.
struct start_info {
    uint32_t magic, version, flags, modules;
    uint64_t module_list, command_line, rsdp, memory_map;
    uint32_t memory_map_entries, reserved;
};

struct memory_map_entry {
    uint64_t start, bytes;
    uint32_t kind, reserved;
};

static int vcpus[MAX_VCPUS];
static int run_bytes;

static int check(int result, const char *what) {
    if (result < 0)
        err(1, "%s", what);
    return result;
}

// Copies the segments; gives the entry point of the PVH note.
static uint32_t load(uint8_t *memory, const char *path) {
    struct stat status;
    int file = check(open(path, O_RDONLY | O_CLOEXEC), path);
    check(fstat(file, &status), path);
    const uint8_t *image = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (image == MAP_FAILED)
        err(1, "%s", path);
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Phdr *segments = (const void *)(image + header->e_phoff);
    uint32_t entry = 0;
    for (int i = 0; i < header->e_phnum; i++) {
        const uint8_t *bytes = image + segments[i].p_offset;
        if (segments[i].p_type == PT_LOAD)
            memcpy(memory + segments[i].p_paddr, bytes, segments[i].p_filesz);
        const Elf64_Nhdr *note = (const void *)bytes;
        if (segments[i].p_type == PT_NOTE && note->n_type == XEN_ELFNOTE_PHYS32_ENTRY)
            memcpy(&entry, bytes + sizeof *note + 4, sizeof entry);
    }
    munmap((void *)image, status.st_size);
    close(file);
    if (!entry)
        errx(1, "%s: no PVH note", path);
    return entry;
}

static void write_start_info(uint8_t *memory) {
    const struct memory_map_entry map[] = {
        {.start = 0, .bytes = 0x9FC00, .kind = 1},
        {.start = 0x9FC00, .bytes = 0x60400, .kind = 2},
        {.start = 0x100000, .bytes = MEMORY_BYTES - 0x100000, .kind = 1},
    };
    const struct start_info info = {
        .magic = 0x336EC578, .version = 1, .memory_map = MEMORY_MAP, .memory_map_entries = 3,
    };
    memcpy(memory + START_INFO, &info, sizeof info);
    memcpy(memory + MEMORY_MAP, map, sizeof map);
}

static void set_entry(int vcpu, uint32_t entry) {
    struct kvm_sregs sregs;
    check(ioctl(vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
    const struct kvm_segment code = {.limit = ~0u, .selector = 8, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1};
    struct kvm_segment data = code, task = code;
    data.selector = 16, data.type = 3;
    task.limit = 0x67, task.selector = 24, task.db = 0, task.s = 0, task.g = 0;
    sregs.cs = code;
    sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
    sregs.tr = task;
    sregs.cr0 = 0x11;
    check(ioctl(vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
    const struct kvm_regs regs = {.rip = entry, .rbx = START_INFO, .rflags = 2};
    check(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
}

// The topology of N cores in one package, as the leaves that every host has tell it.
static void set_cpuid(int vcpu, struct cpuid *cpuid, uint32_t id, uint32_t count) {
    for (uint32_t i = 0; i < cpuid->head.nent; i++) {
        struct kvm_cpuid_entry2 *entry = &cpuid->entries[i];
        if (entry->function == 1)
            entry->ebx = (entry->ebx & 0xFFFF) | count << 16 | id << 24;
        if (entry->function == 0xB || entry->function == 0x1F)
            entry->edx = id;
    }
    check(ioctl(vcpu, KVM_SET_CPUID2, cpuid), "KVM_SET_CPUID2");
}

static void write_port(const struct kvm_run *run) {
    const uint8_t *bytes = (const uint8_t *)run + run->io.data_offset;
    if (run->io.port == SLEEP_CONTROL)
        _exit(0);
    if (run->io.port == COM1 && write(STDOUT_FILENO, bytes, run->io.size * run->io.count) < 0)
        err(1, "stdout");
}

static void *run_vcpu(void *argument) {
    int index = (intptr_t)argument, vcpu = vcpus[index];
    char name[16];
    snprintf(name, sizeof name, "vcpu%d", index);
    pthread_setname_np(pthread_self(), name);
    struct kvm_run *run = mmap(NULL, run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    if (run == MAP_FAILED)
        err(1, "kvm_run");
    for (;;) {
        if (ioctl(vcpu, KVM_RUN, 0) < 0)
            continue; // EINTR, or EAGAIN when a vCPU that waits was woken
        if (run->exit_reason != KVM_EXIT_IO)
            errx(1, "vCPU %d: exit %u", index, run->exit_reason);
        if (run->io.direction == KVM_EXIT_IO_OUT)
            write_port(run);
        else
            memset((uint8_t *)run + run->io.data_offset, 0xFF, run->io.size * run->io.count);
    }
}

static void kicked(int signal) { (void)signal; }

static int create_vm(int kvm, uint8_t *memory) {
    int vm = check(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
    const struct kvm_userspace_memory_region region = {
        .memory_size = MEMORY_BYTES, .userspace_addr = (uintptr_t)memory,
    };
    check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
    check(ioctl(vm, KVM_SET_TSS_ADDR, 0xFFFBD000), "KVM_SET_TSS_ADDR");
    check(ioctl(vm, KVM_CREATE_IRQCHIP, 0), "KVM_CREATE_IRQCHIP");
    for (int i = 0; i < 2; i++) {
        const struct kvm_irqfd line = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .gsi = i ? 9 : 4};
        check(ioctl(vm, KVM_IRQFD, &line), "KVM_IRQFD");
    }
    return vm;
}

int main(int argc, char **argv) {
    int count = argc == 3 ? atoi(argv[2]) : 0;
    if (count < 1 || count > MAX_VCPUS)
        errx(2, "usage: bare IMAGE VCPUS");
    int kvm = check(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm");
    if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
        errx(1, "KVM_GET_API_VERSION");
    check(ioctl(kvm, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS), "KVM_CAP_MAX_VCPUS");
    check(ioctl(kvm, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPU_ID), "KVM_CAP_MAX_VCPU_ID");
    struct cpuid cpuid = {.head.nent = MAX_ENTRIES};
    check(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &cpuid), "KVM_GET_SUPPORTED_CPUID");
    uint8_t *memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        err(1, "memory");
    int vm = create_vm(kvm, memory);
    uint32_t entry = load(memory, argv[1]);
    write_start_info(memory);
    run_bytes = check(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
    for (int i = 0; i < count; i++) {
        vcpus[i] = check(ioctl(vm, KVM_CREATE_VCPU, i), "KVM_CREATE_VCPU");
        set_cpuid(vcpus[i], &cpuid, i, count);
        const struct kvm_mp_state waiting = {.mp_state = KVM_MP_STATE_UNINITIALIZED};
        if (i == 0)
            set_entry(vcpus[i], entry);
        else
            check(ioctl(vcpus[i], KVM_SET_MP_STATE, &waiting), "KVM_SET_MP_STATE");
    }
    const struct sigaction action = {.sa_handler = kicked};
    check(sigaction(SIGRTMIN, &action, NULL), "sigaction");
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (intptr_t i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, run_vcpu, (void *)i))
            errx(1, "thread of vCPU %d", (int)i);
    }
    for (;;)
        pause();
}
