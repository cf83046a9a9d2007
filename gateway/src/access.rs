//! [`Identity`]: the caller of a request, proven by a token.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{header::AUTHORIZATION, request::Parts},
};
use portcullis_store::{ParticipantKind, StoreError};
use sha2::{Digest as _, Sha256};

use crate::{
    core::Core,
    error::{ApiError, ErrorCode},
};

/// The kind of a token of the operator.
pub(crate) const ADMIN: &str = "admin";

/// The kind of a token of a user.
pub(crate) const USER: &str = "user";

/// The kind of a token of an agent.
pub(crate) const AGENT: &str = "agent";

/// The kind of a token of a run.
pub(crate) const RUN: &str = "run";

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The operator.
    Admin,
    /// A person.
    User(String),
    /// An agent, or a program that acts for it.
    Agent(String),
    /// A program that acts for one run of an agent.
    Run { run: String, agent: String },
}

/// The form in which a token is stored: the SHA-256 of its text, in hexadecimal digits.
pub(crate) fn token_hash(token: &str) -> String {
    hex::encode(Sha256::digest(token))
}

/// The hash of a request's token, which may be unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash(String);

impl<S: Send + Sync> FromRequestParts<S> for TokenHash {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let header = parts.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = header
            .and_then(|value| value.split_first_chunk::<7>())
            // The name of a scheme has no case (RFC 9110, 11.1).
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
            .and_then(|(_, token)| std::str::from_utf8(token.trim_ascii()).ok())
            .ok_or_else(|| refused("the header `Authorization: Bearer TOKEN` is missing or malformed"))?;
        Ok(Self(token_hash(token)))
    }
}

impl FromRequestParts<Arc<Core>> for Identity {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, ApiError> {
        let hash = TokenHash::from_request_parts(parts, core).await?;
        Self::of_token(core, &hash).await
    }
}

fn refused(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message)
}

impl Identity {
    /// The holder of this token.
    ///
    /// # Errors
    /// [`ErrorCode::Unauthorized`] for an unknown token.
    pub(crate) async fn of_token(core: &Core, TokenHash(hash): &TokenHash) -> Result<Self, ApiError> {
        // The hash is looked up, so the time of the comparison says nothing about a token.
        let found = core.store.find_token(hash).await?;
        let token = found.ok_or_else(|| refused("the token is unknown"))?;
        match (token.subject_kind.as_str(), token.subject) {
            (ADMIN, None) => Ok(Self::Admin),
            (USER, Some(id)) => Ok(Self::User(id)),
            (AGENT, Some(id)) => Ok(Self::Agent(id)),
            (RUN, Some(run)) => {
                let agent = core.store.run(&run).await?.summary.agent;
                Ok(Self::Run { run, agent })
            }
            // A row of another form, for example of a newer program, grants nothing.
            _ => Err(refused("the token has no subject")),
        }
    }

    /// # Errors
    /// [`ErrorCode::Forbidden`], unless the caller is the operator.
    pub(crate) fn ensure_admin(&self) -> Result<(), ApiError> {
        match self {
            Self::Admin => Ok(()),
            _ => Err(ApiError::forbidden("this needs a token of the operator")),
        }
    }

    /// The user that the caller is.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::User(id) => Some(id),
            _ => None,
        }
    }

    /// Whether the caller is a member of the space. The operator sees all spaces, and the token of a run sees none: its
    /// program needs only the run's calls.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn sees_space(&self, core: &Core, space: &str) -> Result<bool, StoreError> {
        match self {
            Self::Admin => Ok(true),
            Self::User(id) | Self::Agent(id) => core.store.is_member(space, id).await,
            Self::Run { .. } => Ok(false),
        }
    }

    /// # Errors
    /// [`ErrorCode::NotFound`] for a space that the caller does not see, so that its existence stays hidden.
    pub(crate) async fn ensure_sees_space(&self, core: &Core, space: &str) -> Result<(), ApiError> {
        if self.sees_space(core, space).await? { Ok(()) } else { Err(ApiError::not_found("space", space)) }
    }

    /// # Errors
    /// [`ErrorCode::NotFound`], unless the caller may see what the agent does: it is the operator, the agent itself, or
    /// a user with a space in common.
    pub(crate) async fn ensure_sees_agent(&self, core: &Core, agent: &str) -> Result<(), ApiError> {
        let sees = match self {
            Self::Admin => true,
            Self::Agent(id) => id == agent,
            // A run's token gives no access to other runs of the agent.
            Self::Run { .. } => false,
            Self::User(id) => core.store.share_space(id, agent).await?,
        };
        let is_agent = async || match core.store.participant(agent).await {
            Ok(participant) => Ok(participant.kind == ParticipantKind::Agent),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        };
        // The operator sees every id, so the id must still be that of an agent.
        if sees && is_agent().await? { Ok(()) } else { Err(ApiError::not_found("agent", agent)) }
    }

    /// Whether the caller may see this run of this agent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn sees_run(&self, core: &Core, (run, agent): (&str, &str)) -> Result<bool, StoreError> {
        match self {
            Self::Admin => Ok(true),
            Self::Agent(id) => Ok(id == agent),
            Self::Run { run: own, .. } => Ok(own == run),
            Self::User(id) => core.store.share_space(id, agent).await,
        }
    }

    /// # Errors
    /// [`ErrorCode::NotFound`], unless the caller may see this run.
    pub(crate) async fn ensure_sees_run(
        &self,
        core: &Core,
        (run, agent): (&str, &str),
    ) -> Result<(), ApiError> {
        let sees = self.sees_run(core, (run, agent)).await?;
        if sees { Ok(()) } else { Err(ApiError::not_found("run", run)) }
    }

    /// The agent to which a listing is restricted. `None` lists all agents; a user sees only some of them.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for an agent that the caller does not see.
    pub(crate) async fn listed_agent(
        &self,
        core: &Core,
        asked: Option<String>,
    ) -> Result<Option<String>, ApiError> {
        match (self, asked) {
            (Self::Admin, asked) => Ok(asked),
            // The rows of a user are filtered afterwards, by `VisibleRuns`.
            (Self::User(_), None) => Ok(None),
            (Self::User(_), Some(agent)) => {
                self.ensure_sees_agent(core, &agent).await?;
                Ok(Some(agent))
            }
            (Self::Agent(own) | Self::Run { agent: own, .. }, asked) => match asked {
                Some(agent) if agent != *own => Err(ApiError::not_found("agent", &agent)),
                _ => Ok(Some(own.clone())),
            },
        }
    }

    /// The run whose calls a listing has, if the caller may list no others.
    pub(crate) fn listed_run(&self) -> Option<&str> {
        match self {
            Self::Run { run, .. } => Some(run),
            _ => None,
        }
    }

    /// The kind of the caller's token, and its id.
    pub(crate) fn kind_and_id(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Admin => (ADMIN, None),
            Self::User(id) => (USER, Some(id)),
            Self::Agent(id) => (AGENT, Some(id)),
            Self::Run { run, .. } => (RUN, Some(run)),
        }
    }
}

/// The part of a listing over all agents that a caller sees. Each agent is looked up once.
pub(crate) struct VisibleRuns<'a> {
    core: &'a Core,
    caller: &'a Identity,
    known: HashMap<String, bool>,
}

impl<'a> VisibleRuns<'a> {
    pub(crate) fn new(core: &'a Core, caller: &'a Identity) -> Self {
        Self { core, caller, known: HashMap::new() }
    }

    /// Whether the caller sees this run of this agent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn sees(&mut self, run: &str, agent: &str) -> Result<bool, StoreError> {
        // For a user, visibility depends only on the agent, so it is cached by agent.
        let known = self.caller.user().and_then(|_| self.known.get(agent));
        if let Some(known) = known {
            return Ok(*known);
        }
        let sees = self.caller.sees_run(self.core, (run, agent)).await?;
        if self.caller.user().is_some() {
            self.known.insert(agent.to_owned(), sees);
        }
        Ok(sees)
    }
}
