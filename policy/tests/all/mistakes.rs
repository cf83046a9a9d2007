//! The mistakes that people make in policy files: each is found, in its line, with the line to write instead.

use portcullis_policy::{
    KnownTools, LintCode, LintLevel, LintReport, LoadOptions, PolicyProvenance, PolicySource,
    WorkspaceSecurityPolicy,
};
use portcullis_types::SandboxTier;

use LintCode::{
    ChangesEverywhere, Covered, DiffersInCase, Fault, HomeMissing, IdleNetwork, IdleSearch, LayerWaived,
    LimitWithoutEffect, NoTool, OverlayWithoutEffect, ReadToolWrites, SecretVariable, Shadowed,
    ShippedNameDropped, UnaskedWithoutAsk, Unused, VaultUnasked,
};

/// The policy that the mistakes are made in; its 13 lines have no findings.
const GOOD: &str = "version = 1
[mounts]
shared = \"shared\"
tmp = \"tmp\"
vault = \"vault\"
[profiles.R]
mounts = { shared = \"read\", tmp = \"read\" }
[profiles.W]
mounts = { shared = \"write\", tmp = \"write\" }
[tiers]
read_only = { profile = \"R\", approval = \"allow\" }
side_effecting = { profile = \"W\", approval = \"allow\" }
[tools.vault_copyto_read]
profile = \"V\"
approval = \"ask\"
[profiles.V]
mounts = { vault = \"read\" }
";

/// A way to make the mistake.
enum Mistake {
    /// Lines after the good ones; the first is line 18.
    Add(&'static str),
    /// Another text in place of one.
    Edit(&'static str, &'static str),
    /// Another file.
    Whole(&'static str),
    /// An overlay.
    Overlay(&'static str),
    /// No mistake in the text: there is no approver.
    NoApprover,
}

use Mistake::{Add, Edit, NoApprover, Overlay, Whole};

/// A mistake, and its finding: the code, the line and words of its message.
type Case = (Mistake, LintCode, usize, &'static str);

const CASES: &[Case] = &[
    // Words that are nearly right.
    (Edit("[mounts]", "[mount]"), Fault, 2, "did you mean `mounts`"),
    (Add("[tools.file_read]\nprofil = \"R\""), Fault, 19, "did you mean `profile`"),
    (Add("[tools.file_read]\nprofile = \"RR\""), Fault, 19, "unknown profile; known are"),
    (Edit("tmp = \"read\" }", "tmpp = \"read\" }"), Fault, 7, "unknown mount; did you mean `tmp`"),
    (Add("[tools.file_read]\napproval = \"aks\""), Fault, 19, "aks"),
    (Add("[tools.file_raed]\nenabled = false"), NoTool, 18, "did you mean `file_read`"),
    (Add("[tools.file_wirte]\napproval = \"deny\""), NoTool, 18, "did you mean `file_write`"),
    (Overlay("[tools.shell_exce]\napproval = \"deny\""), NoTool, 1, "did you mean `shell_exec`"),
    (Add("[limit]\nconcurrency = 3"), Fault, 18, "did you mean `limits`"),
    (Add("[shell]\nmount = { shared = \"read\" }"), Fault, 19, "did you mean `mounts`"),
    // Values of another form.
    (Edit("shared = \"read\"", "shared = \"rw\""), Fault, 7, "rw"),
    (Add("[limits]\nwasm_memory = \"64M\""), Fault, 19, "64M"),
    (Add("[tools.file_read]\ntimeout = 30"), Fault, 19, "unit"),
    (Add("[tools.file_read]\nenabled = \"false\""), Fault, 19, "`true` or `false`"),
    (Edit("version = 1", "version = 2"), Fault, 1, "version 2"),
    (Edit("version = 1", "# none"), Fault, 1, "version"),
    (Add("[limits]\nconcurrency = 0"), Fault, 19, "0"),
    (Edit("[profiles.R]\nmounts = {", "[profiles.R]\nmounts = "), Fault, 7, ""),
    (Edit("tmp = \"read\" }", "tmp = \"read\""), Fault, 7, "is not closed"),
    (Whole("{ \"version\": 1 }"), Fault, 1, "looks like JSON"),
    (Add("[profiles.R]\nmounts = { tmp = \"read\" }"), Fault, 18, "move its keys to the one of line 6"),
    // Mounts.
    (Edit("tmp = \"tmp\"", "tmp = \"shared/tmp\""), Fault, 4, "overlaps"),
    (Edit("tmp = \"tmp\"", "tmp = \"Shared\""), Fault, 4, "overlaps"),
    (Edit("tmp = \"tmp\"", "tmp = \"../tmp\""), Fault, 4, "`..`"),
    (Edit("tmp = \"tmp\"", "tmp = \"/\""), Fault, 4, "/"),
    (Edit("tmp = \"tmp\"", "tmp = \".\""), Fault, 4, ""),
    (Edit("tmp = \"tmp\"", "tmp = \"tmp\"\nattic = \"attic\""), Unused, 5, "no profile and no shell"),
    (Add("[profiles.Spare]\nmounts = { tmp = \"read\" }"), Unused, 18, "no tier and no tool"),
    (Edit("shared = \"shared\"\ntmp", "data = \"shared\"\ntmp"), Fault, 7, "unknown mount"),
    // The vault.
    (Edit("vault = \"read\"", "vault = \"write\""), Fault, 17, "cannot be writable"),
    (
        Edit("vault = \"read\"", "vault = \"read\", tmp = \"write\""),
        Fault,
        16,
        "cannot have a writable mount",
    ),
    (Add("[shell]\nmounts = { vault = \"read\" }"), Fault, 19, "vault"),
    (Edit("read_only = { profile = \"R\"", "read_only = { profile = \"V\""), Fault, 11, "vault"),
    (Edit("approval = \"ask\"\n", ""), VaultUnasked, 14, "reads the vault"),
    // More than was meant.
    (
        Edit("read_only = { profile = \"R\"", "read_only = { profile = \"W\""),
        ReadToolWrites,
        11,
        "`file_read`",
    ),
    (Add("[protect]\nexcept = [\".git/hooks\"]"), ShippedNameDropped, 19, "is no longer protected"),
    (Add("[shell]\nenvironment = [\"AWS_SECRET_ACCESS_KEY\"]"), SecretVariable, 19, "name of a secret"),
    (Edit("version = 1", "version = 1\nrequire = []"), LayerWaived, 2, "is waived"),
    (
        Add(
            "[profiles.N]\nhosts = [\"https://*\"]\nmethods = [\"GET\", \"POST\"]\n[tools.web_fetch_request]\nprofile = \"N\"",
        ),
        ChangesEverywhere,
        20,
        "`POST` may go to every host",
    ),
    // Less than was meant, or nothing.
    (Add("[shell]\nallow = [\"git push\"]\ndeny = [\"git\"]"), Shadowed, 18, "allows nothing"),
    (Add("[tools.file_read]\ntimeout = \"1h\""), LimitWithoutEffect, 19, "`limits.max_timeout` is 10m"),
    (
        Add("[tools.file_write]\nunasked = { path = \"src/**\" }"),
        UnaskedWithoutAsk,
        19,
        "the rules do nothing",
    ),
    (
        Add(
            "[profiles.N]\nhosts = [\"https://*\", \"https://a.example\"]\n[tools.web_fetch_request]\nprofile = \"N\"",
        ),
        Covered,
        19,
        "covers this",
    ),
    (
        Add("[profiles.N]\nmethods = [\"GET\"]\n[tools.web_fetch_request]\nprofile = \"N\""),
        IdleNetwork,
        19,
        "without `hosts`",
    ),
    (Add("[search]\nprovider = \"brave\""), IdleSearch, 19, "every search is denied"),
    (
        Whole(
            "version = 1\n[mounts]\ndata = \"d\"\n[profiles.R]\nmounts = { data = \"read\" }\n[tiers]\nread_only = { profile = \"R\", approval = \"allow\" }\n",
        ),
        HomeMissing,
        2,
        "no mount has this name",
    ),
    (NoApprover, LintCode::NoApprover, 15, "there is no approver"),
    (Add("[profiles.r]\nmounts = {}"), DiffersInCase, 18, "differ in case only"),
    (Add("[protect]\npaths = [\"/etc\"]"), Fault, 19, "/"),
    (Add("[protect]\npaths = [\"*.sh\"]"), Fault, 19, "wildcards are not supported"),
    // Overlays.
    (Overlay("[profiles.R.mounts]\nshared = \"write\""), Fault, 2, "would widen the operator's `read`"),
    (Overlay("[mounts]\nx = \"x\""), Fault, 1, "only the operator's policy may set this key"),
    (Overlay("[profiles.Q.mounts]\nshared = \"read\""), Fault, 1, "unknown profile"),
    (Overlay("[tools.file_read]\nenabled = true"), Fault, 2, "only the operator"),
    (Overlay("[limits]\nconcurrency = 10"), OverlayWithoutEffect, 2, "takes nothing away"),
    (Overlay("[tools.file_read]\ntimeout = \"1m\""), OverlayWithoutEffect, 2, "declares 10s"),
];

fn report(mistake: &Mistake) -> LintReport {
    let operator = match mistake {
        Add(lines) => format!("{GOOD}{lines}\n"),
        Edit(from, to) => {
            assert!(GOOD.contains(from), "{from}");
            GOOD.replacen(from, to, 1)
        }
        Whole(text) => (*text).to_owned(),
        Overlay(_) | NoApprover => GOOD.to_owned(),
    };
    let overlay = match mistake {
        Overlay(text) => Some(PolicySource { name: "overlay.toml", text }),
        Add(_) | Edit(..) | Whole(_) | NoApprover => None,
    };
    let options = LoadOptions {
        operator: PolicySource { name: "p.toml", text: &operator },
        overlay,
        sandbox_tier: SandboxTier::Process,
    };
    lint(&options, &KnownTools::shipped(), !matches!(mistake, NoApprover))
}

fn lint(options: &LoadOptions<'_>, known: &KnownTools, has_approver: bool) -> LintReport {
    match WorkspaceSecurityPolicy::load(options) {
        Ok(policy) => {
            LintReport::of_policy(options, &policy, &PolicyProvenance::read(options), known, has_approver)
        }
        Err(error) => LintReport::of_faults(error),
    }
}

#[test]
fn each_mistake_is_found_in_its_line_with_a_hint() {
    assert!(CASES.len() >= 44, "{}", CASES.len());
    let mut wrong = Vec::new();
    for (index, (mistake, code, line, words)) in CASES.iter().enumerate() {
        let report = report(mistake);
        let file = if matches!(mistake, Overlay(_)) { "overlay.toml" } else { "p.toml" };
        let found = report.findings.iter().any(|finding| {
            finding.code == *code
                && finding.location.file == file
                && finding.location.line == *line
                && finding.message.contains(words)
                && !finding.hint.is_empty()
        });
        if !found {
            wrong.push(format!("case {index}: {code} in line {line} with `{words}`: {:#?}", report.findings));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_good_policy_and_the_shipped_one_have_no_mistakes() {
    assert_eq!(report(&Overlay("")).findings, []);
    let options = LoadOptions {
        operator: PolicySource { name: "d", text: portcullis_policy::DEFAULT_POLICY },
        overlay: None,
        sandbox_tier: SandboxTier::Process,
    };
    let report = lint(&options, &KnownTools::shipped(), true);
    assert!(report.heaviest().is_none_or(|level| level == LintLevel::Note), "{:#?}", report.findings);
}

#[test]
fn the_document_has_each_code() {
    let document = include_str!("../../../docs/auditing.md");
    for code in LintCode::ALL {
        let row = format!("| `{code}` | {} | {} |", code.level(), code.summary());
        assert!(document.contains(&row), "docs/auditing.md has no row {row}");
    }
}

#[test]
fn each_code_has_its_own_words() {
    for (index, code) in LintCode::ALL.iter().enumerate() {
        assert_eq!(code.as_str(), format!("P{index:02}"), "codes are never given again");
        assert!(!code.summary().is_empty() && !code.hint().is_empty());
        assert!(LintCode::ALL[..index].iter().all(|earlier| earlier.summary() != code.summary()));
    }
}
