//! `portcullis doctor`: shows which layers are enforced here, with the proof, and how to enable the missing
//! ones.
//!
//! The findings are a value that is shown as text or as JSON. A failed start is a finding too.

mod findings;
mod text;

use std::{process::ExitCode, sync::Arc};

use portcullis_tools::{
    BootstrapError, HostWasmToolRunner, PolicyFiles, RegisteredTool, ToolRegistry,
    audit::{self, BreakReason, Confinement},
    confine::{
        CanaryFile, Evidence, KernelSupport, Layer, LayerStatus, Posture, Requirement, ThreadConfinement,
        probe_kernel, prove_on_scratch_thread,
    },
    policy::{self, PinStatus, ToolOrigin},
    sandbox::GuestModule,
    shell::{LayerHealth, ShellSource},
};
use portcullis_types::{RunnerBootstrapEnvelope, ToolErrorKind};

use crate::{
    cli::{self, CommonOptions},
    error::{CliError, causes},
    output::{json, stream},
    setup, sidecar,
};

use self::findings::{
    AuditFinding, EgressFinding, Findings, HardLinkFinding, KernelReport, LayerFinding, MissingPart,
    PolicyFinding, ProjectFinding, ProvenAttempt, SecretFinding, ShellFinding, ShellLayer, ToolCount,
};
use super::tools::ShellState;

pub(crate) fn run(common: &CommonOptions, options: &cli::DoctorOptions) -> Result<ExitCode, CliError> {
    let findings = examine(common)?;
    if options.json {
        json::write_output(&findings)?;
    } else {
        stream::write_output(&text::render(&findings))?;
    }
    Ok(exit_code(&findings))
}

/// Returns the findings in a few lines, and the exit code, which says whether everything that the policy
/// requires is enforced.
pub(super) fn summary(common: &CommonOptions) -> Result<(String, ExitCode), CliError> {
    let findings = examine(common)?;
    Ok((text::summary(&findings), exit_code(&findings)))
}

fn exit_code(findings: &Findings) -> ExitCode {
    if findings.ok { ExitCode::SUCCESS } else { ExitCode::from(ToolErrorKind::Unavailable.exit_code()) }
}

fn examine(common: &CommonOptions) -> Result<Findings, CliError> {
    let envelope = setup::envelope(common)?;
    let files = setup::policy_files(&envelope)?;
    // Load the policy first: an unusable policy names no layer to examine.
    let policy = files.load(envelope.sandbox_tier)?;
    let support = probe_kernel();
    // Verify the log before the start: the start repairs the traces of a crash, and could hide other damage.
    let audit = audit_finding(&envelope);
    let runtime = setup::runtime()?;
    let started = runtime.block_on(start_and_prove(&envelope, sidecar::shell_source(common)));
    let (mut shell, mut egress) = (None, None);
    let (registry, posture, error) = match started {
        Ok((registry, posture)) => {
            shell = Some(runtime.block_on(shell_finding(&registry)));
            egress = runtime.block_on(egress_finding(&registry, &policy, &support));
            (Some(registry), posture, None)
        }
        Err(error) if is_finding(&error) => {
            (None, prove_without_tools(&envelope, &policy, &support), Some(error))
        }
        Err(error) => return Err(error),
    };
    let layers: Vec<_> =
        Layer::THREAD.map(|layer| layer_finding(layer, &policy, &support, posture.as_ref())).into();
    // The start has created or repaired the log.
    let audit = audit.or_else(|| audit_finding(&envelope));
    let proven = layers.iter().all(|layer| layer.proven || !layer.required);
    let recorded = audit.as_ref().is_some_and(|audit| audit.intact);
    let digest = registry.as_ref().map_or(policy.digest(), |registry| registry.policy().digest()).to_string();
    Ok(Findings {
        version: env!("CARGO_PKG_VERSION"),
        ok: error.is_none()
            && proven
            && recorded
            // A client that cannot start is not a fault: it makes no request, so nothing runs unproven.
            && egress.as_ref().is_none_or(|egress| egress.ok || egress.posture.is_none())
            && shell.as_ref().is_none_or(|shell| shell.ok || !shell.wanted),
        missing: missing_parts(&layers, &support),
        layers,
        egress,
        shell,
        kernel: KernelReport {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            arch: std::env::consts::ARCH,
            landlock_abi: support.landlock_abi,
            seccomp: support.seccomp,
            pagemap_scan: HostWasmToolRunner::has_pagemap_scan(),
        },
        policy: PolicyFinding {
            source: files.operator_name().to_owned(),
            overlay: files.overlay_name().map(str::to_owned),
            requires: policy.required_layers().map(policy::RequiredLayer::as_str).collect(),
            digest,
        },
        secrets: secret_findings(&files, &policy),
        tools: registry.as_ref().map(count_tools),
        audit,
        hard_links: registry.as_ref().map(HardLinkFinding::collect),
        error: error.map(|error| format!("{error}\n{}", causes(&error)).trim_end().to_owned()),
        project: setup::project(common)?
            .map(|project| ProjectFinding { name: project.name, folder: project.folder }),
        workspace: envelope.workspace,
        state: envelope.state,
    })
}

/// Examines the secrets, each with the problem that prevents its use.
fn secret_findings(files: &PolicyFiles, policy: &policy::WorkspaceSecurityPolicy) -> Vec<SecretFinding> {
    let problems = files.examine_secrets(policy);
    let findings = policy.secrets().zip(problems).map(|((name, rule), (_, problem))| SecretFinding {
        name: name.to_string(),
        audience: rule.audience(),
        problem: problem.map(|problem| portcullis_types::error_chain(&problem)),
    });
    findings.collect()
}

/// Starts the tools as for a call, and has a worker thread prove its confinement.
async fn start_and_prove(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
) -> Result<(ToolRegistry, Option<Posture>), CliError> {
    let registry = setup::registry(envelope, shell).await?;
    let tools = registry.tools();
    let posture = match (registry.runner(), tools.iter().find_map(|tool| shipped_module(tool))) {
        (Some(runner), Some(module)) => Some(runner.posture(module).await.map_err(BootstrapError::Wasm)?),
        _ => None,
    };
    Ok((registry, posture))
}

/// Starts the HTTP client as for a request. Returns `None` if the policy grants no hosts.
async fn egress_finding(
    registry: &ToolRegistry,
    policy: &policy::WorkspaceSecurityPolicy,
    support: &KernelSupport,
) -> Option<EgressFinding> {
    let proxy = policy.egress().proxy.as_ref().map(ToString::to_string);
    Some(match registry.egress_posture().await? {
        Ok(posture) => {
            let layers: Vec<_> =
                Layer::THREAD.map(|layer| layer_finding(layer, policy, support, Some(&posture))).into();
            EgressFinding {
                ok: layers.iter().all(|layer| layer.proven || !layer.required),
                posture: Some(posture.summary().to_owned()),
                proxy,
                layers,
                reason: None,
            }
        }
        Err(error) => EgressFinding {
            ok: false,
            posture: None,
            proxy,
            layers: Vec::new(),
            reason: Some(error.operator_detail().unwrap_or(error.message()).to_owned()),
        },
    })
}

/// Starts a session of the shell as for a command.
async fn shell_finding(registry: &ToolRegistry) -> ShellFinding {
    let least = registry.policy().shell().map(|shell| shell.posture.to_string());
    let unavailable = |is_configured, reason| ShellFinding {
        ok: false,
        wanted: is_configured,
        posture: None,
        least: least.clone(),
        layers: Vec::new(),
        hosts: Vec::new(),
        network_absence: None,
        reason: Some(reason),
    };
    match ShellState::query(registry).await {
        ShellState::Off(reason) => unavailable(false, reason),
        ShellState::Lost(error) => {
            unavailable(true, format!("{error}\n{}", causes(&error)).trim_end().to_owned())
        }
        ShellState::On(health) => ShellFinding {
            ok: true,
            wanted: true,
            posture: Some(health.posture),
            least,
            layers: health.layers.into_iter().map(shell_layer).collect(),
            hosts: health.hosts,
            network_absence: health.network_absence,
            reason: None,
        },
    }
}

fn shell_layer(layer: LayerHealth) -> ShellLayer {
    let LayerHealth { name, status, reason, evidence } = layer;
    let evidence =
        evidence.into_iter().map(|(attempt, before, after)| ProvenAttempt { attempt, before, after });
    ShellLayer { layer: name, status, reason, evidence: evidence.collect() }
}

/// Returns the module of a shipped tool. A foreign module would take longer to prove the same.
fn shipped_module(tool: &RegisteredTool) -> Option<&Arc<GuestModule>> {
    tool.module().filter(|_| tool.descriptor().origin == ToolOrigin::ShippedModule)
}

/// Returns whether a failed start concerns enforcement on this machine instead of wrong options.
fn is_finding(error: &CliError) -> bool {
    use BootstrapError as E;
    matches!(
        error,
        CliError::Bootstrap(
            E::MissingLayer { .. } | E::Wasm(_) | E::Audit(_) | E::Outputs(_) | E::State(_) | E::Registry(_)
        )
    )
}

/// Proves the available layers on a thread that does nothing else, after the start of the tools has failed.
fn prove_without_tools(
    envelope: &RunnerBootstrapEnvelope,
    policy: &policy::WorkspaceSecurityPolicy,
    support: &KernelSupport,
) -> Option<Posture> {
    portcullis_tools::state::prepare(&envelope.state).ok()?;
    let requirement = |layer| {
        if is_required(layer, policy) && support.missing(layer).is_none() {
            Requirement::Required
        } else {
            Requirement::Waived
        }
    };
    let rules = ThreadConfinement {
        landlock: requirement(Layer::Landlock),
        seccomp: requirement(Layer::Seccomp),
        mounts: Vec::new(),
        network: None,
        canary: CanaryFile::create(&envelope.state).ok()?,
    };
    prove_on_scratch_thread(&rules).ok()
}

fn is_required(layer: Layer, policy: &policy::WorkspaceSecurityPolicy) -> bool {
    policy.required_layers().any(|required| required.as_str() == layer.as_str())
}

fn layer_finding(
    layer: Layer,
    policy: &policy::WorkspaceSecurityPolicy,
    support: &KernelSupport,
    posture: Option<&Posture>,
) -> LayerFinding {
    let required = is_required(layer, policy);
    let concerns_layer = |evidence: &&Evidence| evidence.layer == layer;
    let evidence: Vec<_> =
        posture.map_or(&[][..], Posture::evidence).iter().filter(concerns_layer).cloned().collect();
    let status = match (support.missing(layer), posture) {
        _ if !required => LayerStatus::Waived,
        (Some(reason), _) => LayerStatus::Missing { reason: reason.to_owned() },
        (None, Some(posture)) => posture.layer(layer).clone(),
        (None, None) => {
            LayerStatus::Missing { reason: "the kernel has it, but no thread could prove it".to_owned() }
        }
    };
    let is_held = matches!(status, LayerStatus::Enforced | LayerStatus::Partial { .. });
    LayerFinding {
        layer,
        required,
        proven: is_held && evidence.iter().any(Evidence::is_proof),
        status,
        evidence,
    }
}

/// Returns the result of verification. `None` if there is no log yet, or if its only fault is a torn tail,
/// which the next start repairs.
fn audit_finding(envelope: &RunnerBootstrapEnvelope) -> Option<AuditFinding> {
    let path = audit::log_path(&envelope.state);
    let (intact, report) = match audit::verify(&path) {
        Ok(report)
            if report.first_break.as_ref().is_some_and(|broken| broken.why == BreakReason::TornTail) =>
        {
            return None;
        }
        Ok(report) => (report.is_intact(), super::audit::verification_text(&report).trim_end().to_owned()),
        Err(error) if error.is_missing() => return None,
        Err(error) => (false, format!("{error}\n{}", causes(&error)).trim_end().to_owned()),
    };
    Some(AuditFinding { path, intact, report })
}

fn count_tools(registry: &ToolRegistry) -> ToolCount {
    let tools = registry.tools();
    let count_confined = |confinement| tools.iter().filter(|tool| tool.confinement() == confinement).count();
    ToolCount {
        wasm: count_confined(Confinement::Wasm),
        egress: count_confined(Confinement::Egress),
        shell: count_confined(Confinement::Shell),
        native_unconfined: count_confined(Confinement::Native),
        quarantined: tools
            .iter()
            .filter(|tool| tool.descriptor().pin_status == PinStatus::Quarantined)
            .count(),
        refused_modules: registry.refused_modules().len(),
    }
}

fn missing_parts(layers: &[LayerFinding], support: &KernelSupport) -> Vec<MissingPart> {
    let mut missing = Vec::new();
    for finding in layers {
        let LayerFinding { layer, required, status, .. } = finding;
        let required = *required;
        match status {
            LayerStatus::Enforced => {}
            LayerStatus::Partial { missing: rights } => missing.push(MissingPart {
                what: format!("{layer}: {}", rights.join(", ")),
                required: false,
                remedy: "upgrade the kernel to restrict these with Landlock; until then, seccomp refuses the same operations"
                    .to_owned(),
            }),
            LayerStatus::Waived => missing.push(MissingPart {
                what: layer.to_string(),
                required,
                remedy: match support.missing(*layer) {
                    None => format!("name `{layer}` in `require` in the policy; the kernel has it"),
                    Some(reason) => reason.to_owned(),
                },
            }),
            LayerStatus::Missing { reason } => {
                missing.push(MissingPart {
                    what: layer.to_string(),
                    required,
                    remedy: remedy(*layer, reason),
                });
            }
        }
    }
    if !HostWasmToolRunner::has_pagemap_scan() {
        missing.push(MissingPart {
            what: "pagemap_scan".to_owned(),
            required: false,
            remedy: "Linux 6.7 or newer with /proc mounted; without it calls take longer".to_owned(),
        });
    }
    missing
}

fn remedy(layer: Layer, reason: &str) -> String {
    let requirement = match layer {
        Layer::Landlock => {
            "needed: Linux 6.2 or newer with CONFIG_SECURITY_LANDLOCK=y and `landlock` in the boot parameter \
             lsm=; in a container, a seccomp profile that lets landlock_create_ruleset, landlock_add_rule and \
             landlock_restrict_self through"
        }
        Layer::Seccomp => {
            "needed: Linux with CONFIG_SECCOMP_FILTER=y on x86_64 or aarch64; in a container, a seccomp profile \
             that lets seccomp and prctl through"
        }
        _ => "",
    };
    format!("{reason}; {requirement}")
}
