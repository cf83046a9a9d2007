//! Attacks over the network and through sockets. A listener detects attacks that get out although they must not.

use super::case::{
    Case,
    Fate::{Open, OpenToRoot, Refused},
    Witness,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        about: "connects by TCP",
        attacks: &[
            "echo x > /dev/tcp/127.0.0.1/@tcp4@",
            "echo x > /dev/tcp/0.0.0.0/@tcp4@",
            "echo x > /dev/tcp/::1/@tcp6@",
            "perl -e 'use Socket; socket(S, AF_INET, SOCK_STREAM, 262) && connect(S, pack_sockaddr_in(@tcp4@, INADDR_LOOPBACK)) || exit 1'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Listener,
    },
    Case {
        about: "sends by UDP, or asks a name server",
        attacks: &[
            "echo x > /dev/udp/127.0.0.1/@udp4@",
            "echo x > /dev/udp/::1/@udp6@",
            r"printf '\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01' > /dev/udp/127.0.0.1/@udp4@",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Listener,
    },
    Case {
        about: "waits for connections",
        attacks: &[
            "perl -e 'use Socket; socket(S, AF_INET, SOCK_STREAM, 0) && bind(S, pack_sockaddr_in(0, INADDR_LOOPBACK)) && listen(S, 1) || exit 1'",
            "perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && bind(S, pack_sockaddr_un(\"own.sock\")) && listen(S, 1) || exit 1; unlink \"own.sock\"'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "connects to a Unix socket: docker's or ssh-agent's in a mount, the sidecar's, an abstract one",
        attacks: &[
            "perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un(\"docker.sock\")) || exit 1'",
            "perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un($ENV{PORTCULLIS_TMP} . \"/agent.1\")) || exit 1'",
            "perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un(\"@control@\")) || exit 1'",
            "perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack(\"S a*\", AF_UNIX, \"\\0@abstract@\")) || exit 1'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Listener,
    },
    Case {
        about: "sends to a Unix socket from one end of a connected pair",
        attacks: &[
            "perl -e 'use Socket; socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) && send(A, \"x\", 0, pack(\"S a*\", AF_UNIX, \"\\0@datagrams@\")) || exit 1'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Listener,
    },
    Case {
        about: "opens a socket to the kernel or to the host of a virtual machine (`AF_NETLINK`, `AF_VSOCK`, `AF_ALG`)",
        attacks: &[
            "perl -e 'socket(S, 16, 3, 0) || exit 1'",
            "perl -e 'socket(S, 40, 1, 0) || exit 1'",
            "perl -e 'socket(S, 38, 5, 0) || exit 1'",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "reads or writes raw packets (`AF_PACKET`, raw sockets)",
        attacks: &["perl -e 'socket(S, 17, 3, 0) || exit 1'", "perl -e 'socket(S, 2, 3, 255) || exit 1'"],
        fates: [Refused, Refused, Refused, OpenToRoot],
        witness: Witness::Script,
    },
];
