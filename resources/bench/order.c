// SPDX-License-Identifier: Apache-2.0
// Which functions of a program are called, in the order of their first call, until it is killed: what the linker is told to
// put side by side (vmm/boot-order.ld), so that a start touches few pages.
//
//     nm --defined-only PROGRAM | ./order SECONDS PROGRAM [ARGUMENT...]
//
// Puts a breakpoint at the start of each function that `nm` names and takes it away when it is hit. The program must be
// linked at fixed addresses and keep its symbols.
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX = 1 << 17, NAME_BYTES = 4096 };

static struct function {
    unsigned long address;
    char *name;
    unsigned char byte;
    int seen;
} functions[MAX];
static size_t count;
static volatile sig_atomic_t over;

static void end(int signal) { (void)signal, over = 1; }

static int by_address(const void *one, const void *other) {
    const struct function *a = one, *b = other;
    return a->address < b->address ? -1 : a->address > b->address;
}

static void read_symbols(void) {
    static char name[NAME_BYTES];
    unsigned long address;
    char kind;
    while (count < MAX && scanf("%lx %c %4095s", &address, &kind, name) == 3)
        if (strchr("tTwWi", kind))
            functions[count++] = (struct function){.address = address, .name = strdup(name)};
    qsort(functions, count, sizeof *functions, by_address);
}

static unsigned char exchange(pid_t thread, unsigned long address, unsigned char byte) {
    unsigned long aligned = address & ~7ul, shift = (address & 7) * 8;
    unsigned long word = ptrace(PTRACE_PEEKTEXT, thread, aligned, 0);
    ptrace(PTRACE_POKETEXT, thread, aligned, (word & ~(0xFFul << shift)) | (unsigned long)byte << shift);
    return word >> shift;
}

// A breakpoint was hit: it goes away, and the function is run from its start.
static int hit(pid_t thread) {
    size_t rip = offsetof(struct user, regs.rip);
    unsigned long address = ptrace(PTRACE_PEEKUSER, thread, rip, 0) - 1;
    struct function *found = bsearch(&(struct function){.address = address}, functions, count, sizeof *functions, by_address);
    if (!found)
        return SIGTRAP;
    // Several names may have one address; the byte under the first breakpoint is the program's.
    while (found > functions && found[-1].address == address)
        found--;
    if (!found->seen)
        exchange(thread, address, found->byte), puts(found->name), found->seen = 1;
    ptrace(PTRACE_POKEUSER, thread, rip, address);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        errx(2, "usage: nm --defined-only PROGRAM | order SECONDS PROGRAM [ARGUMENT...]");
    read_symbols();
    pid_t program = fork();
    if (!program) {
        if (!freopen("/dev/null", "r", stdin) || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            err(1, "/dev/null");
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(argv[2], argv + 2);
        err(1, "%s", argv[2]);
    }
    int status;
    waitpid(program, &status, 0);
    ptrace(PTRACE_SETOPTIONS, program, 0, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
    for (size_t i = 0; i < count; i++)
        if (!i || functions[i - 1].address != functions[i].address)
            functions[i].byte = exchange(program, functions[i].address, 0xCC);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = end}, NULL);
    alarm(atoi(argv[1]));
    ptrace(PTRACE_CONT, program, 0, 0);
    while (!over) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == ECHILD)
            break;
        if (thread < 0 || !WIFSTOPPED(status))
            continue;
        int signal = WSTOPSIG(status);
        if (signal == SIGTRAP)
            signal = status >> 16 ? 0 : hit(thread);
        ptrace(PTRACE_CONT, thread, 0, signal == SIGSTOP ? 0 : signal);
    }
    kill(program, SIGKILL);
    return 0;
}
