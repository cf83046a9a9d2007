//! Attacks on files.

use super::case::{
    Case,
    Fate::{Open, OpenToRoot, Refused, Told},
    Witness,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        about: "reads a file outside the mounts and the system's folders, such as one of the vault",
        attacks: &[
            "cat @vault@/secret",
            "cat @state@/canary",
            "ln -sf @vault@/secret link && cat link",
            "ln -sfn @vault@ folder && cat folder/secret",
            "ln -f @vault@/secret hard && cat hard",
            "cat ../vault/secret",
            "cat /proc/self/root@vault@/secret",
            "cat /proc/self/cwd/../vault/secret",
            "exec 7< . && cat /proc/self/fd/7/../vault/secret",
            "ls @root@",
            "cat /etc/hostname",
            "ls /run /var /home",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "reads it through a link that another process keeps exchanging",
        attacks: &[
            "until [[ -e enough ]]; do x=; read -r x < @swapped@; [[ $x == vault* ]] && exit 0; done 2>/dev/null; exit 1",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "writes, makes or removes a file outside the mounts, even by a link in one",
        attacks: &[
            "echo x > @vault@/new",
            "ln -sfn @vault@ out && echo x > out/new2",
            "ln -sf @vault@/new3 out3 && echo x > out3",
            "ln -sf @vault@/prey prey && : >> prey",
            "mv @vault@/prey stolen && mv stolen @vault@/prey",
            "cp read-me @vault@/copy && rm @vault@/copy",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "writes to a mount that it may only read",
        attacks: &[
            "echo x > $PORTCULLIS_READ/new",
            ": > $PORTCULLIS_READ/other",
            "ln -sf $PORTCULLIS_READ/new4 in && echo x > in",
            "mkdir $PORTCULLIS_READ/folder",
        ],
        fates: [Refused, Refused, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "reads or writes a file outside by a hard link that lay in a mount before",
        attacks: &["cat planted", "echo x >> planted"],
        fates: [Open, Open, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "learns whether a file outside exists, its size, owner and times, or enters its folder",
        attacks: &["stat @vault@/secret", "[[ -e @vault@/secret ]]", "cd @vault@"],
        fates: [Refused, Open, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "changes mode or times of its own user's file that it may not write: outside, or in a mount for reading",
        attacks: &[
            "chmod 640 @vault@/prey",
            "touch -d @1 @vault@/prey",
            "chmod 640 $PORTCULLIS_READ/other",
            "touch -d @1 $PORTCULLIS_READ/other",
        ],
        fates: [Refused, Open, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "sets an extended attribute or a flag (`chattr`) of such a file",
        attacks: &[
            "perl -e '$p = \"@vault@/prey\"; $n = \"user.x\"; $v = \"y\"; exit(syscall(@setxattr@, $p, $n, $v, 1, 0) == 0 ? 0 : 1)'",
            "perl -e '$p = \"$ENV{PORTCULLIS_READ}/other\"; $n = \"user.x\"; $v = \"y\"; \
             exit(syscall(@setxattr@, $p, $n, $v, 1, 0) == 0 ? 0 : 1)'",
            "perl -e 'open(F, \"<\", \"$ENV{PORTCULLIS_READ}/other\") || exit 1; $f = pack(\"Q\", 0); \
             ioctl(F, 0x80086601, $f) || exit 1; $f = pack(\"Q\", unpack(\"L\", $f) ^ 0x40); ioctl(F, 0x40086602, $f) || exit 1'",
        ],
        fates: [Refused, Refused, Open, Open],
        // Not every file system supports them.
        witness: Witness::ScriptIfSupported,
    },
    Case {
        about: "changes what the machine has in its own folders",
        attacks: &["mkdir /run/@mark@ && rmdir /run/@mark@", "mkdir /etc/@mark@ && rmdir /etc/@mark@"],
        fates: [Refused, Refused, OpenToRoot, OpenToRoot],
        witness: Witness::Script,
    },
    Case {
        about: "makes a device",
        attacks: &["mknod device c 1 3 && rm device", "mknod disk b 8 0 && rm disk"],
        fates: [Refused, Refused, Refused, OpenToRoot],
        witness: Witness::Script,
    },
    Case {
        about: "writes a file that is larger than the limit, with holes or without",
        attacks: &[
            "truncate -s 20M sparse",
            "head -c 20000000 /dev/zero > full",
            "fallocate -l 20M reserved",
        ],
        fates: [Refused, Refused, Refused, Open],
        witness: Witness::Script,
    },
    Case {
        about: "makes very many files in a mount that it may write to",
        attacks: &["mkdir many && cd many && seq 3000 | xargs touch && cd .. && rm -r many"],
        fates: [Open, Open, Open, Open],
        witness: Witness::Script,
    },
    Case {
        about: "writes a protected path that is there, such as `.git/hooks/pre-commit`",
        attacks: &[
            "echo new >> .git/hooks/pre-commit",
            "echo new >> deep/er/.bashrc",
            "echo new > plain && mv plain .envrc",
            "chmod 755 .vscode/tasks.json && echo new >> .vscode/tasks.json",
            "mv .git away && mkdir -p .git/hooks && echo new > .git/hooks/pre-commit",
            "mv .git further && cp -r further linked && ln -s linked .git",
            "rm -r .vscode && mkdir .vscode && echo new > .vscode/tasks.json",
        ],
        fates: [Refused, Told, Told, Told],
        witness: Witness::Script,
    },
    Case {
        about: "makes a protected path that is not there, at any depth",
        attacks: &[
            "mkdir -p a/.git/hooks && echo x > a/.git/hooks/pre-commit",
            "mkdir -p a/b/c && echo x > a/b/c/.bashrc",
            "ln -s ../read-me a/.envrc",
            "mkdir -p a/b/.VSCode && echo x > a/b/.VSCode/Tasks.json",
            "echo x > $PORTCULLIS_TMP/.bashrc",
            "mkfifo a/b/.envrc",
        ],
        fates: [Told, Told, Told, Told],
        witness: Witness::Script,
    },
    Case {
        about: "moves a folder away that has such a path further down, and makes another in its place",
        attacks: &["mv deep gone && mkdir -p deep/er && echo new > deep/er/.bashrc"],
        fates: [Told, Told, Told, Told],
        witness: Witness::Script,
    },
    Case {
        about: "leads Git to a repository of its own making: by a file `.git`, or by a folder that is a bare one",
        attacks: &[
            "mkdir file && echo 'gitdir: ../bare' > file/.git",
            "mkdir -p bare/objects bare/refs && echo 'ref: refs/heads/x' > bare/HEAD && echo '[core]' > bare/config",
            "mkdir -p late/objects late/refs && echo '[core]' > late/config && echo 'ref: refs/heads/x' > late/HEAD",
            "mkdir hooked && cd hooked && mkdir objects refs hooks && echo x > hooks/pre-commit && echo x > HEAD",
            "mkdir tree && echo ../bare > tree/commondir && echo 'ref: refs/heads/x' > tree/HEAD",
            "git=.git/modules/m && mkdir -p $git/objects $git/refs && echo x > $git/HEAD && echo x > $git/config",
        ],
        fates: [Told, Told, Told, Told],
        witness: Witness::Script,
    },
];
