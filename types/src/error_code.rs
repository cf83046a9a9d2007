//! [`ToolErrorCode`]: the stable codes that the runtime gives its errors of calls.

use std::borrow::Cow;

use serde::Serialize;

crate::word_enum! {
    /// The stable codes of a [`ToolError`](crate::ToolError) that are more precise than its
    /// [kind](crate::ToolErrorKind). Audit rows, the JSON of results and hooks have these words, so none may
    /// change.
    ///
    /// Other codes come from policy (`DenialCode`) and from the HTTP client (`FetchError::code`). A guest may set
    /// codes of its own.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[non_exhaustive]
    pub enum ToolErrorCode {
        /// No tool has the name of the call.
        UnknownTool = "unknown_tool",
        /// The caller has only some tools, and the call's tool is not among them.
        ToolNotGiven = "tool_not_given",
        /// The tool was approved, or a module declares it, but its module is missing or refused.
        ModuleUnavailable = "module_unavailable",
        /// Too many calls already wait for a slot.
        QueueFull = "queue_full",
        /// Too many native tools still block their threads after their calls have ended.
        ThreadsExhausted = "threads_exhausted",
        /// The result is larger than the runtime accepts.
        ResultTooLarge = "result_too_large",
        /// A stored output is not read, because the policy in force would no longer give it.
        GrantRevoked = "grant_revoked",
        /// An agent of the gateway was in no space, and the call needs one.
        NotInASpace = "not_in_a_space",
        /// An external call had expired or was cancelled before its result was submitted.
        CallClosed = "call_closed",
        /// The program keeps no calls of external tools.
        NoExternalCalls = "no_external_calls",
        /// The program makes no requests for tools.
        NoHttpClient = "no_http_client",
        /// An MCP server refused a request, or its tool reported a failure.
        RemoteError = "remote_error",
        /// An MCP server speaks no known revision of the protocol.
        McpVersion = "mcp_version",
        /// A hook of the embedding program failed, so the call's outcome is withheld.
        HookFailed = "hook_failed",
        /// A client of the Model Context Protocol already has the maximum number of running calls.
        TooManyCalls = "too_many_calls",
        /// The model's answer ended before the call was complete, so the call was not run.
        CutOff = "cut_off",
        /// The agent did not run the call, because a message interrupted the run.
        Skipped = "skipped",
        /// The run's process ended while the call ran. The call may have had its effect.
        Unknown = "unknown",
        /// No worker of Temporal could run the call.
        NotRun = "not_run",
        /// The audit log cannot be written, so the call is refused.
        AuditUnwritable = "audit_unwritable",
        /// The caller dropped the call before it ended.
        CallerGone = "caller_gone",
        /// A task file could not be prepared for its call, or was changed before the call began.
        TaskFile = "task_file",
        /// The ledger of a task file has a label that no policy knows.
        TaskLabel = "task_label",

        /// A server answered a request with a status of 400 or above.
        HttpStatus = "http_status",
        /// A response cannot be read, or is not what its tool declares.
        ResponseInvalid = "response_invalid",
        /// A service's response does not follow its protocol.
        AnswerUnexpected = "answer_unexpected",
        /// The policy does not configure this notification service, or its mail server has no user or no secret.
        NotificationNotConfigured = "notification_not_configured",
        /// A service or a mail server refused the message.
        NotificationRefused = "notification_refused",
        /// A mail server cannot be reached.
        MailConnection = "mail_connection",
        /// A mail server refused the login, or the password cannot be sent.
        MailLogin = "mail_login",
        /// A secret of the tool cannot be read, so nothing was requested.
        SecretUnavailable = "secret_unavailable",
        /// The request of a module's tool cannot be read.
        RequestInvalid = "request_invalid",
        /// The head or the body of a request is too large.
        RequestTooLarge = "request_too_large",
        /// The call of a module's tool makes more requests than it may.
        TooManyRequests = "too_many_requests",
        /// The call of a module's tool has more unread responses than it may.
        TooManyResponses = "too_many_responses",
        /// The call has ended or is ending, so its requests are no longer served.
        Stopped = "stopped",
        /// Within a guest: the host's answer to a request cannot be read.
        AnswerInvalid = "answer_invalid",

        /// The guest broke off after it was refused memory.
        MemoryLimit = "memory_limit",
        /// The guest broke off after it was refused a larger table.
        TableLimit = "table_limit",
        /// The guest recursed too deeply.
        StackOverflow = "stack_overflow",
        /// A frame of the guest was too long.
        FrameTooLarge = "frame_too_large",
        /// The guest sent too many frames of progress and updates.
        TooManyFrames = "too_many_frames",
        /// A line of the guest's standard output was not a frame.
        MalformedFrame = "malformed_frame",
        /// The guest ended without a result.
        NoFinalFrame = "no_final_frame",
        /// The guest wrote more output after its result.
        OutputAfterFinalFrame = "output_after_final_frame",
        /// The guest sent bytes, but its call is not the sending end of a transfer.
        UnwantedChunk = "unwanted_chunk",
        /// The guest sent more bytes than a transfer may have.
        TransferTooLarge = "transfer_too_large",
        /// The guest ended with an exit code other than 0.
        GuestExit = "guest_exit",
        /// The guest crashed.
        GuestTrap = "guest_trap",
        /// Too many threads are stuck in the kernel, so none is free for the guest.
        WorkersExhausted = "workers_exhausted",
        /// The module's compiled code was removed or altered while the program ran.
        ModuleGone = "module_gone",
        /// The thread or the session could not be confined, so nothing ran on it.
        NotConfined = "not_confined",
        /// The state of a file could not be kept for `undo`, so the file was not changed.
        UndoUnavailable = "undo_unavailable",

        /// There is no sidecar, or bash does not work there. Nothing of the command ran.
        ShellUnavailable = "shell_unavailable",
        /// The sidecar was lost while the command ran. The command may have run in part.
        ShellLost = "shell_lost",
        /// The command had too many processes or threads, and was killed.
        TooManyProcesses = "too_many_processes",
        /// The command and its jobs had too much memory, and were killed.
        TooMuchMemory = "too_much_memory",
        /// The command's memory could not be counted, and the command was killed.
        MemoryUncountable = "memory_hidden",
    }
}

/// For [`ToolError::with_code`](crate::ToolError::with_code).
impl From<ToolErrorCode> for Cow<'static, str> {
    fn from(code: ToolErrorCode) -> Self {
        Self::Borrowed(code.as_str())
    }
}
