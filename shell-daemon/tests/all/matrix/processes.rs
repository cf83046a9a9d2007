//! Attacks on other processes, on the kernel, and on memory, processes and descriptors.

use super::case::{
    Case,
    Fate::{Killed, Late, Open, OpenToOthers, OpenToRoot, Refused},
    Witness,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        about: "finds out that another process is there, and whose it is",
        attacks: &["[[ -e /proc/@daemon@ ]]", "stat /proc/@daemon@"],
        fates: [Refused, Open, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "reads the command line or the state of another process",
        attacks: &["cat /proc/@daemon@/cmdline", "cat /proc/@daemon@/status"],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "counts the descriptors of the sidecar",
        attacks: &["ls /proc/@daemon@/fd/"],
        // The sidecar's files in `/proc` belong to root, and listing the numbers needs no other right.
        fates: [Refused, Refused, OpenToRoot, OpenToRoot],
        witness: Witness::Script,
    },
    Case {
        about: "reads environment, memory, descriptors or files of the sidecar in `/proc`",
        attacks: &[
            "cat /proc/@daemon@/environ",
            "exec 7< /proc/@daemon@/mem",
            "readlink /proc/@daemon@/fd/0",
            "cat /proc/@daemon@/root@vault@/secret",
            "cat /proc/@daemon@/cwd@vault@/secret || ls /proc/@daemon@/cwd/",
        ],
        fates: [Refused, Refused, Refused, OpenToRoot],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "reads files, environment or memory of the session's process (its own parent) through `/proc`",
        attacks: &[
            "cat /proc/$PPID/root@vault@/secret",
            "cat /proc/$PPID/environ",
            "exec 7< /proc/$PPID/mem",
        ],
        fates: [Refused, Refused, Refused, Open],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "traces the sidecar, reads its memory or takes its descriptors by system calls",
        attacks: &[
            "perl -e 'exit(syscall(@ptrace@, 0x4206, @daemon@, 0, 0) == 0 ? 0 : 1)'",
            // The kernel checks the right to read before it checks the address. `EFAULT` means that reading is allowed.
            "perl -e '$b = \"\\0\" x 8; $l = pack(\"QQ\", unpack(\"Q\", pack(\"p\", $b)), 8); $r = pack(\"QQ\", 4096, 8); \
             $n = syscall(@process_vm_readv@, @daemon@, $l, 1, $r, 1, 0); exit($n >= 0 || $! == 14 ? 0 : 1)'",
            "perl -e '$p = syscall(@pidfd_open@, @daemon@, 0); exit(syscall(@pidfd_getfd@, $p, 0, 0) >= 0 ? 0 : 1)'",
        ],
        fates: [Refused, Refused, Refused, OpenToRoot],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "reads what `/proc/1` says of the machine's first process",
        attacks: &["cat /proc/1/environ", "readlink /proc/1/fd/0", "ls /proc/1/root/"],
        fates: [Refused, Refused, Refused, OpenToRoot],
        // In a container, even root may be refused.
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "sends a signal to the sidecar",
        attacks: &["kill -0 @daemon@", "kill -WINCH @daemon@", "perl -e 'kill(0, @daemon@) || exit 1'"],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "makes a user namespace, and with it all others",
        attacks: &[
            "unshare -U true",
            "unshare -Um true",
            "perl -e 'exit(syscall(@clone@, 0x10000011, 0, 0, 0, 0) >= 0 ? 0 : 1)'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "mounts something, or enters another namespace",
        attacks: &[
            "mkdir -p mounted && mount -t tmpfs none mounted && umount mounted",
            "perl -e 'open(F, \"<\", \"/proc/self/ns/uts\") || exit 2; exit(syscall(@setns@, fileno(F), 0) == 0 ? 0 : 1)'",
            "chroot / true",
        ],
        fates: [Refused, Refused, Refused, OpenToRoot],
        witness: Witness::Script,
    },
    Case {
        about: "uses `io_uring`, kernel keys or `userfaultfd`",
        attacks: &[
            "perl -e '$p = \"\\0\" x 120; exit(syscall(@io_uring_setup@, 1, $p) >= 0 ? 0 : 1)'",
            "perl -e 'exit(syscall(@keyctl@, 0, -3, 1) >= 0 ? 0 : 1)'",
            "perl -e '($t, $n) = (\"user\", \"portcullis\"); exit(syscall(@add_key@, $t, $n, $n, 1, -3) >= 0 ? 0 : 1)'",
            "perl -e 'exit(syscall(@userfaultfd@, 1) >= 0 ? 0 : 1)'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "loads a program into the kernel (`bpf`)",
        attacks: &[
            "perl -e '$a = pack(\"LLLLL\", 2, 4, 4, 1, 0) . (\"\\0\" x 52); exit(syscall(@bpf@, 0, $a, 72) >= 0 ? 0 : 1)'",
        ],
        fates: [Refused, Refused, Refused, OpenToRoot],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "gains rights by a setuid program, which root need not",
        attacks: &["[[ $(id -u) != 0 && $(./setuid -u) == 0 ]]"],
        fates: [Refused, Refused, Refused, OpenToOthers],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "takes more private memory in one process than the limit",
        attacks: &["perl -e '$x = \"a\" x 400_000_000; sleep 20; exit 0'"],
        fates: [Refused, Refused, Refused, Killed],
        witness: Witness::Script,
    },
    Case {
        about: "takes more memory than the limit by shared mappings or in many processes",
        attacks: &[
            "perl -e '$n = 400_000_000; $a = syscall(@mmap@, 0, $n, 3, 0x21, -1, 0); open(Z, \"<\", \"/dev/zero\"); \
             for ($o = 0; $o + 1e6 < $n; $o += 1e6) { syscall(@read@, fileno(Z), $a + $o, 1_000_000) } sleep 20'",
            "perl -e 'for (1..20) { if (!fork) { $x = \"x\" x 20e6; sleep 20; exit } } sleep 20'",
        ],
        fates: [Killed, Killed, Killed, Killed],
        witness: Witness::Script,
    },
    Case {
        about: "takes more memory than the limit by files in memory (`memfd_create`)",
        attacks: &[
            "perl -e '$n = $x = \"x\"; $x x= 5_000_000; for (1..80) { $f = syscall(@memfd_create@, $n, 0); exit 1 if $f < 0; \
             open($h[$_], \">&=\", $f); syswrite($h[$_], $x) } sleep 20'",
        ],
        fates: [Refused, Refused, Killed, Killed],
        witness: Witness::Script,
    },
    Case {
        about: "opens more files than the limit",
        attacks: &["perl -e 'for (1..600) { open($f[$_], \"<\", \"/dev/null\") || exit 1 }'"],
        fates: [Refused, Refused, Refused, Open],
        witness: Witness::Script,
    },
    Case {
        about: "starts more processes than the limit",
        attacks: &[
            "b() { local n=$1; ((n == 0)) && exec -a @mark@ sleep 60; b $((n - 1)) & b $((n - 1)) & wait; }; b 6",
        ],
        fates: [Killed, Killed, Killed, Killed],
        witness: Witness::Script,
    },
    Case {
        about: "goes on after its time, even with `setsid` and double forks",
        attacks: &[
            "(setsid bash -c '(exec -a @mark@ sleep 60 &)' &); (trap '' TERM HUP; setsid -f bash -c 'exec -a @mark@ sleep 60'); \
             echo x >> counter; exec -a @mark@ sleep 60",
        ],
        fates: [Late, Late, Late, Late],
        witness: Witness::Script,
    },
    Case {
        about: "waits for ever: opens a FIFO without a writer",
        attacks: &["mkfifo fifo; cat fifo", "rm -f fifo; mkfifo fifo; echo x > fifo"],
        fates: [Late, Late, Late, Late],
        witness: Witness::Script,
    },
];
