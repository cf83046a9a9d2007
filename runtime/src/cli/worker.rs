//! The options of `portcullis worker`.

use clap::Args;
use portcullis_temporal::{Address, Placement};

use super::{ModelOptions, StoreOptions, agent::Strategy};

/// Drive runs that Temporal hands out: take their steps, until it is stopped.
///
/// The workflow `AgentRun` asks for each step: each model call and each tool call is an activity. Several workers share
/// one store (`--store postgres://…` for several machines) and one workspace path. Messages, arguments and results stay
/// in the store; Temporal holds ids, names, and what people send it.
///
/// A workflow begins with a question, or with the id of a run that is in the store. Questions about calls wait for
/// `portcullis approvals`, or for the signal `approve`. Ctrl-C or SIGTERM stops the worker gracefully: steps that have
/// not had an effect go to other workers.
#[derive(Debug, Args)]
#[command(
    mut_arg("strategy", |arg| arg.hide(true).default_value("sequential").value_parser(sequential)),
    after_long_help = "\
Examples:
  portcullis worker --temporal 127.0.0.1:7233 --namespace default --task-queue agents --model qwen3 --provider ollama
  temporal workflow start --type AgentRun --task-queue agents --input '{\"prompt\": \"What is in /shared?\"}'
  temporal workflow signal --workflow-id ID --name steer --input '\"Be brief.\"'

Exit codes:
  0 stopped gracefully    1 the worker failed    2 wrong usage, or an unusable policy
  5 no server answers, or it has no such namespace    130 stopped by a second Ctrl-C"
)]
pub(crate) struct WorkerOptions {
    /// The server: `HOST:PORT`, `https://HOST:PORT` or `http://HOST:PORT`.
    ///
    /// Without a scheme, this machine is reached in clear text and any other with TLS.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) temporal: Address,

    /// The namespace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,

    /// The task queue that the worker takes tasks from.
    #[arg(long, value_name = "NAME")]
    pub(crate) task_queue: String,

    /// Have the workers of another task queue run a tool: `TOOL=QUEUE`. May be given several times.
    ///
    /// The workers that ask the model need the option. They must offer the tool themselves, so that the model knows it;
    /// only the workers of QUEUE run it.
    #[arg(long = "place", value_name = "TOOL=QUEUE")]
    pub(crate) placements: Vec<Placement>,

    #[command(flatten)]
    pub(crate) model: ModelOptions,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The calls of a run come one after the other, each as an activity.
fn sequential(text: &str) -> Result<Strategy, String> {
    match text {
        "sequential" => text.parse(),
        _ => Err("a worker runs the calls of a turn one after the other".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, CliCommand};

    fn parse(words: &str) -> Result<CliCommand, clap::Error> {
        let words = ["portcullis", "worker"].into_iter().chain(words.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn a_worker_needs_a_server_and_a_queue() {
        let CliCommand::Worker(options) =
            parse("--temporal localhost:7233 --task-queue q --place shell=machines").expect("parses")
        else {
            panic!("not a worker")
        };
        assert_eq!((&*options.namespace, &*options.placements[0].queue), ("default", "machines"));
        for wrong in [
            "",
            "--temporal localhost:7233",
            "--task-queue q",
            "--temporal ftp://x --task-queue q",
            "--temporal localhost:7233 --task-queue q --place shell",
            "--temporal localhost:7233 --task-queue q --strategy parallel",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
